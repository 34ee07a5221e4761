"""A training that was killed goes on from its file and ends with the same bits."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from muddle.training.jobs import Silent
from muddle.training.stopping import Deadline
from muddle.training.streamed import stream_config, train_streamed

CPU = torch.device("cpu")
CHANGES = {
    "plain": {},
    "classes": {"task": "classification", "dither": 0.0},
    "cycles": {"keep": "cycles", "schedule": "cycles", "max_iter": 12, "scale_rate": 6.0},
    "blocks": {"normalization": "batch", "dropout": 0.2, "gated": True},
    "plateau": {"schedule": "plateau", "optimizer": "sgd", "learning_rate": 1e-3},
    "patience": {"patience": 2, "learning_rate": 0.5},
}


class Killed(BaseException):
    pass


class Killer(Silent):
    """Ends a training like a kill: after so many looks."""

    def __init__(self, n_looks):
        self.n_left = n_looks

    def advance(self, n_net_iterations, loss, score):
        self.n_left -= 1
        if self.n_left == 0:
            raise Killed


def train(source, config, path, minutes=0, **options):
    with stream_config(checkpoint=path, checkpoint_minutes=minutes):
        return train_streamed(source, config, (11, 12, 13), device=CPU, **options)


def kill(source, config, path, n_looks=5, **options):
    with pytest.raises(Killed):
        train(source, config, path, reporter=Killer(n_looks), **options)


def assert_same_bits(ours, theirs):
    pairs = zip(ours.trained.nets.tensors(), theirs.trained.nets.tensors(), strict=True)
    names = ("head", "held_out_head", "penalty", "validation_output", "n_iterations", "diverged")
    pairs = [*pairs, *((getattr(ours.trained, n), getattr(theirs.trained, n)) for n in names)]
    for name in ("loss", "score", "penalty"):
        pairs.append((getattr(ours.trained.history, name), getattr(theirs.trained.history, name)))
    for mine, other in pairs:
        torch.testing.assert_close(mine, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("change", CHANGES)
def test_a_killed_training_ends_like_one_that_was_not(change, make_source, small, tmp_path):
    config = replace(small, batch_size=10, **CHANGES[change])
    classes = config.task != "regression"
    source, _ = make_source(weighted=True, classes=classes)
    path = tmp_path / "state.checkpoint"
    whole = train_streamed(source, config, (11, 12, 13), device=CPU)
    kill(source, config, path)
    kill(source, config, path, n_looks=3)  # twice
    assert path.is_file()
    source.requests.clear()
    assert_same_bits(train(source, config, path), whole)
    epochs = [request["epoch"] for request in source.requests if request["shuffle"]]
    assert epochs[:2] == [0, 1]  # for the start, and where it was: four batches per epoch
    assert list(tmp_path.iterdir()) == []


def test_some_nets_that_stopped_before_the_kill_stay_stopped(make_source, small, tmp_path):
    config = replace(small, batch_size=10, max_iter=20, patience=3, learning_rate=0.05)
    source, _ = make_source()
    whole = train_streamed(source, config, (11, 12, 13), device=CPU)
    n_iterations = whole.trained.n_iterations.tolist()
    assert 0 < min(n_iterations) < max(n_iterations), n_iterations
    path = tmp_path / "state.checkpoint"
    kill(source, config, path, n_looks=min(n_iterations) + 3)
    assert_same_bits(train(source, config, path), whole)


def test_a_training_that_was_killed_at_the_output_layers_trains_no_more(
    make_source, small, tmp_path
):
    source, _ = make_source()
    config, path = replace(small, batch_size=10), tmp_path / "state.checkpoint"
    whole = train_streamed(source, config, (11, 12, 13), device=CPU)

    def read(n_rows, purpose):
        if purpose == "output layers":
            raise Killed

    with pytest.raises(Killed):
        train(source, config, path, read=read)
    assert_same_bits(train(source, config, path, reporter=Killer(1)), whole)


def test_every_group_has_a_file(make_source, small, tmp_path, monkeypatch):
    from muddle.training import streamed

    source, _ = make_source()
    config, path = replace(small, batch_size=10), tmp_path / "state.checkpoint"
    monkeypatch.setattr(streamed, "plan_groups", lambda *_: [(11, 12), (13,)])
    whole = train_streamed(source, config, (11, 12, 13), device=CPU)
    kill(source, config, path, n_looks=12)  # nine for the first group
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["state.checkpoint.group0", "state.checkpoint.group1"]
    assert_same_bits(train(source, config, path), whole)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_written_every_so_many_minutes_and_at_the_end(
    make_source, small, tmp_path, monkeypatch
):
    from muddle.training import checkpoint

    source, _ = make_source()
    written = []
    write = checkpoint.write_whole
    monkeypatch.setattr(checkpoint, "write_whole", lambda path: written.append(1) or write(path))
    train(source, small, tmp_path / "state", minutes=60)
    assert len(written) == 1
    train(source, small, tmp_path / "state", minutes=0)
    assert len(written) == 1 + small.steps + 1


def test_the_time_limit_may_change_between_kill_and_resumption(make_source, small, tmp_path):
    source, _ = make_source()
    config, path = replace(small, batch_size=10), tmp_path / "state"
    whole = train_streamed(source, config, (11, 12, 13), device=CPU)
    kill(source, config, path)
    found = train(source, replace(config, time_limit=1e4), path, deadline=Deadline(1e4))
    assert_same_bits(found, whole)


def test_trainings_that_were_finished_before_the_kill_train_no_more(make_source, small, tmp_path):
    """A fit may be several trainings, such as one per depth."""
    source, _ = make_source()
    first, second = (replace(small, batch_size=10, depth=depth) for depth in (1, 2))
    whole = [train_streamed(source, c, (11,), device=CPU) for c in (first, second)]

    def fit(killers):
        with stream_config(checkpoint=tmp_path / "state", checkpoint_minutes=0):
            pairs = zip((first, second), killers, strict=True)
            return [
                train_streamed(source, config, (11,), device=CPU, reporter=killer)
                for config, killer in pairs
            ]

    with pytest.raises(Killed):
        fit([None, Killer(4)])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["state", "state.fit2"]
    for ours, theirs in zip(fit([Killer(1), None]), whole, strict=True):
        assert_same_bits(ours, theirs)
    assert list(tmp_path.iterdir()) == []


def test_options_of_streams_are_checked():
    with pytest.raises(ValueError, match="strategy must be"):
        stream_config(strategy="columns").__enter__()
    with pytest.raises(ValueError, match="checkpoint_minutes must be"):
        stream_config(checkpoint_minutes=-1).__enter__()


OTHERS = {
    "another width": {"width": 16},
    "another activation": {"activation": torch.sin},
    "another learning_rate": {"learning_rate": 0.5},
}


@pytest.mark.parametrize("message", OTHERS)
def test_a_file_of_another_fit_is_an_error_and_stays(message, make_source, small, tmp_path):
    source, _ = make_source()
    path = tmp_path / "state"
    kill(source, small, path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=rf"{message} in .*state: .* instead of"):
        train(source, replace(small, **OTHERS[message]), path)
    assert path.read_bytes() == before


def test_a_file_of_other_rows_is_an_error(make_source, small, tmp_path):
    source, _ = make_source()
    path = tmp_path / "state"
    kill(source, small, path)
    source.labels[0] += 1
    with pytest.raises(ValueError, match="another mean and deviation of the labels"):
        train(source, small, path)


@pytest.mark.parametrize("content", [b"", b"no tensors", b"\x02\x00\x00\x00\x00\x00\x00\x00{}"])
def test_a_file_of_another_kind_is_an_error(content, make_source, small, tmp_path):
    source, _ = make_source()
    path = Path(tmp_path / "state")
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"must be a file that .* Remove it"):
        train(source, small, path)
    assert path.read_bytes() == content


def test_places_and_optimizers_that_cannot_be_are_errors_before_any_work(
    make_source, small, tmp_path
):
    source, _ = make_source()
    with pytest.raises(FileNotFoundError, match="Create it first"):
        train(source, small, tmp_path / "nowhere" / "state")
    config = replace(small, optimizer=torch.optim.RAdam)
    with pytest.raises(ValueError, match="a checkpoint needs optimizer='adam'"):
        train(source, config, tmp_path / "state")
    assert source.requests == []
