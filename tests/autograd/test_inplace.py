"""How in-place variants are made. What they mean for views and gradients: test_views.py."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.inplace import in_place, reshaped_in_place
from ddpflow.autograd.ops import arithmetic, shape
from ddpflow.errors import ShapeError

SHAPED = {"squeeze_", "unsqueeze_", "transpose_", "swapaxes_", "swapdims_", "t_"}
RANDOM = {"normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_", "log_normal_", "cauchy_"}
OTHERS = {"requires_grad_", "detach_", "addmv_", "baddbmm_"}  # tested elsewhere, or below
PLAIN = sorted(
    name
    for name in dir(ddpflow.Tensor)
    if name.endswith("_") and not name.startswith("_") and hasattr(ddpflow.Tensor, name[:-1])
)
ARGS = {
    "addbmm": lambda x: (ddpflow.ones(1, 3, 2), ddpflow.ones(1, 2, 3)),
    "addmm": lambda x: (ddpflow.ones(3, 2), ddpflow.ones(2, 3)),
    "addr": lambda x: (x[0], x[1]),
    "addcmul": lambda x: (x, x),
    "addcdiv": lambda x: (x, x),
    "lerp": lambda x: (x + 1, 0.25),
    "clamp": lambda x: (0.4, 0.6),
    "clip": lambda x: (0.4, 0.6),
    "cumsum": lambda x: (1,),
    "cumprod": lambda x: (1,),
    "masked_fill": lambda x: (x > 0.5, 2.0),
    "masked_scatter": lambda x: (x > 0.5, x),
    "index_fill": lambda x: (0, ddpflow.tensor([1]), 2.0),
    "index_add": lambda x: (0, ddpflow.tensor([1]), x[:1]),
    "index_copy": lambda x: (0, ddpflow.tensor([1]), x[:1]),
    "index_put": lambda x: ((ddpflow.tensor([1]),), x[0]),
    "index_reduce": lambda x: (0, ddpflow.tensor([1]), x[:1], "prod"),
    "scatter": lambda x: (0, ddpflow.tensor([[1]]), 2.0),
    "scatter_add": lambda x: (0, ddpflow.tensor([[1]]), x[:1]),
    "scatter_reduce": lambda x: (0, ddpflow.tensor([[1]]), x[:1], "amax"),
    "put": lambda x: (ddpflow.tensor([1]), x[0, :1]),
    "ldexp": lambda x: (ddpflow.full((3, 3), 2.0),),
}
WITH_OTHER = (
    "add sub subtract mul multiply div divide true_divide floor_divide remainder fmod pow float_power atan2 arctan2 "
    "hypot copysign xlogy heaviside nextafter eq ne not_equal lt less le less_equal gt greater ge greater_equal "
    "logical_and logical_or logical_xor clamp_min clamp_max dist"
).split()
INTEGERS = "gcd lcm bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift".split()


@pytest.mark.parametrize("name", [n for n in PLAIN if n not in SHAPED | RANDOM | OTHERS])
def test_equals_the_operation(name):
    """x.op_(...) leaves in x what x.op(...) gives, in the memory that x has, and returns x."""
    plain = name[:-1]
    ddpflow.manual_seed(3)
    x = ddpflow.rand(3, 3) * 0.8 + 0.1
    if plain in INTEGERS:
        x = ddpflow.randint(1, 9, (3, 3))
    if plain == "acosh" or plain == "arccosh":
        x = x + 1
    args = ARGS[plain](x) if plain in ARGS else (x.flip(0) if plain not in INTEGERS else x.flip(0) % 3,)
    if plain not in ARGS and plain not in WITH_OTHER and (plain not in INTEGERS or plain == "bitwise_not"):
        args = ()
    expected = getattr(x, plain)(*args)
    memory = x.numpy()
    args = tuple(a.clone() if isinstance(a, ddpflow.Tensor) else a for a in args)
    before = x._version
    assert getattr(x, name)(*args) is x
    np.testing.assert_array_equal(memory, expected.to(x.dtype).numpy())
    assert x.numpy() is memory and x._version > before


@pytest.mark.parametrize("name", sorted(RANDOM))
def test_random_values(name):
    """Draws fill the memory, repeat with the seed, and keep the dtype."""
    args = {"geometric_": (0.3,), "random_": (0, 7)}.get(name, ())
    for dtype in (ddpflow.float32, ddpflow.float64, ddpflow.float16):
        x = ddpflow.zeros(200, dtype=dtype)
        ddpflow.manual_seed(1)
        assert getattr(x, name)(*args) is x and x.dtype == dtype
        first = x.numpy().copy()
        ddpflow.manual_seed(1)
        np.testing.assert_array_equal(getattr(x, name)(*args).numpy(), first)
        assert len(set(first.tolist())) > 1
    generator = ddpflow.Generator().manual_seed(5)
    a = getattr(ddpflow.zeros(3), name)(*args, generator=generator)
    assert ddpflow.equal(a, getattr(ddpflow.zeros(3), name)(*args, generator=generator.manual_seed(5)))


def test_random_ranges():
    """Parameters mean what PyTorch says."""
    ddpflow.manual_seed(0)
    x = ddpflow.empty(20000)
    assert abs(x.normal_(2, 0.5).mean().item() - 2) < 0.02 and abs(x.std().item() - 0.5) < 0.02
    x.uniform_(-3, -1)
    assert -3 <= x.min().item() and x.max().item() < -1
    assert set(x.random_(2, 5).tolist()) == {2.0, 3.0, 4.0} and set(x.random_(3).tolist()) == {0.0, 1.0, 2.0}
    assert abs(x.bernoulli_(0.25).mean().item() - 0.25) < 0.02
    assert abs(x.exponential_(2.0).mean().item() - 0.5) < 0.02
    assert x.geometric_(0.5).min().item() == 1
    for call in (lambda: x.normal_(0, -1), lambda: x.uniform_(1, 0), lambda: x.bernoulli_(2.0)):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(RuntimeError, match="leaf"):
        ddpflow.zeros(2, requires_grad=True).normal_()


@pytest.mark.parametrize("name", sorted(SHAPED))
def test_shapes_in_place(name):
    """The tensor itself gets the other shape, on the same memory."""
    args = {"unsqueeze_": (0,), "transpose_": (0, 1), "swapaxes_": (0, 1), "swapdims_": (0, 1)}.get(name, ())
    x = ddpflow.arange(3.0).reshape(3, 1)
    expected = getattr(x, name[:-1])(*args)
    memory = x.numpy()
    assert getattr(x, name)(*args) is x and x.shape == expected.shape
    assert np.shares_memory(memory, x.numpy())


def test_what_does_not_fit():
    """Results of another shape, or of a higher category of dtypes, are refused; nothing was written then."""
    x = ddpflow.ones(2)
    with pytest.raises(ShapeError, match=r"\(2, 2\)"):
        x.add_(ddpflow.ones(2, 2))
    whole = ddpflow.tensor([4, 5])
    with pytest.raises(ShapeError, match="int64"):
        whole.div_(2)
    with pytest.raises(ShapeError):
        whole.mul_(1j)
    assert x.tolist() == [1, 1] and whole.tolist() == [4, 5]
    assert whole.mul_(2).tolist() == [8, 10] and whole.dtype == ddpflow.int64
    assert ddpflow.zeros(2, dtype=ddpflow.float16).add_(ddpflow.ones(2)).dtype == ddpflow.float16


def test_products_of_other_dimensions():
    """addmv_ and baddbmm_ add products to vectors and to batches of matrices."""
    m, v = ddpflow.arange(4.0).reshape(2, 2), ddpflow.tensor([1.0, 2.0])
    assert ddpflow.ones(2).addmv_(m, v).tolist() == [3, 9]
    assert ddpflow.ones(1, 2, 2).baddbmm_(m[None], m[None]).tolist() == [[[3, 4], [7, 12]]]


def test_division_by_zero_is_quiet():
    """Also on the short way through NumPy's own in-place function."""
    x = ddpflow.tensor([1.0, 0.0])
    assert x.div_(0.0)[0].item() == float("inf")
    assert ddpflow.tensor([1.0]).div_(ddpflow.zeros(1)).item() == float("inf")


def test_made_methods_describe_themselves():
    """Name and first sentence."""
    made = in_place(arithmetic.mul)
    assert made.__name__ == "mul_" and "in place" in made.__doc__
    assert reshaped_in_place(shape.unsqueeze).__name__ == "unsqueeze_"
