"""Nets of other papers on tables, as modules that `nets.py` trains; peers.toml has their settings.

Shapes: N rows, D features, C outputs (classes, or 1), T trees of F features with L leaves.
"""

import numpy as np
import torch
from torch import Tensor, nn


class SelfNormalizing(nn.Sequential):
    """SNN: scaled exponential linear units, LeCun's normal start, alpha dropout.

    G. Klambauer, T. Unterthiner, A. Mayr, S. Hochreiter: Self-Normalizing Neural Networks.
    NeurIPS 2017. Layers of equal width, the paper's "rectangular" form.
    """

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        n_outputs: int,
        *,
        depth: int,  # hidden layers
        width: int,
        dropout: float,
    ) -> None:
        layers: list[nn.Module] = []
        n_features = inputs.shape[1]
        for _ in range(depth):
            layers += [nn.Linear(n_features, width), nn.SELU(), nn.AlphaDropout(dropout)]
            n_features = width
        super().__init__(*layers, nn.Linear(n_features, n_outputs))
        for layer in self:
            if isinstance(layer, nn.Linear):
                # Variance 1 / inputs, for which activations keep mean 0 and variance 1.
                nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
                nn.init.zeros_(layer.bias)


class RegularizationLearning(nn.Sequential):
    """RLN: each weight has a coefficient of L1 regularisation of its own, which is learned.

    I. Shavitt, E. Segal: Regularization Learning Networks: Deep Learning for Tabular Datasets.
    NeurIPS 2018. After each step of the optimizer, the logarithm of a weight's coefficient follows
    the gradient of the counterfactual loss: of the loss after the step by the coefficient before
    (equation 5). Then all move so that their mean is `average` (equation 6).

    The widths of the hidden layers fall geometrically from that of the first to the outputs.
    """

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        n_outputs: int,
        *,
        depth: int,  # hidden layers
        width: int,  # of the first
        n_regularised: int,  # layers whose weights have coefficients, from the inputs on
        average: float,  # mean of the logarithms of the coefficients, the paper's θ
        rate: float,  # at which they learn, the paper's ν
    ) -> None:
        widths = np.geomspace(width, n_outputs, depth + 1)[:-1].round().astype(int).tolist()
        layers: list[nn.Module] = []
        n_features = inputs.shape[1]
        for n_units in widths:
            layers += [nn.Linear(n_features, n_units), nn.ReLU()]
            n_features = n_units
        super().__init__(*layers, nn.Linear(n_features, n_outputs))
        self.average, self.rate = average, rate
        linear = [layer for layer in self if isinstance(layer, nn.Linear)]
        for layer in linear:
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.linear = linear[:n_regularised]
        for place, layer in enumerate(self.linear):
            start = torch.full_like(layer.weight, average, requires_grad=False)
            self.register_buffer(f"coefficients_{place}", start)
            # Of the last step: what the penalty took from the weights, and what it left.
            self.register_buffer(f"penalty_{place}", torch.zeros_like(start))
            self.register_buffer(f"before_{place}", layer.weight.detach().clone())

    def _buffers_of(self, name: str) -> list[Tensor]:
        return [self.get_buffer(f"{name}_{place}") for place in range(len(self.linear))]

    @torch.no_grad()
    def after_step(self) -> None:
        coefficients, penalties = self._buffers_of("coefficients"), self._buffers_of("penalty")
        weights, before = [layer.weight for layer in self.linear], self._buffers_of("before")
        for one, weight, old, penalty in zip(coefficients, weights, before, penalties, strict=True):
            # The authors take the optimizer's step for minus its rate times the gradient, too.
            one -= self.rate * (weight - old) * penalty
        total = torch.stack([one.sum() for one in coefficients]).sum()
        shift = self.average - total / sum(one.numel() for one in coefficients)
        for one, weight, old, penalty in zip(coefficients, weights, before, penalties, strict=True):
            one += shift
            # No penalty takes a weight past 0. One that is 0 already has no limit, and no penalty.
            limit, zero = weight.abs().log(), weight == 0
            ends = one >= limit
            one.copy_(torch.where(zero, one, torch.minimum(one, limit)))
            penalty.copy_(torch.where(zero, 0.0, weight.sign() * one.exp()))
            weight.copy_(torch.where(ends, 0.0, weight - penalty))
            old.copy_(weight)


class NeuralDecisionTrees(nn.Module):
    """DNDT: soft bins of each feature, and a leaf for each combination of bins.

    Y. Yang, I. Garcia Morillo, T. Hospedales: Deep Neural Decision Trees. ICML workshop on human
    interpretability in machine learning, 2018. A table with more than `most_features` gets a forest
    of trees on random features, as in the paper.
    """

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        n_outputs: int,
        *,
        n_cuts: int,  # of each feature
        temperature: float,
        most_features: int,  # of a single tree
        n_trees: int,  # of a forest
        features_per_tree: int,
    ) -> None:
        super().__init__()
        n_rows, n_features = inputs.shape
        device = inputs.device
        subsets = torch.arange(n_features, device=device)[None]
        if n_features > most_features:
            ranks = torch.rand(n_trees, n_features, device=device).argsort(dim=1)
            subsets = ranks[:, :features_per_tree]
        rows = torch.randint(n_rows, (n_cuts, *subsets.shape), device=device)
        n_leaves = (n_cuts + 1) ** subsets.shape[1]
        self.cuts = nn.Parameter(inputs[rows, subsets].movedim(0, -1).contiguous())  # (T, F, cuts)
        self.leaves = nn.Parameter(torch.zeros(len(subsets), n_leaves, n_outputs, device=device))
        self.register_buffer("subsets", subsets)
        self.register_buffer("slopes", torch.arange(1.0, n_cuts + 2, device=device))
        self.temperature = temperature

    def forward(self, inputs: Tensor) -> Tensor:
        """(N, D) -> (T, N, C)"""
        subsets, slopes = self.get_buffer("subsets"), self.get_buffer("slopes")
        features = inputs.T[subsets]  # (T, F, N)
        offsets = nn.functional.pad(self.cuts.sort(dim=-1).values.cumsum(dim=-1), (1, 0))
        # Equations 1 and 2: (T, F, N, cuts + 1)
        logits = features[..., None] * slopes - offsets[:, :, None]
        bins = (logits / self.temperature).softmax(dim=-1)
        # Equation 3, the Kronecker product, as two: that of all features is never there.
        n_first = (bins.shape[1] + 1) // 2
        first, second = multiply_bins(bins[:, :n_first]), multiply_bins(bins[:, n_first:])
        n_trees, n_rows, n_second = second.shape
        values = first @ self.leaves.view(n_trees, first.shape[2], -1)
        return (values.view(n_trees, n_rows, n_second, -1) * second[..., None]).sum(dim=2)


def multiply_bins(bins: Tensor) -> Tensor:
    """Kronecker product over the features: (T, F, N, bins) -> (T, N, bins^F)"""
    shares = bins.new_ones(len(bins), bins.shape[2], 1)
    for one in bins.unbind(dim=1):
        shares = (shares[..., None] * one[:, :, None]).flatten(-2)
    return shares
