"""Padding layers against NumPy's pad."""

import numpy as np
import pytest

import ddpflow
from ddpflow import nn

MODES = {"Circular": "wrap", "Reflection": "reflect", "Replication": "edge", "Zero": "constant"}
X = np.random.default_rng(0).standard_normal((2, 3, 4, 5, 6))


@pytest.mark.parametrize("kind", list(MODES))
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_values_and_gradients(dims, kind):
    """Each side is padded by its own amount, last dimension first, with or without a batch; gradients follow."""
    cls = getattr(nn, f"{kind}Pad{dims}d")
    sides = (1, 3, 2, 0, 1, 2)[: 2 * dims]
    x = X[(0,) * (3 - dims)]
    widths = [(0, 0), (0, 0), *[(sides[2 * i], sides[2 * i + 1]) for i in reversed(range(dims))]]
    np.testing.assert_array_equal(cls(sides)(ddpflow.tensor(x)).numpy(), np.pad(x, widths, MODES[kind]))
    np.testing.assert_array_equal(cls(sides)(ddpflow.tensor(x[0])).numpy(), np.pad(x[0], widths[1:], MODES[kind]))
    np.testing.assert_array_equal(
        cls(1)(ddpflow.tensor(x)).numpy(), np.pad(x, [(0, 0), (0, 0), *[(1, 1)] * dims], MODES[kind])
    )
    points = ddpflow.tensor(x[:1, :1], requires_grad=True)
    assert ddpflow.autograd.gradcheck(cls(sides), points, fast_mode=True)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_constant(dims):
    """Any value can be padded with; negative amounts cut off."""
    x = X[(0,) * (3 - dims)]
    cls = getattr(nn, f"ConstantPad{dims}d")
    expected = np.pad(x, [(0, 0), (0, 0), *[(2, 2)] * dims], constant_values=7.5)
    np.testing.assert_array_equal(cls(2, 7.5)(ddpflow.tensor(x)).numpy(), expected)
    cut = cls(-1, 0.0)(ddpflow.tensor(x)).numpy()
    np.testing.assert_array_equal(cut, x[(..., *[slice(1, -1)] * dims)])


def test_bad_inputs():
    """Wrong ranks and paddings larger than the input are errors."""
    with pytest.raises(ValueError, match=r"expected 3D or 4D input \(got 2D input of shape \(4, 5\)\)"):
        nn.CircularPad2d(1)(ddpflow.ones(4, 5))
    with pytest.raises(RuntimeError, match="4"):
        nn.ReflectionPad1d(4)(ddpflow.ones(1, 2, 4))


def test_repr():
    """The amounts are printed."""
    assert repr(nn.ZeroPad2d((1, 2, 3, 4))) == "ZeroPad2d((1, 2, 3, 4))"
    assert repr(nn.ConstantPad1d(2, 0.5)) == "ConstantPad1d(padding=(2, 2), value=0.5)"
    assert repr(nn.ReflectionPad2d(1)) == "ReflectionPad2d((1, 1, 1, 1))"
