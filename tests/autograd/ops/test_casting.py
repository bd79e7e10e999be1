"""Casts inside the graph."""

import ddpflow
from ddpflow.autograd.ops.casting import cast, moved
from ddpflow.device import Device


def test_a_cast_passes_the_gradient_back_in_the_inputs_dtype():
    """Down and up again; integers get none."""
    x = ddpflow.tensor([1.5, 2.5], requires_grad=True)
    y = cast(cast(x, "float64"), "float16")
    assert y.dtype == ddpflow.float16
    (y * 3).sum().backward()
    assert x.grad.dtype == ddpflow.float32 and x.grad.tolist() == [3, 3]
    assert not cast(x, "int64").requires_grad


def test_moving_passes_the_gradient_back():
    """To the device where the input is."""
    x = ddpflow.tensor([1.5], requires_grad=True)
    moved(x, Device("cpu")).sum().backward()
    assert x.grad.tolist() == [1]
