"""keep="cycles": nets as they are at the ends of the cycles, unscored."""

from dataclasses import replace

import pytest
import torch

from muddle.training.trainer import Trainer

ENDS = (1, 3, 7, 15)
NEAR = {"rtol": 1e-4, "atol": 1e-5}


def find_nets(result, iteration):
    return torch.nonzero(result.best_iteration == iteration).flatten().tolist()


def assert_same_nets(ours, mine, theirs, yours):
    """These nets of one result are bit by bit those of another."""
    both = (ours.nets.keep(mine).parameters(), theirs.nets.keep(yours).parameters())
    for a, b in zip(*both, strict=True):
        assert torch.equal(a, b)
    for name in ("penalty", "head", "held_out_head", "validation_output"):
        assert torch.equal(getattr(ours, name)[mine], getattr(theirs, name)[yours])


def test_every_net_is_there_at_the_end_of_every_cycle(make_data, cycles, fit, monkeypatch):
    scored = fit(make_data(), replace(cycles, keep="best"))

    def refuse(*_):
        raise AssertionError("validation rows were asked for")

    monkeypatch.setattr(Trainer, "_score", refuse)
    result = fit(make_data(), cycles)
    assert result.best_iteration.tolist() == [end for end in ENDS for _ in range(3)]
    assert result.kept == [0, 1, 2] * 4
    assert result.n_iterations.tolist() == [15] * 12
    assert result.score.isnan().all()
    assert result.history.score.isnan().all()
    # Snapshots change nothing in training, and every one has the history of its net.
    assert torch.equal(result.history.loss, scored.history.loss.repeat(1, 4))
    assert torch.equal(result.history.penalty[:, :3], scored.history.penalty)


@pytest.mark.parametrize("batch_size", [4096, 10])
@pytest.mark.parametrize("end", ENDS[:-1])
def test_a_snapshot_is_the_net_of_a_cut_run(end, batch_size, make_data, cycles, fit, make_clock):
    config = replace(cycles, batch_size=batch_size)
    whole, cut = fit(make_data(), config), fit(make_data(), config, deadline=make_clock(end))
    assert sorted(set(cut.best_iteration.tolist())) == [e for e in ENDS if e <= end]
    assert_same_nets(whole, find_nets(whole, end), cut, find_nets(cut, end))


@pytest.mark.parametrize("n_iterations", [5, 15])
def test_the_last_snapshot(n_iterations, make_data, cycles, fit, make_trainer, make_clock):
    def cut(keep):
        deadline = make_clock(n_iterations) if n_iterations < 15 else None
        return fit(make_data(), replace(cycles, keep=keep), deadline=deadline)

    every, last = cut("cycles"), cut("last")
    ends = [end for end in ENDS if end < n_iterations] + [n_iterations]
    assert every.best_iteration.tolist() == [end for end in ends for _ in range(3)]
    assert last.best_iteration.tolist() == [n_iterations] * 3
    assert_same_nets(every, find_nets(every, n_iterations), last, [0, 1, 2])
    trainer = make_trainer(make_data(), cycles)
    for _ in range(n_iterations):
        trainer.advance()
        trainer.look()
    for kept, trained in zip(last.nets.parameters(), trainer.nets.parameters(), strict=True):
        assert torch.equal(kept, trained)
    assert torch.equal(last.penalty, trainer.output.log_penalty.exp())


def test_a_net_that_diverges_is_in_earlier_snapshots(make_data, cycles, fit, make_trainer, finish):
    def break_net(trainer):
        trainer.nets.weights[1][1] = torch.nan

    whole = fit(make_data(), cycles)
    result = finish(make_trainer(make_data(), cycles), {5: break_net})
    assert result.kept == [0, 1, 2, 0, 1, 2, 0, 2, 0, 2]
    assert result.best_iteration.tolist() == [1, 1, 1, 3, 3, 3, 7, 7, 15, 15]
    assert result.diverged.tolist() == [net == 1 for net in result.kept]
    for entry, net in enumerate(result.kept):
        end = 5 if net == 1 else 16
        ours, theirs = result.history.loss[:end, entry], whole.history.loss[:end, net]
        torch.testing.assert_close(ours, theirs, **NEAR)
    for end in ENDS[2:]:
        ours, theirs = find_nets(result, end), find_nets(whole, end)
        torch.testing.assert_close(result.head[ours], whole.head[theirs][[0, 2]], **NEAR)


@pytest.mark.parametrize("own_tables", [False, True])
@pytest.mark.parametrize("size", [1, 2])
def test_groups_give_the_same_snapshots(size, own_tables, make_job, cycles, train, limit_group):
    job = make_job(cycles, own_tables=own_tables)
    (together,) = train(job)
    limit_group(job, size)
    (grouped,) = train(job)
    both = (zip(r.kept, r.best_iteration.tolist(), strict=True) for r in (grouped, together))
    ours, theirs = ({key: entry for entry, key in enumerate(keys)} for keys in both)
    assert ours.keys() == theirs.keys()
    order = [theirs[key] for key in ours]
    mine, expected = grouped.validation_output, together.validation_output[order]
    torch.testing.assert_close(mine, expected, rtol=1e-3, atol=1e-4)


def test_an_iteration_replayed_after_the_last_step_moves_nothing(make_data, cycles, make_trainer):
    # A recorded iteration does not know that it is the last one, and steps all the same.
    trainer = make_trainer(make_data(), cycles)
    for _ in range(15):
        trainer.advance()
        trainer.look()
    before = trainer.nets.map(torch.clone)
    trainer.slot.zero_()
    trainer._iterate()
    for mine, theirs in zip(trainer.nets.parameters(), before.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("place", ["weight", "bias", "scale", "penalty", "alive"])
def test_only_finite_nets_in_training_are_kept(place, make_data, cycles, make_trainer, finish):
    def break_net(trainer):
        nets, broken = trainer.nets, {"penalty": trainer.output.log_penalty}
        broken |= {"weight": nets.weights[1], "bias": nets.biases[0], "scale": nets.scale}
        broken["alive"] = trainer.status.alive
        broken[place][2] = False if place == "alive" else torch.nan

    result = finish(make_trainer(make_data(), cycles), {7: break_net})
    assert [result.kept[entry] for entry in find_nets(result, 7)] == [0, 1]
    assert [result.kept[entry] for entry in find_nets(result, 3)] == [0, 1, 2]


def test_snapshots_of_trained_output_weights_are_those_of_the_iteration(
    make_data, cycles, fit, make_clock
):
    config = replace(cycles, head="linear")
    whole, cut = fit(make_data(), config), fit(make_data(), config, deadline=make_clock(7))
    nets = find_nets(whole, 7)
    assert whole.best_iteration.tolist() == [end for end in ENDS for _ in range(3)]
    for name in ("head", "held_out_head", "validation_output"):
        assert torch.equal(getattr(whole, name)[nets], getattr(cut, name)[find_nets(cut, 7)])
    assert torch.equal(whole.head, whole.held_out_head)
    assert not torch.equal(whole.head[nets], whole.head[find_nets(whole, 15)])
