"""Activation checkpointing: save a function's inputs instead of what happens inside, and run it again in backward."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase
from ddpflow.autograd.engine import backward
from ddpflow.autograd.function import Function
from ddpflow.autograd.mode import enable_grad, grad_mode
from ddpflow.autograd.surroundings import surroundings
from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import ShapeError
from ddpflow.random import default_generator

__all__ = ["checkpoint", "checkpoint_sequential"]


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Run a function without keeping its inner values; backward runs it once more.

    Memory goes down by what the function would have saved, time up by one forward. Parameters that the function uses
    get their gradients in a backward inside backward, which DistributedDataParallel follows. Autocast blocks around the
    call are in force again when it is run again.

    Args:
        function: Takes ``args`` and ``kwargs``; must compute the same when run again. Gives a tensor or a tuple.
        args: Its arguments; gradients flow to the tensors among them.
        use_reentrant: As in PyTorch; there is one way here, and it also works when no argument requires grad.
        preserve_rng_state: Draw the same random numbers (dropout) when it is run again.
        kwargs: Further arguments; no gradient flows to these.

    Returns:
        What the function gives.

    Example:
        >>> import ddpflow
        >>> x = ddpflow.tensor([1.0, 2.0], requires_grad=True)
        >>> checkpoint(lambda t: (t * t).exp(), x).sum().backward()
        >>> ddpflow.allclose(x.grad, 2 * x * (x * x).exp())
        True
    """
    if not grad_mode.enabled:
        return function(*args, **kwargs)
    # A leaf that wants a gradient, so that the node is recorded also when only parameters inside do.
    anchor = Tensor(np.zeros(0, np.float32), requires_grad=True)
    state = default_generator().get_state() if preserve_rng_state else None
    out: Any = _Checkpoint.apply(function, kwargs, state, anchor, *args)
    return out


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Run a sequence of modules in ``segments`` checkpointed parts; the last part is run plainly, as in PyTorch."""
    steps = list(functions.children()) if hasattr(functions, "children") else list(functions)
    size = max(1, len(steps) // segments)
    start = 0
    for _ in range(segments - 1):
        input = checkpoint(_chain(steps[start : start + size]), input, use_reentrant=use_reentrant, **kwargs)
        start += size
    return _chain(steps[start:])(input)


def _chain(steps: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for step in steps:
            x = step(x)
        return x

    return run


class _Checkpoint(Function):
    @staticmethod
    def forward(ctx: Any, function: Any, kwargs: Any, state: Any, anchor: Tensor, *args: Any) -> Any:
        ctx.function, ctx.kwargs, ctx.state, ctx.surroundings = function, kwargs, state, surroundings()
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, TensorBase)]
        ctx.args = [None if isinstance(a, TensorBase) else a for a in args]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        return function(*args, **kwargs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        args = list(ctx.args)
        for i, saved in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[i] = saved.detach()
            if saved.requires_grad:
                args[i].requires_grad_()
        generator = default_generator()
        before = generator.get_state()
        if ctx.state is not None:
            generator.set_state(ctx.state)
        try:
            with enable_grad(), ctx.surroundings():
                out = ctx.function(*args, **ctx.kwargs)
        finally:
            if ctx.state is not None:
                generator.set_state(before)
        outs = out if isinstance(out, (tuple, list)) else (out,)
        if len(outs) != len(gradients):
            raise ShapeError(
                f"the checkpointed function gave {len(gradients)} outputs, then {len(outs)} when run again"
            )
        pairs = [
            (o, g)
            for o, g in zip(outs, gradients, strict=True)
            if isinstance(o, TensorBase) and o.needs_grad and g is not None
        ]
        if pairs:
            backward([o for o, _ in pairs], [g for _, g in pairs])
        grads = [a.grad if isinstance(a, Tensor) else None for a in args]
        return None, None, None, None, *grads
