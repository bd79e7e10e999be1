"""Another element type, or another device."""

from ddpflow.autograd.op import Ints, apply, op
from ddpflow.device import Device, device_of, move

__all__ = ["cast", "moved"]


@op(samples=[((3, 4), "float64"), ((), "float64"), (Ints((3,), 5), "float32")], tensors=1)
def cast(xp, input, dtype):
    """A copy with another dtype; the gradient is cast back."""
    return input.astype(dtype), (lambda g: g,)


@op(samples=[((3, 4), Device("cpu"))], tensors=1)
def moved(xp, input, device, non_blocking=False):
    """The values on another device; the gradient is moved back."""
    source = device_of(input)
    return move(input, device, non_blocking), (lambda g: apply(xp, moved, g, source),)
