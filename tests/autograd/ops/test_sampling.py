"""Random numbers driven by tensors."""

import numpy as np
import pytest

import ddpflow
from ddpflow.errors import DtypeError, ShapeError, ValueRangeError


def test_bernoulli():
    """Ones with each element's probability, in its dtype; 0 and 1 are certain; gradients do not pass."""
    ddpflow.manual_seed(0)
    p = ddpflow.tensor([0.0, 0.3, 1.0], requires_grad=True).expand(20000, 3)
    drawn = ddpflow.bernoulli(p)
    assert drawn.dtype == ddpflow.float32 and not drawn.requires_grad
    means = drawn.mean(0).tolist()
    assert means[0] == 0 and means[2] == 1 and abs(means[1] - 0.3) < 0.02
    assert set(ddpflow.zeros(50).bernoulli(0.5).tolist()) == {0.0, 1.0}
    with pytest.raises(ValueRangeError):
        ddpflow.bernoulli(ddpflow.tensor([1.5]))
    with pytest.raises(DtypeError):
        ddpflow.bernoulli(ddpflow.tensor([1]))


def test_multinomial_frequencies():
    """With putting back, numbers come as often as their weights say; zero weights never."""
    ddpflow.manual_seed(0)
    weights = ddpflow.tensor([[1.0, 0.0, 3.0], [0.0, 2.0, 0.0]])
    drawn = weights.multinomial(20000, replacement=True)
    assert drawn.dtype == ddpflow.int64 and drawn.shape == (2, 20000)
    share = (drawn[0] == 2).float().mean().item()
    assert abs(share - 0.75) < 0.02 and 1 not in drawn[0].tolist() and set(drawn[1].tolist()) == {1}


def test_multinomial_without_putting_back():
    """Every index at most once; the first draw follows the weights."""
    ddpflow.manual_seed(0)
    weights = ddpflow.tensor([1.0, 2.0, 0.0, 5.0])
    firsts = np.zeros(4)
    for _ in range(2000):
        drawn = weights.multinomial(3).tolist()
        assert sorted(drawn) == [0, 1, 3]
        firsts[drawn[0]] += 1
    np.testing.assert_allclose(firsts / 2000, [0.125, 0.25, 0, 0.625], atol=0.04)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ddpflow.ones(2, 2, 2).multinomial(1),
        lambda: ddpflow.ones(3).multinomial(4),
        lambda: ddpflow.tensor([1.0, 0.0]).multinomial(2),
        lambda: ddpflow.ones(3).multinomial(0),
        lambda: ddpflow.tensor([0.0, 0.0]).multinomial(1, replacement=True),
        lambda: ddpflow.tensor([1.0, -1.0]).multinomial(1),
        lambda: ddpflow.tensor([1.0, float("nan")]).multinomial(1),
    ],
)
def test_impossible_weights(call):
    """Weights that cannot be drawn from raise RuntimeError, as in PyTorch."""
    with pytest.raises(ShapeError):
        call()


def test_others():
    """Poisson has its mean; randint_like its range; *_like of integers are refused."""
    ddpflow.manual_seed(0)
    assert abs(ddpflow.poisson(ddpflow.full((20000,), 4.0)).mean().item() - 4) < 0.1
    assert set(ddpflow.randint_like(ddpflow.zeros(100), 2, 4).tolist()) == {2.0, 3.0}
    with pytest.raises(DtypeError):
        ddpflow.rand_like(ddpflow.tensor([1]))
