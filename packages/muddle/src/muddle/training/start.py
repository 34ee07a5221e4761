"""Where training starts: the loss, the weights, and the first penalty of each net.

Shapes: K nets, B rows of a batch, H hidden units, C label columns.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from muddle.core.loss import MuddledLoss, combine, make_loss
from muddle.core.muddling import draw_noise
from muddle.core.network import StackedMLP, draw_nets, draw_weights
from muddle.core.penalty import first_penalty
from muddle.training.config import TrainConfig
from muddle.training.data import Batch


def choose_loss(config: TrainConfig) -> MuddledLoss:
    """The training loss of a configuration."""
    if config.head == "linear" and config.task == "classification":
        # The residual is output minus labels, so logits must be Y* + residual. The paper's have Y*
        # twice, which would show the labels.
        return make_loss(config.task, "mean_square", structured_noise=False)
    _, structured = config.noise_scales
    return make_loss(config.task, config.loss, structured_noise=structured > 0)


def start_nets(
    n_features: int,
    config: TrainConfig,
    generators: Sequence[torch.Generator],
    device: torch.device | None = None,
) -> StackedMLP:
    """Untrained nets, one per generator."""
    return draw_nets(
        n_features,
        depth=config.depth,
        width=config.width,
        activation=config.activation,
        gain=config.init_gain,
        generators=generators,
        scaled=config.scale_rate > 0,
        device=device,
    )


def start_head(
    n_labels: int,
    config: TrainConfig,
    generators: Sequence[torch.Generator],
    device: torch.device | None = None,
) -> Tensor | None:
    """Untrained output weights, one net per generator; None if a ridge solves them. (K, H, C)"""
    if config.head != "linear":
        return None
    # PAPER: its bound of the last layer prints the features where the hidden units must be meant.
    return draw_weights(config.width, n_labels, config.init_gain, generators, device)


@torch.no_grad()
def first_log_penalty(
    nets: StackedMLP,
    batch: Batch,
    baseline: Tensor,  # (K, C)
    config: TrainConfig,
    generators: Sequence[torch.Generator],
) -> Tensor:
    """Log of the given penalty, or of the one found on the first batch by the loss. -> (K,)"""
    if not isinstance(config.penalty, str):
        return baseline.new_full((nets.n_nets,), math.log(config.penalty))
    # PAPER: the grid is printed with the whole loss, but the parameter study says that structured
    # noise does not change the choice. That holds only if it is left out, as in the released code:
    # with it the paper's loss starts three decades too low on noisy data (decisions/0006).
    loss = make_loss(config.task, config.loss, structured_noise=False)
    dither = draw_noise(config.dither, tuple(batch.stack.shape[1:]), generators)
    stack = batch.stack if dither is None else batch.stack + dither
    hidden, columns = nets.hidden(batch.features), loss.mix(stack, None).flatten(2)
    root = batch.root_weights
    if root is not None:
        hidden, columns = hidden * root, columns * root

    def compute_loss(residual: Tensor) -> Tensor:
        residual = residual if root is None else residual / root
        errors = loss.errors(residual.reshape(batch.stack.shape), stack, batch.weights)
        return combine(errors, baseline).total

    return first_penalty(hidden, columns, compute_loss, config.penalty).log()
