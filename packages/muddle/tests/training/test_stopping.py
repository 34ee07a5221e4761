import time

import pytest
import torch

from muddle.core.network import draw_nets
from muddle.errors import TimeLimitError
from muddle.training.stopping import BestNets, Candidate, Deadline


def make_nets(seed):
    generators = [torch.Generator().manual_seed(seed + net) for net in range(3)]
    return draw_nets(2, depth=1, width=4, activation="relu", gain=1.0, generators=generators)


def update(best, nets, scores, tie_breaks, iteration, places=(0, 1, 2)):
    n_nets = len(places)
    new = Candidate(
        nets,
        torch.full((n_nets,), float(iteration)),
        torch.full((n_nets, 4, 1), float(iteration)),
        torch.tensor(scores),
        torch.tensor(tie_breaks),
    )
    return best.update(new, torch.tensor(places), torch.tensor([iteration]))


def test_only_nets_that_improved_are_replaced():
    first, second = make_nets(0), make_nets(10)
    best = BestNets.start(first, 1)
    update(best, first, [0.5, 0.5, float("nan")], [0.0, 0.0, 0.0], 0)
    assert best.iteration.tolist() == [0, 0, -1]
    update(best, second, [0.4, 0.6, 0.1], [0.0, 0.0, 0.0], 1)
    assert best.iteration.tolist() == [0, 1, 1]
    assert best.penalty.tolist() == [0.0, 1.0, 1.0]
    assert torch.equal(best.nets.weights[0][0], first.weights[0][0])
    assert torch.equal(best.nets.weights[0][1], second.weights[0][1])


def test_equal_scores_are_decided_by_the_tie_break_then_by_age():
    best = BestNets.start(make_nets(0), 1)
    update(best, make_nets(0), [1.0, 1.0, 1.0], [-0.5, -0.5, -0.5], 0)
    update(best, make_nets(1), [1.0, 1.0, 1.0], [-0.4, -0.6, -0.5], 1)
    assert best.iteration.tolist() == [1, 0, 0]


def test_deadline():
    assert not Deadline(None).is_over()
    assert not Deadline(100.0).is_over()
    short = Deadline(1e-6)
    time.sleep(0.001)
    assert short.is_over()
    with pytest.raises(TimeLimitError, match="Raise time_limit, or lower width"):
        short.check_first_iteration()
