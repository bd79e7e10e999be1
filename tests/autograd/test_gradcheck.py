"""The check of gradients by finite differences."""

import pytest

import ddpflow
from ddpflow.autograd import Function
from ddpflow.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from ddpflow.errors import AutogradError
from ddpflow.factories import tensor


class WrongSquare(Function):
    """Claims x where the derivative of x * x is 2 * x."""

    @staticmethod
    def forward(ctx, x):  # noqa: D102
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):  # noqa: D102
        return g * ctx.saved_tensors[0]


class WrongSecond(Function):
    """Right once: its backward hides how it depends on x."""

    @staticmethod
    def forward(ctx, x):  # noqa: D102
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):  # noqa: D102
        return g * 2 * ctx.saved_tensors[0].detach()


def leaf(*values):
    """A float64 leaf."""
    return tensor(list(values), dtype="float64", requires_grad=True)


def test_right_gradients_pass():
    """Small inputs element by element, large ones along random directions, several inputs and outputs."""
    assert gradcheck(lambda x, y: (x * y, x.sin()), (leaf(1.0, 2.0), leaf(3.0, 4.0)))
    assert gradcheck(ddpflow.tanh, ddpflow.randn(20, 20, dtype="float64", requires_grad=True))
    assert gradgradcheck(lambda x: x.exp() * x, (leaf(0.5, -1.0),))


def test_wrong_gradients_are_named():
    """The error says which input and element, what backward says and what the differences say."""
    with pytest.raises(GradcheckError, match=r"input 0 of shape \(1,\), element \(0,\): backward says .* differences"):
        gradcheck(WrongSquare.apply, (leaf(3.0),))
    with pytest.raises(GradcheckError, match="random direction"):
        gradcheck(WrongSquare.apply, (leaf(3.0, 1.0),), fast_mode=True)
    assert gradcheck(WrongSquare.apply, (leaf(3.0),), raise_exception=False) is False


def test_a_wrong_second_order_is_found():
    """Gradcheck passes, gradgradcheck does not."""
    assert gradcheck(WrongSecond.apply, (leaf(3.0),))
    with pytest.raises(GradcheckError):
        gradgradcheck(WrongSecond.apply, (leaf(3.0),))


def test_only_inputs_that_require_grad_are_checked():
    """A constant input is left alone; without any other the call is refused."""
    assert gradcheck(lambda x, y: x * y.floor(), (leaf(1.0), tensor([2.5], dtype="float64")))
    with pytest.raises(AutogradError, match="at least one input"):
        gradcheck(ddpflow.exp, (tensor([1.0]),))


def test_given_grad_outputs():
    """Gradgradcheck takes the gradients of the outputs."""
    assert gradgradcheck(lambda x: x**3, (leaf(1.5),), grad_outputs=leaf(2.0))


def test_an_output_that_does_not_depend_on_an_input():
    """An unused input has gradient 0, and differences agree."""
    assert gradcheck(lambda x, y: x * 2, (leaf(1.0), leaf(2.0)))


def test_a_backward_that_changes_from_pass_to_pass():
    """Two passes that differ are reported, unless the difference is permitted."""
    state = [0.0]

    class Drifting(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            state[0] += 1e-9
            return g + state[0]

    with pytest.raises(GradcheckError, match="not deterministic"):
        gradcheck(Drifting.apply, (leaf(1.0),))
    assert gradcheck(Drifting.apply, (leaf(1.0),), nondet_tol=1e-6)
