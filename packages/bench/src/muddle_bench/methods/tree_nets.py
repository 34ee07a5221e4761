"""Nets in the shape of trees and formulas: NODE, Net-DNF and TabNN, as modules for `nets`.

Each is built from the rows to train on. Shapes: N rows, D features, C outputs (classes, or 1).
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from muddle_bench.methods.nets import draw_validation

ROWS_OF_START = 1000  # that choose where NODE's trees split at first


class NODE(nn.Module):
    """One layer of oblivious trees, whose mean is the output (Popov, Morozov, Babenko 2020).

    All splits of a level of an oblivious tree are the same: a mix of features that entmax makes
    sparse, a threshold and a scale. Its 2**depth leaves hold outputs.
    """

    def __init__(
        self, inputs: Tensor, targets: Tensor, n_outputs: int, *, n_trees: int = 256, depth: int = 6
    ) -> None:
        super().__init__()
        self.scores = NormalScores(inputs)
        n_features = inputs.shape[1]
        self.choices = nn.Parameter(torch.rand(n_features, n_trees * depth))
        self.answers = nn.Parameter(torch.randn(n_trees, n_outputs, 2**depth))
        rows = torch.randperm(len(inputs))[:ROWS_OF_START].to(inputs.device)
        values = self.scores(inputs[rows]).cpu() @ entmax15(self.choices.detach())
        # A value of a random row is a quantile whose level is uniform, as the authors draw it.
        drawn = torch.randint(len(rows), (1, n_trees * depth))
        thresholds = values.gather(0, drawn)[0]
        # All rows start where the split is not yet 0 or 1.
        scales = (values - thresholds).abs().amax(dim=0) + 1e-6
        self.thresholds = nn.Parameter(thresholds)
        self.log_scales = nn.Parameter(scales.log())
        self.depth = depth

    def forward(self, inputs: Tensor) -> Tensor:
        values = self.scores(inputs) @ entmax15(self.choices)
        right = entmoid15((values - self.thresholds) * (-self.log_scales).exp())
        shares = right.reshape(len(inputs), -1, self.depth)
        return mix_leaves(shares, self.answers).mean(dim=1)


def mix_leaves(right: Tensor, answers: Tensor) -> Tensor:
    """The leaves' mean by the shares in which a row reaches them.

    right (N, T, L): share that goes right at each level; answers (T, C, 2**L), in which the first
    level chooses the half -> (N, T, C)
    """
    mixed = answers.permute(2, 1, 0)[..., None]
    for level in right.permute(2, 1, 0).contiguous():  # (T, N): rows last, which is fastest
        low, high = mixed.chunk(2)
        mixed = low + level * (high - low)
    return mixed[0].permute(2, 1, 0)


def entmax15(logits: Tensor) -> Tensor:
    """Sparse softmax of the columns: (max(logits / 2 - t, 0))**2, with t such that they sum to 1.

    Peters, Niculae, Martins (2019): t in closed form for each number of terms above it.
    """
    result: Tensor = _Entmax15.apply(logits)  # type: ignore[no-untyped-call]
    return result


class _Entmax15(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        halves = logits / 2
        halves = halves - halves.amax(dim=0)
        ordered = halves.sort(dim=0, descending=True).values
        count = torch.arange(1, len(ordered) + 1).to(logits)[:, None]
        # Of the k largest terms: sum (x - t)**2 = 1 is solved by their mean and variance.
        mean = ordered.cumsum(dim=0) / count
        variance = ordered.square().cumsum(dim=0) / count - mean.square()
        cuts = mean - (1 / count - variance).clamp(min=0).sqrt()
        n_kept = (cuts <= ordered).sum(dim=0, keepdim=True)
        shares = (halves - cuts.gather(0, n_kept - 1)).clamp(min=0).square()
        ctx.save_for_backward(shares)
        return shares

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> Tensor:
        (shares,) = ctx.saved_tensors
        roots = shares.sqrt()
        mean = (slopes * roots).sum(dim=0) / roots.sum(dim=0)
        result: Tensor = roots * (slopes - mean)
        return result


def entmoid15(logits: Tensor) -> Tensor:
    """First share of entmax15 of (logit, 0): 0 up to -2, 1 from 2 on."""
    half = (logits / 2).clamp(-1, 1)
    return (1 + half * (2 - half.square()).sqrt()) / 2


class NormalScores(nn.Module):
    """Each feature mapped to a normal distribution by the quantiles of the training rows.

    As the authors do, a little noise parts equal values before quantiles are taken.
    """

    NOISE = 1e-3
    MOST_KNOTS = 1000

    def __init__(self, inputs: Tensor) -> None:
        super().__init__()
        spread = inputs.std(dim=0, correction=0).clamp(min=self.NOISE)
        drawn = torch.randn(inputs.shape).to(inputs.device)
        ordered = (inputs + self.NOISE / spread * drawn).sort(dim=0).values
        n_knots = min(len(inputs), self.MOST_KNOTS)
        places = torch.linspace(0, len(inputs) - 1, n_knots).round().long()
        self.knots: Tensor
        self.register_buffer("knots", ordered[places.to(inputs.device)].T.contiguous())

    def forward(self, inputs: Tensor) -> Tensor:
        values, n_knots = inputs.T.contiguous(), self.knots.shape[1]
        above = torch.searchsorted(self.knots, values).clamp(1, n_knots - 1)
        low, high = self.knots.gather(1, above - 1), self.knots.gather(1, above)
        part = ((values - low) / (high - low).clamp(min=1e-12)).clamp(0, 1)
        # The least of n numbers is at half a rank and not at 0, whose score is infinite.
        ranks = (above - 1 + part + 0.5) / n_knots
        return (math.sqrt(2) * torch.erfinv(2 * ranks - 1)).T


class NetDNF(nn.Module):
    """A layer of soft formulas in disjunctive normal form (Katzir, Elidan, El-Yaniv 2021).

    A formula is an OR of conjunctions, each an AND of 2, 4 or 6 literals: thresholds of linear
    terms in the formula's features. Those are drawn, and then chosen by a learned mask.
    Formulas are weighted by how near a row is to their centre.
    """

    CONJUNCTIONS = (2, 3, 4, 5)  # of each size; formulas take turns
    SIZES = (2, 4, 6)
    SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of features drawn; the same for four formulas in a row

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        n_outputs: int,
        *,
        n_formulas: int = 64,
        mask_size: float = 1.0,  # elastic net pulls the mask to it; a feature is chosen above 1
    ) -> None:
        super().__init__()
        n_features, order = inputs.shape[1], torch.arange(n_formulas)
        counts = torch.tensor(self.CONJUNCTIONS)[order % len(self.CONJUNCTIONS)]
        shares = torch.tensor(self.SHARES)[order // len(self.CONJUNCTIONS) % len(self.SHARES)]
        drawn = torch.rand(n_features, n_formulas) < shares
        # PAPER: empty sets of features are drawn again; here they get one feature.
        drawn[torch.randint(n_features, (n_formulas,)), order] |= ~drawn.any(dim=0)
        owner = order.repeat_interleave(counts)  # formula of each conjunction, for each size
        n_literals = len(owner) * sum(self.SIZES)
        self.mask_size = mask_size
        self.drawn: Tensor
        self.members: Tensor
        self.register_buffer("drawn", drawn.float())
        self.register_buffer("members", functional.one_hot(owner, n_formulas).float())
        self.weights = nn.Parameter(nn.init.xavier_uniform_(torch.empty(n_features, n_literals)))
        self.biases = nn.Parameter(torch.zeros(n_literals))
        self.mask = nn.Parameter(torch.full((n_features, n_formulas), 1.5))
        self.balance = nn.Parameter(torch.zeros(()))
        self.centres = nn.Parameter(torch.randn(n_features, n_formulas))
        self.widths = nn.Parameter(torch.randn(n_features, n_formulas))
        self.temperature = nn.Parameter(torch.tensor(2.0))
        self.output = nn.Linear(n_formulas, n_outputs)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        # Repeated by a product, not by places, whose slopes a GPU sums in any order.
        chosen = (self.drawn * binarise(self.mask)) @ self.members.T
        parts = [chosen[..., None].expand(-1, -1, size).flatten(1) for size in self.SIZES]
        chosen = torch.cat(parts, dim=1)
        literals = (inputs @ (self.weights * chosen) + self.biases).tanh()
        lengths = [len(self.members) * size for size in self.SIZES]
        conjunctions = [
            soft_and(part.reshape(len(inputs), -1, size).sum(dim=2), size)
            for part, size in zip(torch.split(literals, lengths, dim=1), self.SIZES, strict=True)
        ]
        total = torch.stack(conjunctions).sum(dim=0) @ self.members
        formulas = soft_or(total, len(self.SIZES) * self.members.sum(dim=0))
        outputs: Tensor = self.output(formulas * self._near(inputs))
        return outputs

    def _near(self, inputs: Tensor) -> Tensor:
        """Weights of the formulas, with sums of 1: (N, D) -> (N, n_formulas)"""
        squares = self.widths.square()
        cross = inputs @ (squares * self.centres)
        apart = inputs.square() @ squares - 2 * cross + (squares * self.centres.square()).sum(dim=0)
        near = (-apart.clamp(min=1e-6).sqrt()).exp()
        return (self.temperature.sigmoid() * near).softmax(dim=1)

    def penalty(self) -> Tensor:
        """How far the masks of the drawn features are from `mask_size`, as the authors add it."""
        size, count = self.mask.abs() * self.drawn, self.drawn.sum(dim=0)
        squares = (size.square().sum(dim=0) / count - self.mask_size).abs()
        sums = (size.sum(dim=0) / count - self.mask_size).abs()
        share = self.balance.sigmoid()
        return (squares * (1 - share) / 2 + sums * share).mean()


def soft_and(total: Tensor, count: Tensor | int) -> Tensor:
    """Of that many literals with that sum: near 1 if all are 1, near -1 if one is -1."""
    return (total - count + 1.5).tanh()


def soft_or(total: Tensor, count: Tensor | int) -> Tensor:
    """Of that many literals with that sum: near 1 if one is 1, near -1 if all are -1."""
    return (total + count - 1.5).tanh()


def binarise(mask: Tensor) -> Tensor:
    """1 where the size is above 1, else 0; slopes are those of a tanh."""
    soft = (mask.abs() - 1).tanh()
    return ((mask.abs() > 1).float() * 2 - 1 - soft).detach() / 2 + (soft + 1) / 2


class TabNN(nn.Module):
    """Groups of features found by boosted trees, each with an encoder that starts as its trees
    (Ke, Zhang, Xu, Bian, Liu 2019).

    Trees are put together if they split on the same features. The features of such a group are
    encoded in stages, the least important half first, so that the others pass fewer layers; how a
    feature is embedded is shared by all groups. Before training, each encoder learns what the
    trees of its group answer, and the output starts as their sum.
    """

    STAGES = 3
    LEAF_PARTS = 8  # principal components of the answers of a group's trees
    START_STEPS = 200
    START_RATE = 1e-2
    START_ROWS = 1024  # of a step

    def __init__(
        self,
        inputs: Tensor,
        targets: Tensor,
        n_outputs: int,
        *,
        n_groups: int = 10,
        width: int = 32,  # of a group's encoder
        embedding: int = 4,  # of a feature
        n_trees: int = 100,
        n_leaves: int = 8,
    ) -> None:
        super().__init__()
        X, y = inputs.cpu().numpy(), targets.cpu().numpy()
        seed = int(torch.randint(2**31 - 1, ()))
        gains, answers = boost_trees(X, y, n_outputs, n_trees, n_leaves, seed)
        groups = group_trees(gains, n_groups)
        importances = np.stack([gains[groups == group].sum(axis=0) for group in np.unique(groups)])
        n_features, n_groups = X.shape[1], len(importances)
        stages = torch.from_numpy(stage_features(importances, self.STAGES)).float()
        self.stages: Tensor
        # (S, D, E, K, H) with ones for E and H
        self.register_buffer("stages", stages.permute(0, 2, 1)[:, :, None, :, None].contiguous())
        self.slopes = nn.Parameter(torch.randn(n_features, embedding))
        self.shifts = nn.Parameter(torch.rand(n_features, embedding) * 2 - 1)
        n_used = max(1.0, float(stages.sum(dim=2).mean()))
        weights = torch.randn(self.STAGES, n_features, embedding, n_groups, width)
        self.weights = nn.Parameter(weights / math.sqrt(n_used * embedding))
        links = torch.randn(self.STAGES - 1, n_groups, width, width)
        self.links = nn.Parameter(links / math.sqrt(width))
        self.biases = nn.Parameter(torch.zeros(self.STAGES, n_groups, width))
        self.output = nn.Linear(n_groups * width, n_outputs)
        self.to(inputs.device)
        self._start(inputs, *leaf_targets(answers, groups, n_outputs, self.LEAF_PARTS))

    def encode(self, inputs: Tensor) -> Tensor:
        """(N, D) -> (N, K, H)"""
        embedded = (inputs[..., None] * self.slopes + self.shifts).relu().flatten(1)
        weights = (self.weights * self.stages).flatten(3).flatten(1, 2)  # (S, D * E, K * H)
        hidden: Tensor | None = None
        for stage, bias in enumerate(self.biases):
            taken = (embedded @ weights[stage]).reshape(-1, *bias.shape) + bias
            if hidden is not None:
                taken = taken + torch.einsum("nkh,khj->nkj", hidden, self.links[stage - 1])
            hidden = taken.relu()
        assert hidden is not None
        return hidden

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.output(self.encode(inputs).flatten(1))
        return outputs

    def _start(self, inputs: Tensor, parts: Tensor, sums: Tensor, mean: Tensor) -> None:
        """Teach the encoders their trees: parts (N, K, P), sums (N, K, C), mean (C,)"""
        known = torch.cat([sums, parts], dim=2).to(inputs)
        n_outputs, (_, n_groups, width) = sums.shape[2], self.biases.shape
        scale = known.std(dim=0, correction=0)
        # The constant answers of a group without splits are in the mean.
        scale = torch.where(scale > 1e-6, scale, 1.0)
        known = known / scale
        reader = nn.Parameter(
            torch.randn(n_groups, width, known.shape[2]).to(inputs) / math.sqrt(width)
        )
        shift = nn.Parameter(torch.zeros(n_groups, known.shape[2]).to(inputs))
        encoder = [one for name, one in self.named_parameters() if not name.startswith("output")]
        optimizer = torch.optim.Adam([*encoder, reader, shift], lr=self.START_RATE)
        for _ in range(self.START_STEPS):
            rows = torch.randperm(len(inputs))[: self.START_ROWS].to(inputs.device)
            optimizer.zero_grad()
            read = torch.einsum("nkh,khp->nkp", self.encode(inputs[rows]), reader) + shift
            torch.autograd.backward((read - known[rows]).square().mean())
            optimizer.step()
        with torch.no_grad():
            weight = (reader * scale[:, None])[..., :n_outputs]  # (K, H, C)
            self.output.weight.copy_(weight.flatten(0, 1).T)
            self.output.bias.copy_((shift * scale)[:, :n_outputs].sum(dim=0) + mean.to(inputs))


def boost_trees(
    X: NDArray[Any], y: NDArray[Any], n_outputs: int, n_trees: int, n_leaves: int, seed: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """LightGBM's trees: gain of each by feature (T, D), and their answers to the rows (N, T).

    As many as a fifth of the rows found best. Of several classes, tree t is one of class t % C.
    """
    import lightgbm

    n_rows, n_features = X.shape
    options: dict[str, Any] = {
        "objective": "regression" if y.dtype.kind == "f" else "binary",
        "num_leaves": n_leaves,
        "min_data_in_leaf": max(2, min(20, n_rows // 20)),
        "seed": seed,
        "num_threads": 1,
        "verbose": -1,
        "deterministic": True,
        "force_col_wise": True,
    }
    if options["objective"] == "binary" and n_outputs > 2:
        options |= {"objective": "multiclass", "num_class": n_outputs}
    kept = draw_validation(y, seed)
    data = lightgbm.Dataset(X[~kept], y[~kept], params=options)
    watch = [data.create_valid(X[kept], y[kept])]
    stop: list[Any] = [lightgbm.early_stopping(10, verbose=False)]
    model = lightgbm.train(options, data, n_trees, valid_sets=watch, callbacks=stop)
    leaves = np.asarray(model.predict(X, pred_leaf=True)).reshape(n_rows, -1)
    answers = np.empty(leaves.shape)
    gains = np.zeros((leaves.shape[1], n_features))
    for tree, described in enumerate(model.dump_model(model.best_iteration)["tree_info"]):
        values: dict[int, float] = {}
        nodes = [described["tree_structure"]]
        while nodes:
            node = nodes.pop()
            if "split_feature" in node:
                gains[tree, node["split_feature"]] += node["split_gain"]
                nodes += [node["left_child"], node["right_child"]]
            else:
                values[node.get("leaf_index", 0)] = node["leaf_value"]
        answers[:, tree] = [values[leaf] for leaf in leaves[:, tree]]
    return gains, answers


def group_trees(gains: NDArray[Any], n_groups: int) -> NDArray[Any]:
    """Group of each tree, 0 to n_groups - 1 at most: those that split on the same features.

    Sets of features are as near as their intersection is large beside their union; groups are
    joined by mean distance until `n_groups` are left. Trees without splits are in group 0.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import pdist

    used = gains > 0
    split = np.flatnonzero(used.any(axis=1))
    groups = np.zeros(len(gains), dtype=np.int64)
    if len(split) > 1:
        tree = linkage(pdist(used[split], "jaccard"), "average")
        n_groups = min(n_groups, len(np.unique(used[split], axis=0)))
        groups[split] = fcluster(tree, n_groups, "maxclust") - 1
    return groups


def stage_features(importances: NDArray[Any], n_stages: int) -> NDArray[np.bool_]:
    """Which features enter at which stage: (K, D) -> (n_stages, K, D).

    Of a group's features the less important half at the first, half of the others at the next,
    the most important at the last. A group without any gets all.
    """
    stages = np.zeros((n_stages, *importances.shape), dtype=bool)
    for group, gains in enumerate(importances):
        left = np.argsort(gains, kind="stable")
        left = left[gains[left] > 0] if gains.any() else left
        for stage in range(n_stages):
            n_now = len(left) if stage == n_stages - 1 else len(left) // 2
            stages[stage, group, left[:n_now]] = True
            left = left[n_now:]
    return stages


def leaf_targets(
    answers: NDArray[Any], groups: NDArray[Any], n_outputs: int, n_parts: int
) -> tuple[Tensor, Tensor, Tensor]:
    """What the encoders learn first: components of the trees' answers (N, K, P), their sums by
    output (N, K, C) without the mean, and that mean of all (C,)."""
    n_rows = len(answers)
    names = np.unique(groups)
    parts = np.zeros((n_rows, len(names), n_parts))
    sums = np.zeros((n_rows, len(names), n_outputs))
    output = np.arange(answers.shape[1]) % (n_outputs if n_outputs > 2 else 1)
    for place, group in enumerate(names):
        its = answers[:, groups == group]
        left, sizes, _ = np.linalg.svd(its - its.mean(axis=0), full_matrices=False)
        n_kept = min(n_parts, len(sizes))
        parts[:, place, :n_kept] = (left * sizes)[:, :n_kept]
        np.add.at(sums[:, place].T, output[groups == group], its.T)
    if n_outputs == 2:  # the trees answer the difference of the two
        sums = sums[..., :1] * np.array([-0.5, 0.5])
    mean = sums.mean(axis=0)
    found = (torch.from_numpy(one).float() for one in (parts, sums - mean, mean.sum(axis=0)))
    first, second, third = found
    return first, second, third
