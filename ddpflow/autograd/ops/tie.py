"""Tying results to parameters that had no part in them, so that backward reaches those too."""

from ddpflow.autograd.op import op
from ddpflow.autograd.zeros import StaticZeros

__all__ = ["select_first"]


@op(samples=[((3,), (2,), (4,))], view=True, tensors=1)
def select_first(xp, output, *params):
    """The first argument itself; backward gives the others zeros that take no memory.

    Every hook on the parameters then fires in each backward through the output.
    """
    zeros = [StaticZeros(tuple(p.shape), p.dtype, xp) for p in params]
    return output, lambda g: (g, *zeros)
