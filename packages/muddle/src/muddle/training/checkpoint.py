"""The state of a training on a stream in a file, so that a training that was killed goes on.

It goes on with the same rows and the same noise, and ends with the same bits. The file is
safetensors with JSON in its header, written whole or not at all.

Shapes: K nets, K' of them still in training, R ranks, I iterations so far.
"""

import json
import time
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from muddle.training.config import TrainConfig
from muddle.training.stopping import BestNets
from muddle.training.trainer import Optimizer
from muddle_runtime.whole_file import check_place, write_whole

if TYPE_CHECKING:
    from muddle.training.streamed import StreamedTrainer

HEADER, VERSION = "muddle_checkpoint", 1


class Checkpoint:
    """A file that holds the state of a trainer, rewritten every so many seconds."""

    def __init__(self, path: Path, seconds: float) -> None:
        check_place(path)
        self.path, self._seconds = path, seconds
        self._saved_at = time.perf_counter()
        self._parts: list[Checkpoint] = []

    def part(self, name: str) -> "Checkpoint":
        """The file of one of several trainings."""
        path = self.path.with_name(f"{self.path.name}.{name}")
        self._parts.append(Checkpoint(path, self._seconds))
        return self._parts[-1]

    def is_due(self) -> bool:
        return time.perf_counter() - self._saved_at >= self._seconds

    def save(self, trainer: "StreamedTrainer", *, finished: bool) -> None:
        """All ranks call this; the first one writes. finished: no further iterations"""
        ranks = trainer.ranks
        # Everything else is the same in all ranks.
        place = torch.tensor(trainer.feed.place, device=trainer.device)
        own = {
            "place": ranks.gather(place[None]),
            "generators": ranks.gather(_read_generators(trainer)[None].to(trainer.device)),
        }
        if ranks.rank == 0:
            known = _live_tensors(trainer) | _grown_tensors(trainer) | own
            tensors = {name: tensor.detach().cpu().clone() for name, tensor in known.items()}
            values = {
                "version": VERSION,
                "fit": _describe_fit(trainer),
                "iteration": trainer.iteration,
                "finished": finished,
                "n_snapshots": len(trainer.snapshots),
            }
            with write_whole(self.path) as file:
                file.write(save(tensors, {HEADER: json.dumps(values)}))
        self._saved_at = time.perf_counter()

    def load(self, trainer: "StreamedTrainer") -> bool:
        """Go on where the file ends, if there is one. -> whether iterations are finished"""
        ranks = trainer.ranks
        found = ranks.gather_objects(self.path.is_file())
        if len(set(found)) == 2:
            raise FileNotFoundError(
                "the checkpoint must lie in a folder that all processes share, got processes that "
                f"see {self.path} and others that do not."
            )
        if not found[0]:
            return False
        values, tensors = _read(self.path)
        _check_fit(self.path, values["fit"], _describe_fit(trainer))
        trainer.go_on(values["iteration"], tensors.pop("alive_places"))
        for name, live in _live_tensors(trainer).items():
            live.copy_(tensors.pop(name))
        _restore(trainer, tensors, values["n_snapshots"])
        return bool(values["finished"])

    def remove(self) -> None:
        """Remove the file, and those of its parts."""
        self.path.unlink(missing_ok=True)
        for part in self._parts:
            part.remove()


def _live_tensors(trainer: "StreamedTrainer") -> dict[str, Tensor]:
    """Tensors that iterations change in place."""
    best, status = trainer.best, trainer.status
    found = {"counter": trainer.counter, "plateau": trainer.plateau}
    groups: dict[str, Any] = {
        "nets": trainer.nets.tensors(),
        "output": trainer.output.parameters(),
        "best.nets": best.nets.tensors(),
    }
    for place, optimizer in enumerate(trainer.optimizers):
        assert isinstance(optimizer, Optimizer)
        groups[f"optimizer.{place}"] = optimizer.state()
    for group, own in groups.items():
        found |= {f"{group}.{place}": tensor for place, tensor in enumerate(own)}
    for name in ("penalty", "head", "score", "tie_break", "iteration"):
        found[f"best.{name}"] = getattr(best, name)
    for field in fields(status):
        found[f"status.{field.name}"] = getattr(status, field.name)
    return found


def _grown_tensors(trainer: "StreamedTrainer") -> dict[str, Tensor]:
    """Tensors whose size depends on what has happened."""
    found = {
        "alive_places": trainer.places,
        "seen": torch.cat(trainer.seen),  # (I, K, 4)
        "seconds": torch.tensor(trainer.seconds, dtype=torch.float64),
    }
    for place, (copied, places, usable) in enumerate(trainer.snapshots):
        own = dict(enumerate(copied.nets.tensors()))
        named = own | {"penalty": copied.penalty, "places": places, "usable": usable}
        named["iteration"] = copied.iteration
        found |= {f"snapshot.{place}.{name}": tensor for name, tensor in named.items()}
    return found


def _restore(trainer: "StreamedTrainer", tensors: dict[str, Tensor], n_snapshots: int) -> None:
    """The rest, of tensors that are not changed in place."""
    device, rank = trainer.device, trainer.ranks.rank
    trainer.seen, trainer.seconds = [tensors["seen"]], tensors["seconds"].tolist()
    trainer.snapshots = []
    for place in range(n_snapshots):
        own = {name.split(".")[2]: t for name, t in tensors.items() if f"snapshot.{place}." in name}
        places = own["places"].to(device)
        nets = trainer.best.nets.keep(places.tolist())
        for index, tensor in enumerate(nets.tensors()):
            tensor.copy_(own[str(index)])
        head, iteration = trainer.baseline.new_zeros(0), int(own["iteration"].max())
        copied = BestNets.copy(nets, own["penalty"].to(device), head, torch.nan, iteration)
        trainer.snapshots.append((copied, places, own["usable"].to(device)))
    epoch, n_batches = tensors["place"][rank].tolist()
    trainer.feed.seek(epoch, n_batches)
    states = tensors["generators"][rank]
    for generator, state in zip(_list_generators(trainer), states, strict=True):
        generator.set_state(state.clone())  # it reads from the start of the memory


def _list_generators(trainer: "StreamedTrainer") -> list[torch.Generator]:
    return [*trainer.noise.generators, *trainer.dropout]


def _read_generators(trainer: "StreamedTrainer") -> Tensor:
    return torch.stack([generator.get_state() for generator in _list_generators(trainer)])


def _describe_fit(trainer: "StreamedTrainer") -> dict[str, Any]:
    """What must be the same for a training to go on."""
    start, config, ranks = trainer.start, trainer.config, trainer.ranks
    source = trainer.rows.source
    return {
        "settings": describe_settings(config),
        "seeds": list(trainer.seeds),
        "rows": [start.n_train, start.n_validation],
        "columns": [source.n_features, source.n_labels],
        "mean and deviation of the labels": [start.mean.tolist(), start.deviation.tolist()],
        "sample of the validation rows": len(start.sample.labels),
        "score": trainer.scoring.name,
        "processes": ranks.n_ranks,
        "device": trainer.device.type,
    }


def describe_settings(config: TrainConfig) -> dict[str, Any]:
    """What must be the same in all processes and after a kill; functions by their names."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    del values["time_limit"]
    named = {name: type(v).__name__ for name, v in values.items() if callable(v)}
    named |= {name: v.__name__ for name, v in values.items() if hasattr(v, "__name__")}
    return values | named


def _check_fit(path: Path, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    ours = json.loads(json.dumps(ours))
    for name, own in ours.items():
        other = theirs.get(name)
        if own == other:
            continue
        if isinstance(own, dict) and isinstance(other, dict):
            name = next(key for key in own if own[key] != other.get(key))
            own, other = own[name], other.get(name)
        raise ValueError(
            f"a checkpoint must be of the same fit, got another {name} in {path}: {other} instead "
            f"of {own}. Repeat that fit, or remove the file to begin anew."
        )


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get(HEADER)
            values = json.loads(header) if header else {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, ValueError) as error:
        raise ValueError(
            f"a checkpoint must be a file that a fit has written, got {path}, which cannot be "
            "read. Remove it to begin anew."
        ) from error
    if values.get("version") != VERSION:
        raise ValueError(
            f"a checkpoint must be a file that this version of muddle has written, got {path}. "
            "Remove it to begin anew, or choose another name."
        )
    return values, tensors
