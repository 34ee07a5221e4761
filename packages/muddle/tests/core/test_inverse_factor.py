import pytest
import torch

from muddle.core.inverse_factor import inverse_factor, invert_lower


def draw_gram(n_nets, size):
    generator = torch.Generator().manual_seed(size)
    rows = torch.randn(n_nets, size, size + 3, generator=generator, dtype=torch.float64)
    return rows @ rows.mT + torch.eye(size)


# Around the size of a block (64), a padded one, and what is factored by halves (above 512).
@pytest.mark.parametrize("size", [1, 5, 64, 65, 130, 512, 513, 700])
def test_inverse_of_the_cholesky_factor(size):
    gram = draw_gram(2, size)
    inverse, failed = inverse_factor(gram)
    product = inverse @ torch.linalg.cholesky(gram)
    torch.testing.assert_close(product, torch.eye(size).double().expand(2, -1, -1))
    assert not failed.any()
    assert torch.equal(inverse, inverse.tril())


def test_only_the_lower_triangle_is_read():
    gram = draw_gram(1, 600)
    clean, _ = inverse_factor(gram)
    spoilt, _ = inverse_factor(gram.tril() + torch.full_like(gram, 7.0).triu(1))
    torch.testing.assert_close(clean, spoilt)


@pytest.mark.parametrize("size", [20, 600])
@pytest.mark.parametrize("bad", [-1.0, float("nan")])
def test_a_net_that_fails_is_named_and_spares_the_others(size, bad):
    gram = draw_gram(3, size)
    gram[1, size - 1, size - 1] = bad
    inverse, failed = inverse_factor(gram)
    assert failed.tolist() == [False, True, False]
    alone, _ = inverse_factor(gram[2:])
    torch.testing.assert_close(inverse[2:], alone)


def test_a_lower_triangle_is_inverted_whatever_its_size():
    for size in (1, 63, 64, 100, 128, 200):
        lower = torch.linalg.cholesky(draw_gram(2, size))
        torch.testing.assert_close(invert_lower(lower), torch.linalg.inv(lower))
