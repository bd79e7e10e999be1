"""Arithmetic operators: what the tests made from the registry do not say."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import grad, gradcheck
from ddpflow.errors import DtypeError, ShapeError, ValueRangeError
from ddpflow.factories import tensor


def leaf(values, dtype="float64"):
    """A leaf that collects a gradient."""
    return tensor(values, requires_grad=True, dtype=dtype)


@pytest.mark.parametrize(
    ("a", "b"),
    [((), (2,)), ((1,), (5, 4)), ((4, 1), (1, 4)), ((3,), (2, 3)), ((1, 3, 1), (2, 1, 4)), ((0, 3), (3,))],
)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "maximum", "where", "clamp"])
def test_broadcasting_is_undone(name, a, b):
    """Each gradient has its input's shape and agrees with finite differences, for every way to broadcast."""
    rng = np.random.default_rng(3)
    x, y = leaf(rng.uniform(0.5, 2.0, a)), leaf(rng.uniform(0.6, 2.1, b))
    functions = {
        "where": lambda p, q: ddpflow.where(p.detach() + q.detach() > 2.4, p, q),
        "clamp": lambda p, q: ddpflow.clamp(p + 0 * q, min=q),
    }
    function = functions.get(name) or getattr(ddpflow, name)
    out = function(x, y)
    for g, source in zip(grad(out.sum(), [x, y], allow_unused=True), (x, y), strict=True):
        assert g.shape == source.shape
    if out.numel():
        assert gradcheck(function, (x, y))


def test_operators_and_their_reflections():
    """Tensor with number and number with tensor, for every arithmetic operator."""
    x = tensor([2.0, 5.0])
    assert (x + 1).tolist() == (1 + x).tolist() == [3.0, 6.0]
    assert (x - 1).tolist() == [1.0, 4.0] and (1 - x).tolist() == [-1.0, -4.0]
    assert (x * 3).tolist() == (3 * x).tolist() == [6.0, 15.0]
    assert (x / 2).tolist() == [1.0, 2.5] and (10 / x).tolist() == [5.0, 2.0]
    assert (x // 2).tolist() == [1.0, 2.0] and (11 // x).tolist() == [5.0, 2.0]
    assert (x % 2).tolist() == [0.0, 1.0] and (11 % x).tolist() == [1.0, 1.0]
    assert (x**2).tolist() == [4.0, 25.0] and (2**x).tolist() == [4.0, 32.0]
    assert (-x).tolist() == [-2.0, -5.0] and (+x).tolist() == x.tolist() and abs(-x).tolist() == x.tolist()


def test_numpy_beside_tensors():
    """An array or NumPy scalar on either side of an operator gives a tensor, and its dtype does not widen floats."""
    x = tensor([1.0, 2.0], requires_grad=True)
    for y in (np.float64(0.5) * x, x * np.float64(0.5), x / np.int64(2), np.float32(0.5) * x):
        assert isinstance(y, ddpflow.Tensor) and y.dtype is ddpflow.float32 and y.tolist() == [0.5, 1.0]
    z = np.array([10.0, 20.0], np.float32) + x
    assert isinstance(z, ddpflow.Tensor) and z.requires_grad and z.tolist() == [11.0, 22.0]


def test_alpha():
    """Add and sub scale the second operand."""
    x, y = tensor([1.0, 2.0]), tensor([10.0, 20.0])
    assert ddpflow.add(x, y, alpha=2).tolist() == [21.0, 42.0]
    assert x.sub(y, alpha=0.5).tolist() == [-4.0, -8.0]
    assert ddpflow.rsub(x, y).tolist() == [9.0, 18.0]


def test_rounding_modes_of_div():
    """PyTorch's three: true, towards zero, down; an unknown one is refused by name."""
    a, b = tensor([7.0, -7.0]), tensor([2.0, 2.0])
    assert ddpflow.div(a, b).tolist() == [3.5, -3.5]
    assert ddpflow.div(a, b, rounding_mode="trunc").tolist() == [3.0, -3.0]
    assert ddpflow.div(a, b, rounding_mode="floor").tolist() == [3.0, -4.0]
    assert ddpflow.div(tensor([7, -7]), tensor([2, 2]), rounding_mode="trunc").tolist() == [3, -3]
    with pytest.raises(ValueRangeError, match="'up'"):
        ddpflow.div(a, b, rounding_mode="up")


def test_remainders():
    """The sign follows the divisor in remainder and the dividend in fmod."""
    a, b = tensor([5.5, -5.5, 5.5, -5.5]), tensor([3.0, 3.0, -3.0, -3.0])
    assert ddpflow.remainder(a, b).tolist() == [2.5, 0.5, -0.5, -2.5]
    assert ddpflow.fmod(a, b).tolist() == [2.5, -2.5, 2.5, -2.5]


def test_division_by_zero():
    """Floating division gives infinities and NaN without a warning; integer division raises."""
    zero = tensor([0.0])
    assert (tensor([1.0]) / zero).tolist() == [float("inf")]
    assert (tensor([1.0]) // zero).tolist() == [float("inf")]
    assert np.isnan((zero / zero).item())
    for function in (ddpflow.floor_divide, ddpflow.remainder, ddpflow.fmod):
        with pytest.raises(ShapeError, match="ZeroDivisionError"):
            function(tensor([1]), tensor([0]))


def test_integers():
    """True division of integers is floating; the others stay integers."""
    a = tensor([7, 2])
    assert (a / 2).dtype is ddpflow.float32 and (a // 2).dtype is ddpflow.int64
    assert (a * 2.0).dtype is ddpflow.float32
    assert (a**2).tolist() == [49, 4]


def test_pow_at_zero():
    """Where derivatives exist they are given: x**0, x**1, x**2 at 0, and 0**b; x**0.5 at 0 is inf."""
    for exponent, expected in ((0, 0.0), (1, 1.0), (2, 0.0), (0.5, float("inf"))):
        for b in (exponent, leaf([float(exponent)])):
            x = leaf([0.0])
            (x**b).backward()
            assert x.grad.tolist() == [expected], f"exponent {b}"
    for b in (2.0, 0.0):
        exponent = leaf([b])
        (leaf([0.0]) ** exponent).backward()
        assert exponent.grad.tolist() == [0.0]
        exponent = leaf([b])
        (0.0**exponent).backward()
        assert exponent.grad.tolist() == [0.0]


def test_pow_of_a_negative_base():
    """A whole exponent gives a finite gradient at the base; only the exponent's own is NaN."""
    x, b = leaf([-2.0]), leaf([3.0])
    (x**b).backward()
    assert x.grad.tolist() == [12.0]
    assert np.isnan(b.grad.item())


def test_pow_of_integers_to_a_negative_power():
    """NumPy's refusal comes as our error, with the operation's name."""
    with pytest.raises(ShapeError, match="pow"):
        tensor([2]) ** -1


def test_negative_powers_of_integer_tensors():
    """They are rounded to 0, but for powers of 1 and -1; empty integer divisions do not raise."""
    assert (tensor([2, 1, -1, -1]) ** tensor([-1, -3, -2, -3])).tolist() == [0, 1, 1, -1]
    assert (2 ** tensor([-1, 3])).tolist() == [0, 8]
    assert (ddpflow.zeros(0, dtype="int64") // 0).shape == (0,)


def test_sign_of_nan_is_zero():
    """As in PyTorch."""
    assert ddpflow.sign(tensor([float("nan"), -2.0])).tolist() == [0.0, -1.0]


def test_clamp():
    """Bounds are inclusive for the gradient, may be tensors, and max wins over min; without any it is refused."""
    x = leaf([-2.0, -1.0, 0.0, 1.0, 2.0])
    x.clamp(-1, 1).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 1.0, 1.0, 0.0]
    assert ddpflow.clamp(tensor([5.0]), min=3, max=1).tolist() == [1.0]
    assert tensor([1, 9]).clamp(max=4).tolist() == [1, 4]
    assert tensor([1, 9]).clamp(min=1.5).dtype is ddpflow.float32
    low = leaf([0.0, 0.0])
    ddpflow.clamp(leaf([-1.0, 1.0]), min=low).sum().backward()
    assert low.grad.tolist() == [1.0, 0.0]
    with pytest.raises(ShapeError, match="min and max"):
        x.clamp()


def test_shapes_that_do_not_broadcast():
    """The error has PyTorch's type, the operation and both shapes."""
    with pytest.raises(RuntimeError, match=r"add.*\(2,\).*\(3,\)"):
        tensor([1.0, 2.0]) + tensor([1.0, 2.0, 3.0])


def test_operands_that_are_no_numbers():
    """Text or None as an operand is a TypeError with the operation's name."""
    for other in ("text", None, [1.0]):
        with pytest.raises(TypeError, match="mul"):
            tensor([1.0]) * other
    with pytest.raises(DtypeError, match="boolean subtract|numpy boolean"):
        tensor([True]) - tensor([False])


def test_fused_forms():
    """lerp, addcmul, addcdiv and float_power say what their formulas say."""
    a, b, c = tensor([1.0, 2.0]), tensor([3.0, 4.0]), tensor([2.0, 8.0])
    assert ddpflow.lerp(a, b, 0.5).tolist() == [2.0, 3.0]
    assert ddpflow.addcmul(a, b, c, value=0.5).tolist() == [4.0, 18.0]
    assert ddpflow.addcdiv(a, b, c, value=2).tolist() == [4.0, 3.0]
    assert ddpflow.float_power(tensor([2]), 3).dtype is ddpflow.float64
