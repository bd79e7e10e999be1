"""What runs at the end of a backward pass, and passes inside passes."""

import pytest

from ddpflow.autograd import enable_grad
from ddpflow.autograd.passes import Pass, outermost_pass, queue_callback, running
from ddpflow.errors import AutogradError
from ddpflow.factories import tensor


def leaf(*values):
    """A leaf that collects a gradient."""
    return tensor(list(values), requires_grad=True)


def test_end_of_backward_callbacks_run_last_in_order():
    """Callbacks queued by hooks run after all leaves are done, first in first out, also those queued by callbacks."""
    x, y = leaf(1.0), leaf(2.0)
    order = []

    def late():
        order.append("late")
        queue_callback(lambda: order.append("later"))

    def on_x(p):
        order.append("x")
        queue_callback(late)

    x.register_post_accumulate_grad_hook(on_x)
    y.register_post_accumulate_grad_hook(lambda p: order.append("y"))
    (y * (x * 2)).backward()
    assert set(order[:2]) == {"x", "y"}
    assert order[2:] == ["late", "later"]


def test_callbacks_belong_to_the_pass_they_were_queued_in():
    """A backward inside a hook runs its own callbacks at its own end, before the outer one goes on."""
    x, w = leaf(1.0), leaf(5.0)
    order = []

    def inner(g):
        w.register_post_accumulate_grad_hook(lambda p: queue_callback(lambda: order.append("end of inner")))
        with enable_grad():  # hooks run without recording, as in PyTorch
            (w * 2).backward()
        order.append("inner done")
        queue_callback(lambda: order.append("end of outer"))

    y = x * 3
    y.register_hook(inner)
    y.backward()
    order.append("outer done")
    assert order == ["end of inner", "inner done", "end of outer", "outer done"]
    assert w.grad.tolist() == [2.0] and x.grad.tolist() == [3.0]


def test_no_pass_no_callback():
    """Outside of backward there is no end to wait for, and no pass."""
    assert outermost_pass() is None
    with pytest.raises(AutogradError, match="no backward pass"):
        queue_callback(lambda: None)


def test_listeners_of_a_pass():
    """A pass tells its listeners when another starts inside it, and when it ends in an exception."""
    x, w = leaf(1.0), leaf(2.0)
    seen = []

    def hook(g):
        this = outermost_pass()
        this.on_nested.append(lambda: seen.append("nested"))
        this.on_error.append(lambda: seen.append("error"))
        with enable_grad():
            (w * 2).backward()
        raise KeyError("stop")

    x.register_hook(hook)
    with pytest.raises(KeyError):
        (x * 1).backward()
    assert seen == ["nested", "error"]


def test_state_of_a_pass():
    """A pass starts with nothing queued; the list of passes is empty outside of one."""
    assert running.passes == []
    this = Pass()
    assert (this.callbacks, this.on_nested, this.on_error) == ([], [], [])
