"""Another element type, or another device."""

from ddpflow.autograd.op import apply, op
from ddpflow.device import device_of, move

__all__ = ["cast", "moved"]


@op(samples=[((3, 4), "float64"), ((), "float32"), ((3,), "float16")], tensors=1)
def cast(xp, input, dtype):
    """A copy with another dtype; the gradient is cast back."""
    return input.astype(dtype), (lambda g: g,)


@op(tensors=1)
def moved(xp, input, device):
    """The values on another device; the gradient is moved back."""
    source = device_of(input)
    return move(input, device), (lambda g: apply(xp, moved, g, source),)
