"""The decorator that makes an operation of a rule."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.op import REGISTRY, Bools, Complexes, Definite, Floats, Ints, apply, op
from ddpflow.factories import tensor
from tests.autograd.samples import array_of


@pytest.fixture(autouse=True)
def registry():
    """Takes ops made in a test out of the registry again."""
    before = set(REGISTRY)
    yield
    for name in set(REGISTRY) - before:
        del REGISTRY[name]


def test_a_rule_becomes_a_function_on_tensors():
    """Forward, gradient, docs and test data from one function."""

    @op(samples=[((3, 4),)])
    def doubled(xp, x):
        """Two times x."""
        return x * 2, lambda g: g * 2

    x = tensor([1.0], requires_grad=True)
    doubled(x).backward()
    assert x.grad.tolist() == [2.0]
    assert doubled.__doc__ == "Two times x." and doubled.op is REGISTRY["doubled"]
    assert doubled.op.samples == [((3, 4),)] and repr(doubled.op) == "Op(doubled)"


def test_without_arguments():
    """The decorator needs no parentheses."""

    @op
    def tripled(xp, x):
        """Three times x."""
        return x * 3, lambda g: g * 3

    assert tripled(tensor([1.0])).tolist() == [3.0]


def test_a_name_is_given_once():
    """A second op of the same name is refused."""
    with pytest.raises(ValueError, match="'exp' exists already"):

        @op(name="exp")
        def another(xp, x):
            """X."""
            return x, lambda g: g


def test_any_number_of_tensors():
    """*xs takes as many as come, with one function for all gradients."""

    @op(samples=[((2,), (2,))])
    def total(xp, *xs):
        """The sum of all."""
        return sum(xs[1:], xs[0]), lambda g: tuple(g for _ in xs)

    leaves = [tensor([float(i)], requires_grad=True) for i in range(4)]
    total(*leaves).backward()
    assert [x.grad.tolist() for x in leaves] == [[1.0]] * 4


def test_several_outputs_of_one_tensor():
    """several=True for a rule with one parameter and a tuple as its output."""

    @op(samples=[((2,),)], several=True)
    def both(xp, x):
        """X and its negative."""

        def vjp(a, b):
            return (0 if a is None else a) - (0 if b is None else b)

        return (x + 0, -x), (vjp,)

    x = tensor([1.0], requires_grad=True)
    positive, negative = both(x)
    (positive * 3 + negative).backward()
    assert x.grad.tolist() == [2.0]


def test_options_after_tensors():
    """Parameters with a default are options; tensors= says so for those without."""

    @op(samples=[((2,), 3)], tensors=1)
    def scaled(xp, x, factor):
        """X times a number."""
        return x * factor, lambda g: g * factor

    assert scaled.op.tensor_count == 1
    assert scaled(tensor([2.0]), 3).tolist() == scaled(tensor([2.0]), factor=3).tolist() == [6.0]


def test_apply_inside_rules():
    """A rule calls another op on arrays, or on tensors when it runs on those."""
    array = np.array([1.0, 4.0])
    assert apply(np, ddpflow.sqrt, array).tolist() == [1.0, 2.0]
    assert apply(np, ddpflow.isnan, array).tolist() == [False, False]
    on_tensors = apply(ddpflow.Tensor.namespace, ddpflow.sqrt, tensor([4.0]))
    assert isinstance(on_tensors, ddpflow.Tensor) and on_tensors.tolist() == [2.0]


def test_sample_language():
    """Each kind of entry becomes the array it stands for; options stay as they are."""
    rng = np.random.default_rng(0)
    a = array_of((2, 3), rng, True)
    assert a.shape == (2, 3) and len(set(a.ravel())) == 6
    i = array_of(Ints((20,), 5, 2), rng, True)
    assert set(i) == {2, 3, 4} and i.dtype.kind == "i"
    f = array_of(Floats((9,), 1.0, 2.0), rng, True)
    assert ((f >= 1.0) & (f < 2.0)).all()
    assert array_of(Bools((2,)), rng, True).dtype == bool
    d = array_of(Definite((2, 2)), rng, True)
    assert (np.linalg.eigvalsh(d) > 0).all() and np.array_equal(d, d.T)
    assert array_of(Complexes((2,)), rng, True).dtype.kind == "c"
    assert array_of(7, rng, True) is None and array_of((2, 3), rng, False) is None
