"""Factories of random tensors."""

import pytest

import ddpflow
from ddpflow.errors import DtypeError, ValueRangeError


@pytest.mark.parametrize("name", ["rand", "randn"])
def test_shapes_and_dtypes(name):
    """Sizes come as numbers or as a tuple; the dtype is the default or the one asked for."""
    make = getattr(ddpflow, name)
    assert make(2, 3).shape == make((2, 3)).shape == (2, 3)
    assert make(()).shape == () and make(0).numel() == 0
    made = make(2, dtype=ddpflow.float64, requires_grad=True)
    assert made.dtype == ddpflow.float64 and made.requires_grad


def test_randint():
    """Both forms; every number of the range occurs, the end does not."""
    ddpflow.manual_seed(0)
    assert set(ddpflow.randint(3, (200,)).tolist()) == {0, 1, 2}
    made = ddpflow.randint(-2, 2, (300,))
    assert set(made.tolist()) == {-2, -1, 0, 1} and made.dtype == ddpflow.int64
    assert ddpflow.randint(0, 5, size=(2, 2), dtype=ddpflow.float32).dtype == ddpflow.float32
    assert ddpflow.randint(high=5, low=4, size=(2,)).tolist() == [4, 4]
    with pytest.raises(ValueRangeError, match=r"\[3, 3\)"):
        ddpflow.randint(3, 3, (1,))
    with pytest.raises(DtypeError, match="size"):
        ddpflow.randint(3)


def test_randperm():
    """Every number once, in another order for another seed."""
    ddpflow.manual_seed(0)
    made = ddpflow.randperm(50)
    assert sorted(made.tolist()) == list(range(50)) and made.dtype == ddpflow.int64
    assert made.tolist() != ddpflow.randperm(50).tolist()
    assert ddpflow.randperm(0).numel() == 0


def test_normal():
    """Numbers with a size, or tensors of means and deviations that broadcast."""
    ddpflow.manual_seed(0)
    many = ddpflow.normal(3.0, 0.5, (20000,))
    assert abs(many.mean().item() - 3) < 0.02 and abs(many.std().item() - 0.5) < 0.02
    means = ddpflow.tensor([0.0, 100.0], dtype=ddpflow.float64)
    made = ddpflow.normal(means, ddpflow.tensor([[1.0], [0.0]], dtype=ddpflow.float64))
    assert made.shape == (2, 2) and made.dtype == ddpflow.float64 and made[1].tolist() == [0.0, 100.0]
    with pytest.raises(ValueRangeError):
        ddpflow.normal(0.0, -1.0, (2,))
    with pytest.raises(RuntimeError, match="size"):
        ddpflow.normal(0.0, 1.0)
