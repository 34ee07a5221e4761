import numpy as np
import pytest
import torch

from muddle.core.penalty import first_penalty, penalty_grid, residuals_on_grid, steepest_penalty
from muddle.core.ridge import apply_ridge, factor_with_recovery, gram_matrix


def test_grids_span_five_decades():
    for name, n_points in (("grid12", 12), ("grid11", 11)):
        assert penalty_grid(name).log10().tolist() == pytest.approx(np.linspace(-1, 4, n_points))


@pytest.mark.parametrize(("n_rows", "width"), [(20, 6), (6, 20)])
def test_residuals_on_the_grid_equal_a_solve_per_penalty(n_rows, width, draw):
    hidden, targets = draw(3, n_rows, width).double(), draw(3, n_rows, 5, seed=1).double()
    grid = penalty_grid("grid12")
    for penalty, residual in zip(grid, residuals_on_grid(hidden, targets, grid), strict=True):
        factor = factor_with_recovery(gram_matrix(hidden), penalty.expand(3))
        direct, _ = apply_ridge(hidden, targets, factor)
        torch.testing.assert_close(residual, direct, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("n_rows", "width"), [(20, 6), (6, 20)])
def test_the_share_of_the_grid_that_is_done_is_told(n_rows, width, draw):
    seen = []
    known = draw(3, n_rows, width), draw(3, n_rows, 5, seed=1), penalty_grid("grid12")
    assert len(list(residuals_on_grid(*known, look=seen.append))) == 12
    assert seen == sorted(set(seen))
    assert len(seen) == 1 + 3 + 12  # the start, the Gram matrix of each net, the points
    assert (seen[0], seen[-1]) == (0.0, 1.0)


def test_the_steepest_rise_is_chosen_per_net():
    losses = torch.zeros(2, 12)
    losses[0, 4:] = 1.0  # rises from point 3 to point 4
    losses[1, 9:] = 1.0
    losses[1, 2] = 0.5
    grid = penalty_grid("grid12")
    expected = torch.stack([(grid[3] * grid[4]).sqrt(), (grid[8] * grid[9]).sqrt()])
    torch.testing.assert_close(steepest_penalty(losses, "grid12"), expected)


def test_the_released_grid_gives_the_printed_values():
    losses = (torch.arange(11) >= torch.tensor([[7], [8]])).float()
    chosen = steepest_penalty(losses, "grid11").tolist()
    assert chosen == pytest.approx([215.443, 774.264], abs=1e-3)


def test_a_net_that_overflowed_does_not_stop_the_others():
    hidden = torch.rand(2, 5, 3, generator=torch.Generator().manual_seed(0))
    targets = torch.rand(2, 5, 2, generator=torch.Generator().manual_seed(1))

    def compute_loss(residual):
        return residual.square().mean((1, 2))

    alone = first_penalty(hidden[1:], targets[1:], compute_loss, "grid12")
    hidden[0] *= 1e30
    together = first_penalty(hidden, targets, compute_loss, "grid12")
    assert together.isfinite().all()
    assert together[1] == alone[0]


def test_a_gram_matrix_that_float32_cannot_factor_does_not_blow_up_the_residual():
    # One direction so large that float32 leaves eigenvalues of -50 and less where they should be 0;
    # M never makes a column longer, whatever the penalty.
    generator = torch.Generator().manual_seed(0)
    rows = torch.rand(1, 40, 1, generator=generator)
    hidden = 3e3 * rows * torch.rand(1, 1, 60, generator=generator)
    targets = torch.randn(1, 40, 3, generator=generator)
    for residual in residuals_on_grid(hidden, targets, penalty_grid("grid12")):
        assert float(residual.norm()) <= 1.05 * float(targets.norm())
