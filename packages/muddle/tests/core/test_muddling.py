import torch
from muddle.core.muddling import draw_noise, stack_permuted


def test_labels_come_first_and_the_rest_are_permutations_of_whole_rows(generators):
    labels = torch.arange(24.0).reshape(2, 6, 2)
    stack = stack_permuted(labels, 5, generators(0, 1))
    assert stack.shape == (2, 6, 6, 2)
    assert torch.equal(stack[:, :, 0], labels)
    for net in range(2):
        rows = {tuple(row) for row in labels[net].tolist()}
        for t in range(1, 6):
            assert {tuple(row) for row in stack[net, :, t].tolist()} == rows
    assert not torch.equal(stack[:, :, 1], stack[:, :, 2])
    assert torch.equal(stack_permuted(labels, 0, generators(0, 1)), labels[:, :, None])


def test_each_net_draws_from_its_own_generator(generators):
    labels = torch.arange(12.0).reshape(2, 6, 1)
    together = stack_permuted(labels, 3, generators(0, 1))
    alone = stack_permuted(labels[1:], 3, generators(1))
    assert torch.equal(together[1:], alone)


def test_noise_has_the_given_scale_and_scale_0_draws_nothing(generators):
    source = generators(0, 1)
    noise = draw_noise(0.5, (4000, 2), source)
    assert noise.shape == (2, 4000, 2)
    assert abs(float(noise.std()) - 0.5) < 0.02
    before = [generator.get_state() for generator in source]
    assert draw_noise(0.0, (4000, 2), source) is None
    for state, generator in zip(before, source, strict=True):
        assert torch.equal(state, generator.get_state())
