"""Functions of one tensor against NumPy, and at the edges of their domains."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow.factories import tensor

NAMES = {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "sin": "sin", "cos": "cos", "atan": "arctan", "sinh": "sinh",
    "cosh": "cosh", "tanh": "tanh", "asinh": "arcsinh", "deg2rad": "deg2rad", "rad2deg": "rad2deg", "sinc": "sinc",
    "sgn": "sign", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p", "sqrt": "sqrt", "tan": "tan",
    "asin": "arcsin", "acos": "arccos", "atanh": "arctanh", "acosh": "arccosh",
}  # fmt: skip
BOUNDED = {"asin", "acos", "atanh", "log1p", "tan"}


@pytest.mark.parametrize("name", sorted(NAMES))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values(name, dtype):
    """Values are NumPy's in the same dtype."""
    x = np.linspace(-0.9, 0.9, 24).reshape(2, 3, 4) if name in BOUNDED else np.linspace(-3.0, 3.0, 24).reshape(2, 3, 4)
    if name in ("log", "log2", "log10", "sqrt", "acosh"):
        x = np.abs(x) + 1.0
    x = x.astype(dtype)
    found = getattr(ddpflow, name)(tensor(x)).numpy()
    assert found.dtype == dtype
    np.testing.assert_allclose(found, getattr(np, NAMES[name])(x), rtol=1e-6 if dtype == np.float32 else 1e-14)


@pytest.mark.parametrize("name", ["exp", "sqrt", "sin", "sigmoid", "log1p", "tanh"])
def test_integers_become_floating(name):
    """Functions with real values give integers and booleans the default floating type."""
    for values in ([0, 1], [False, True]):
        assert getattr(tensor(values), name)().dtype is ddpflow.float32


def test_edges_are_silent():
    """Outside their domain functions give inf and NaN as PyTorch does, without a warning."""
    x = tensor([0.0, -1.0, 1000.0])
    assert x.log().tolist()[0] == -math.inf and math.isnan(x.log().tolist()[1])
    assert math.isnan(x.sqrt().tolist()[1])
    assert x.exp().tolist()[2] == math.inf
    assert x.rsqrt().tolist()[0] == math.inf
    assert math.isnan(x.acos().tolist()[2])


def test_sqrt_at_zero():
    """The only derivative here that is infinite: at 0."""
    x = tensor([0.0, 4.0], requires_grad=True)
    x.sqrt().sum().backward()
    assert x.grad.tolist() == [math.inf, 0.25]


def test_logit_holds_its_input():
    """With eps the input is held within [eps, 1 - eps], and no gradient passes beyond."""
    x = tensor([0.0, 0.5, 1.0], requires_grad=True)
    y = ddpflow.logit(x, eps=1e-3)
    assert y.tolist() == [pytest.approx(math.log(1e-3 / 0.999), rel=1e-4), 0.0, pytest.approx(6.9068, rel=1e-4)]
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 4.0, 0.0]


def test_nan_to_num():
    """NaN and infinities become numbers, by default 0 and the dtype's limits; only finite elements pass gradient."""
    x = tensor([math.nan, math.inf, -math.inf, 2.0], requires_grad=True)
    limit = float(np.finfo(np.float32).max)
    y = ddpflow.nan_to_num(x)
    assert y.tolist() == [0.0, limit, -limit, 2.0]
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0, 1.0]
    assert ddpflow.nan_to_num(x, nan=1.0, posinf=2.0, neginf=3.0).tolist() == [1.0, 2.0, 3.0, 2.0]


def test_methods_and_functions_are_the_same():
    """Each function is a method too, with NumPy's name as an alias where PyTorch has it."""
    x = tensor([0.25, 0.5])
    for name in ("exp", "log", "sqrt", "arcsin", "arctanh", "arccos", "sinc", "sgn"):
        assert getattr(ddpflow, name)(x).tolist() == getattr(x, name)().tolist()


def test_a_list_is_no_tensor():
    """Plain numbers and lists are refused with the way to make a tensor of them."""
    with pytest.raises(TypeError, match=r"exp\(\) takes a tensor, not list; make one with ddpflow.tensor"):
        ddpflow.exp([1.0])


def test_frexp():
    """Significands and exponents by name, with ``input = mantissa * 2 ** exponent``; integers are refused."""
    x = ddpflow.tensor([12.0, -0.375, 0.0], requires_grad=True)
    found = ddpflow.frexp(x)
    assert found.mantissa.tolist() == [0.75, -0.75, 0.0] and found.exponent.tolist() == [4, -1, 0]
    assert found.exponent.dtype is ddpflow.int32
    (found.mantissa * ddpflow.tensor([2.0, 3.0, 5.0])).sum().backward()
    assert x.grad.tolist() == [2 / 16, 3 * 2, 5]
    with pytest.raises(TypeError, match="floating"):
        ddpflow.tensor([3]).frexp()
