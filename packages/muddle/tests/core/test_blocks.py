"""Layers with blocks: formulas, gradients, and what they do in training alone."""

from dataclasses import replace

import pytest
import torch

from muddle.core.backprop import AutogradPass, Pass
from muddle.core.network import ACTIVATIONS, NORM_EPSILON, Blocks, StackedMLP, draw_nets

LEVELS = (3, 2)  # features of two columns of levels, after two numbers
BLOCKS = {
    "batch": Blocks(normalization="batch"),
    "layer": Blocks(normalization="layer"),
    "dropout": Blocks(dropout=0.4),
    "residual": Blocks(residual=True),
    "gated": Blocks(gated=True),
    "embedding": Blocks(embedding=2),
    "together": Blocks(normalization="batch", residual=True, gated=True, embedding=4),
    "others together": Blocks(normalization="layer", residual=True, dropout=0.2, embedding=1),
}


@pytest.fixture
def make(generators, draw):
    """Nets of seven features in float64 that have left their start."""

    def make_nets(blocks, depth=3, activation="tanh", seeds=(0, 1), moved=True, scaled=False):
        nets = draw_nets(
            7,
            depth=depth,
            width=6,
            activation=activation,
            gain=1.0,
            generators=generators(*seeds),
            scaled=scaled,
            blocks=blocks,
            level_widths=LEVELS,
        ).map(torch.Tensor.double)
        for number, tensor in enumerate(nets.tensors() if moved else ()):
            noise = torch.stack([draw(*tensor.shape[1:], seed=9 * s + number) for s in seeds])
            tensor.add_(0.3 * noise.double().abs() if tensor.shape[1:] == (1, 6) else 0.3 * noise)
        return nets

    return make_nets


def compute_by_hand(nets, net, rows):
    """Last hidden layer of one net, in prediction."""
    one = nets.keep([net])
    extras = {name: [tensor[0] for tensor in own] for name, own in one.extras.items()}
    blocks = one.blocks
    layer = rows if one.scale is None else rows * one.scale[0].T
    entering = layer
    if "embeddings" in extras:
        table, parts, first, unit = extras["embeddings"][0], [layer[:, :2]], 0, 0
        for width in LEVELS:
            n_units = min(width, blocks.embedding)
            own = table[first : first + width, unit : unit + n_units]
            parts.append(layer[:, 2 + first : 2 + first + width] @ own)
            first, unit = first + width, unit + n_units
        entering = torch.cat(parts, dim=1)
    layer = rows
    for index, (weight, bias) in enumerate(zip(one.weights, one.biases, strict=True)):
        found = entering @ weight[0] + bias[0]
        if blocks.normalization == "layer":
            mean = found.mean(1, keepdim=True)
            variance = found.var(1, keepdim=True, correction=0)
        if blocks.normalization == "batch":
            mean, variance = extras["means"][index], extras["variances"][index]
        if blocks.normalization != "none":
            found = (found - mean) / (variance + NORM_EPSILON).sqrt()
            found = found * extras["gains"][index] + extras["shifts"][index]
        found = ACTIVATIONS[one.activation](found)
        if blocks.gated:
            gate = layer @ extras["gates"][index] + extras["gate_biases"][index]
            found = found / (1 + torch.exp(-gate))
        if blocks.residual and index > 0:
            found = layer + extras["factors"][index - 1] * found
        layer = entering = found
    return layer


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", BLOCKS)
def test_layers_are_their_formula_and_the_same_after_folding(name, scaled, make, draw):
    nets = make(BLOCKS[name], scaled=scaled)
    rows = draw(5, 7).double()
    hidden = nets.hidden(rows)
    for net in range(2):
        if scaled and nets.blocks.gated:  # gates see the features as they are
            continue
        torch.testing.assert_close(hidden[net], compute_by_hand(nets, net, rows))
    folded = nets.folded()
    torch.testing.assert_close(folded.hidden(rows), hidden)
    assert not {"means", "variances", "counts", "embeddings"} & set(folded.extras)
    # A row does not depend on those beside it.
    torch.testing.assert_close(nets.hidden(rows[2:3])[:, 0], hidden[:, 2])


@pytest.mark.parametrize("name", BLOCKS)
def test_gradients_equal_finite_differences(name, make, draw, generators):
    blocks = replace(BLOCKS[name], dropout=0.0)
    nets = make(blocks, scaled=True)
    features, gradient = draw(2, 9, 7).double(), draw(2, 9, 6, seed=1).double()

    def measure():
        fresh = AutogradPass(nets, 9, dropout=generators(0, 1))
        return float((fresh.forward(nets, features) * gradient).sum())

    one = AutogradPass(nets, 9, dropout=generators(0, 1))
    one.forward(nets, features)
    one.hidden_gradient.copy_(gradient)
    one.backward(nets, features)
    for number, (parameter, found) in enumerate(zip(nets.parameters(), one.gradients, strict=True)):
        way, step = draw(*parameter.shape, seed=number + 50).double(), 1e-6
        parameter.add_(step * way)
        above = measure()
        parameter.sub_(2 * step * way)
        below = measure()
        parameter.add_(step * way)
        slope = (above - below) / (2 * step)
        assert float((found * way).sum()) == pytest.approx(slope, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_the_fused_way_and_autograd_agree_where_both_serve(activation, make, draw, generators):
    nets = make(Blocks(), activation=activation, scaled=True)
    features, gradient = draw(2, 9, 7).double(), draw(2, 9, 6, seed=1).double()
    passes = (
        Pass(nets, 9, "float32", backward=True),
        AutogradPass(nets, 9, dropout=generators(0, 1)),
    )
    hidden = [one.forward(nets, features).clone() for one in passes]
    torch.testing.assert_close(*hidden)
    for one in passes:
        one.hidden_gradient.copy_(gradient)
        one.backward(nets, features)
    for fused, other in zip(*(one.gradients for one in passes), strict=True):
        torch.testing.assert_close(fused, other)


def test_dropout_leaves_units_out_in_training_alone(make, draw, generators):
    nets = make(Blocks(dropout=0.4), depth=1)
    plain = replace(nets, blocks=Blocks())
    rows = draw(2000, 7).double()
    assert torch.equal(nets.hidden(rows), plain.hidden(rows))
    thinned, whole = nets.hidden(rows, generators(5, 6)), plain.hidden(rows)
    kept = thinned != 0
    assert float(kept.double().mean()) == pytest.approx(0.6, abs=0.02)
    torch.testing.assert_close(thinned[kept], (whole / 0.6)[kept])
    assert not torch.equal(kept[0], kept[1])
    # The choice of a net does not depend on the nets beside it.
    assert torch.equal(nets.keep([1]).hidden(rows, generators(6))[0], thinned[1])


def test_residual_layers_add_nothing_at_the_start(make, draw):
    rows = draw(5, 7).double()
    nets = make(Blocks(residual=True, gated=True, normalization="layer"), moved=False)
    first = nets.blocks, {name: own[:1] for name, own in nets.extras.items() if name != "factors"}
    shallow = StackedMLP(nets.weights[:1], nets.biases[:1], "tanh", None, *first)
    torch.testing.assert_close(nets.hidden(rows), shallow.hidden(rows))
    nets.extras["factors"][1].add_(0.5)
    assert not torch.allclose(nets.hidden(rows), shallow.hidden(rows))


def test_statistics_are_a_moving_mean_of_batches(make, draw, generators):
    nets = make(Blocks(normalization="batch"), depth=1, moved=False)
    means, variances = nets.extras["means"][0], nets.extras["variances"][0]
    mean, variance = torch.zeros(2, 1, 6).double(), torch.ones(2, 1, 6).double()
    for batch in range(1, 15):
        rows = (1 + batch * draw(2, 8, 7, seed=batch)).double()
        hidden = nets.hidden(rows, generators(0, 1))
        product = torch.baddbmm(nets.biases[0], rows, nets.weights[0])
        share = max(1 / batch, 0.1)
        own = torch.var_mean(product, dim=1, keepdim=True, correction=0)
        variance += share * (own[0] - variance)
        mean += share * (own[1] - mean)
        torch.testing.assert_close(means, mean)
        torch.testing.assert_close(variances, variance)
        # In training the batch itself is normalised.
        scaled = (product - own[1]) / (own[0] + NORM_EPSILON).sqrt()
        torch.testing.assert_close(hidden, torch.tanh(scaled))
    nets.hidden(rows)
    torch.testing.assert_close(means, mean)  # predictions leave them alone


def test_embeddings_have_at_most_as_many_units_as_levels_and_mix_no_columns(make, draw):
    nets = make(Blocks(embedding=4), depth=1)
    assert nets.weights[0].shape == (2, 2 + 3 + 2, 6)
    assert nets.extras["embeddings"][0].shape == (2, 5, 5)
    before = nets.first_weight()
    nets.extras["embeddings"][0][:, 0] += 1.0  # the first level of the first column
    changed = (nets.first_weight() != before).any(dim=2)
    assert changed.tolist() == [[False, False, True, False, False, False, False]] * 2
    # A unit of the other column does not enter this level's weights.
    before = nets.first_weight()
    nets.weights[0][:, -1] += 1.0
    changed = (nets.first_weight() != before).any(dim=2)
    assert changed.tolist() == [[False] * 5 + [True] * 2] * 2


def test_without_levels_embeddings_are_plain_nets(generators):
    shared = {"depth": 2, "width": 6, "activation": "relu", "gain": 1.0}
    embedded = draw_nets(7, generators=generators(3), blocks=Blocks(embedding=4), **shared)
    plain = draw_nets(7, generators=generators(3), **shared)
    assert embedded.is_plain
    for ours, theirs in zip(embedded.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", ["together", "others together"])
def test_a_net_starts_the_same_alone_and_nets_can_be_joined(name, make):
    together = make(BLOCKS[name], seeds=(3, 4), moved=False)
    alone = [make(BLOCKS[name], seeds=(seed,), moved=False) for seed in (3, 4)]
    joined = StackedMLP.join(alone)
    assert joined.extras.keys() == together.extras.keys()
    for ours, theirs in zip(joined.tensors(), together.tensors(), strict=True):
        assert torch.equal(ours, theirs)
    kept = together.keep([1])
    for ours, theirs in zip(kept.tensors(), alone[1].tensors(), strict=True):
        assert torch.equal(ours, theirs)
