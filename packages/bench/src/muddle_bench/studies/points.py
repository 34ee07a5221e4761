"""The studies and their points: which data set, which setting, how values are drawn; and the
points as methods of the benchmark (a plugin by the name of this module). Needs no torch.

A point is a variant of one base configuration. Variants are named by their changes, so points of
different studies with the same changes share their records.
"""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from muddle_bench.data.catalogue import built_in
from muddle_bench.methods.method import Method, Request
from muddle_runtime.fitted import Task
from muddle_runtime.parameters import suggest

Setting = str | int | float | None
# How values are drawn: along an axis, as steps with bags beside single nets, or as marks on one
# line per data set.
Scale = Literal["linear", "log2", "log10", "steps", "rows"]

PREFIX = "study"  # of the methods' names
FAMILY = "Study"
N_NETS = 10
# The released code's settings of MLR-2, which made the published tables; the studies have batches
# of min(n, 2^14), as the paper's appendix says. A test compares them with the preset.
BASE: dict[str, Setting] = {
    "width": 1024,
    "activation": "relu",
    "init_gain": 2**0.5,
    "loss": "released",
    "n_permutations": 16,
    "structured_noise": 1.0,
    "dither": 0.03,
    "penalty": "released",
    "batch_size": 2**14,
    "head": "batch",
    "max_loss": 1.0,
}
# The logarithm of the penalty is trained, so 0 is written as a number that is lost when float32
# adds it to a Gram matrix.
NO_PENALTY = 1e-30
HEURISTIC, WHOLE = "heuristic", "n"  # values that are not numbers

NOISY = "concrete-slump-test-3"
THREE = (NOISY, "qsar-aquatic-toxicity", "seoul-bike-sharing-demand")
LARGE = "beijing-pm25"
# Small data sets of the development half (docs/decisions/0007-defaults.md).
CLASSES = ("breast-cancer-coimbra", "ionosphere", "qsar-biodegradation")


@dataclass(frozen=True)
class Variant:
    """A configuration: its changes to BASE or to the preset of a depth."""

    changes: tuple[tuple[str, Setting], ...] = ()
    depth: int | None = None  # None: MLR-2 as in BASE; else the released preset of that depth

    @property
    def name(self) -> str:
        """Name of the method; it is part of file names."""
        if self.depth is not None:
            return f"{PREFIX}-depth-{self.depth}"
        parts = [f"{name.replace('_', '-')}-{_spell(value)}" for name, value in self.changes]
        return "-".join([PREFIX, *(parts or ["mlr-2"])])


def vary(**changes: Setting) -> Variant:
    """The variant with these settings; a setting that is as in BASE is not a change."""
    return Variant(tuple((name, value) for name, value in changes.items() if value != BASE[name]))


def _spell(value: Setting) -> str:
    if isinstance(value, (int, float)):
        return f"{value:g}".replace(".", "p").replace("+", "")
    return str(value).lower()


@dataclass(frozen=True)
class Point:
    """One row of a study's table."""

    study: str
    dataset: str
    task: Task
    value: str  # as the table spells it
    is_default: bool
    variant: Variant


@dataclass(frozen=True)
class Study:
    """Points that belong together; the words about them are in studies.toml."""

    name: str  # of its file
    summary: str  # for lists of studies
    title: str
    axis: str  # what the values are
    scale: Scale
    about: str  # one sentence for the report
    points: tuple[Point, ...]

    @property
    def datasets(self) -> list[str]:
        return list(dict.fromkeys(point.dataset for point in self.points))

    @property
    def command(self) -> str:
        """The command that runs the study."""
        if self.name in ABLATIONS:
            return "muddle study ablation"
        return f"muddle study dependence {self.name}"


STEPS = {
    "FFNN": vary(head="linear", n_permutations=0, structured_noise=0),
    "+ Ridge": vary(n_permutations=0, structured_noise=0),
    "+ Ridge + Struct. Dithering": vary(n_permutations=0),
    "+ Ridge + Permut.": vary(structured_noise=0),
    "MLR": Variant(),
}
# Not in the paper. The loss limit is the released code's rule to stop a net whose loss exceeds 1;
# it fits no other loss.
MORE = {
    "MLR": Variant(),
    "no loss limit": vary(max_loss=None),
    "σ = 2, no loss limit": vary(structured_noise=2.0, max_loss=None),
    "FFNN, no loss limit": vary(head="linear", n_permutations=0, structured_noise=0, max_loss=None),
    "paper loss": vary(loss="paper", max_loss=None),
    "paper loss, σ = 0": vary(loss="paper", structured_noise=0, max_loss=None),
    "paper settings": vary(
        loss="paper", penalty="paper", init_gain=1.0, batch_size=1024, head="train", max_loss=None
    ),
    "SELU": vary(activation="selu"),
    "Mish": vary(activation="mish"),
    "tanh": vary(activation="tanh"),
    "head on training rows": vary(head="train"),
    "head on all rows": vary(head="all"),
}
SIGMAS = {text: vary(structured_noise=float(text)) for text in ("0", "0.2", "1", "2", "3")}
PERMUTATIONS = {
    text: vary(n_permutations=int(text)) for text in ("0", "1", "2", "4", "16", "256", "1024")
}
PENALTIES = {
    "0": vary(penalty=NO_PENALTY),
    **{
        text: vary(penalty=float(text))
        for text in ("0.001", "0.1", "10", "1000", "100000", "10000000", "1000000000")
    },
    HEURISTIC: Variant(),
}
DITHERS = {text: vary(dither=float(text)) for text in ("0", "0.01", "0.03", "0.1", "0.3")}
WIDTHS = {text: vary(width=int(text)) for text in ("16", "64", "256", "1024", "4096")}
BATCHES = (1, *(2**power for power in range(4, 14)))
# The largest batch that is smaller than what the paper calls the whole data set.
LARGEST_BATCH = {
    NOISY: 64,
    "qsar-aquatic-toxicity": 256,
    "seoul-bike-sharing-demand": 4096,
    LARGE: 8192,
}
DEPTHS = {str(depth): Variant(depth=depth) for depth in (1, 2, 3, 4)}


def _cross(
    study: str, datasets: Iterable[str], variants: dict[str, Variant], default: str
) -> list[Point]:
    tasks: dict[str, Task] = dict.fromkeys(CLASSES, "classification")
    return [
        Point(study, name, tasks.get(name, "regression"), value, value == default, variant)
        for name in datasets
        for value, variant in variants.items()
    ]


def _batches(dataset: str, largest: int) -> list[Point]:
    sizes = {str(size): vary(batch_size=size) for size in BATCHES if size <= largest}
    return _cross("batch_size", [dataset], sizes | {WHOLE: Variant()}, WHOLE)


ABLATIONS = ("ablation", "ablation_more")
# The paper's sixteen.
_REGRESSION = [e.id for e in built_in().values() if e.task == "regression" and e.id != LARGE]

POINTS = {
    "ablation": _cross("ablation", THREE, STEPS, "MLR"),
    "ablation_more": _cross("ablation_more", THREE, MORE, "MLR")
    + _cross("ablation_more", CLASSES, STEPS, "MLR"),
    "structured_noise": _cross("structured_noise", THREE, SIGMAS, "1"),
    "permutations": _cross("permutations", THREE, PERMUTATIONS, "16"),
    "ridge_init": _cross("ridge_init", THREE, PENALTIES, HEURISTIC),
    "label_noise": _cross("label_noise", THREE, DITHERS, "0.03"),
    "width": _cross("width", THREE, WIDTHS, "1024"),
    "batch_size": [point for pair in LARGEST_BATCH.items() for point in _batches(*pair)],
    "depth": _cross("depth", _REGRESSION, DEPTHS, "2"),
}
WORDS = tomllib.loads(Path(__file__).with_name("studies.toml").read_text(encoding="utf-8"))
STUDIES = {name: Study(name, **WORDS[name], points=tuple(POINTS[name])) for name in POINTS}
DEPENDENCES = tuple(name for name in STUDIES if name not in ABLATIONS)


def find_study(name: str, among: Sequence[str] = tuple(STUDIES)) -> Study:
    if name not in among:
        raise ValueError(
            f"no study named {name!r}.{suggest(name, among)} There are {', '.join(among)}."
        )
    return STUDIES[name]


def choose_points(names: Iterable[str], datasets: Iterable[str] | None = None) -> list[Point]:
    """The points of these studies, on these data sets; None: on all data sets."""
    points = [point for name in names for point in find_study(name).points]
    if datasets is None:
        return points
    known = list(dict.fromkeys(point.dataset for point in points))
    wanted = set(datasets)
    for name in sorted(wanted - set(known)):
        raise ValueError(
            f"no point is on the data set {name!r}.{suggest(name, known)} There are points on "
            f"{', '.join(known)}."
        )
    return [point for point in points if point.dataset in wanted]


def all_variants() -> dict[str, Variant]:
    """Every variant once, by name."""
    found: dict[str, Variant] = {}
    for study in STUDIES.values():
        for point in study.points:
            # The first, because fingerprints of records tell 0 from 0.0.
            found.setdefault(point.variant.name, point.variant)
    return found


# Methods of the benchmark


def make_point(
    request: Request, variant: Variant, n_nets: int, overrides: tuple[tuple[str, Setting], ...]
) -> Any:
    """The unfitted nets of a variant."""
    from muddle_bench.studies.study_nets import StudyNets, make_config

    depth = 2 if variant.depth is None else variant.depth
    base = {"batch_size": BASE["batch_size"]} if variant.depth is None else {}
    settings: dict[str, Any] = {**base, **dict(variant.changes), **dict(overrides)}
    config = make_config(request.task, depth, **settings)
    return StudyNets(config, n_nets=n_nets, random_state=request.seed, device=request.device)


def measure_point(model: Any, problem: Any) -> dict[str, Any]:
    from muddle_bench.studies.study_nets import measure

    return measure(model, problem)


def make_methods(n_nets: int = N_NETS, **overrides: Setting) -> list[Method]:
    """One method per variant; overrides are settings for all of them, e.g. a small width."""
    more = tuple(sorted(overrides.items()))
    return [
        Method(
            name,
            FAMILY,
            partial(make_point, variant=variant, n_nets=n_nets, overrides=more),
            title=f"{n_nets} nets of the studies",
            packages=("torch",),
            input="table",
            details=measure_point,
        )
        for name, variant in all_variants().items()
    ]


METHODS = make_methods()
