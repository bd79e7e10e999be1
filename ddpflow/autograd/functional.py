"""Jacobians and Hessians of functions of tensors (PyTorch's ``autograd.functional``)."""

from collections.abc import Callable
from typing import Any

from ddpflow.autograd.base import TensorBase, wrap
from ddpflow.autograd.engine import grad
from ddpflow.autograd.mode import enable_grad
from ddpflow.autograd.ops.joining import stack
from ddpflow.device import array_module
from ddpflow.errors import AutogradError

__all__ = ["hessian", "jacobian", "vjp"]


def _leaves(inputs: Any, create_graph: bool) -> tuple[bool, tuple[Any, ...]]:
    """Whether there is one input, and the inputs: as they are if the result is to be differentiated, else as leaves."""
    one = isinstance(inputs, TensorBase)
    given = (inputs,) if one else tuple(inputs)
    if create_graph:
        return one, tuple([x if x.needs_grad else wrap(x.array, True) for x in given])
    return one, tuple([wrap(x.array, True) for x in given])


def _row(out: Any, index: int, inputs: tuple[Any, ...], create_graph: bool, strict: bool) -> list[Any]:
    """The gradients of one element of the output."""
    xp = array_module(out.array)
    seed = xp.zeros_like(out.array)
    seed.reshape(-1)[index] = 1
    found: Any = [None] * len(inputs)
    if out.needs_grad:
        found = grad(out, inputs, wrap(seed), retain_graph=True, create_graph=create_graph, allow_unused=True)
    if strict and any(g is None for g in found):
        raise AutogradError("an output does not depend on an input, which strict=True forbids")
    return [wrap(xp.zeros_like(x.array)) if g is None else g for g, x in zip(found, inputs, strict=True)]


def jacobian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False
) -> Any:
    """The derivatives of every element of a function's outputs by every element of its inputs.

    Args:
        func: Takes the inputs, returns a tensor or a tuple of them.
        inputs: A tensor or a tuple of them.
        create_graph: Make the result differentiable.
        strict: Raise where an output does not depend on an input, instead of giving zeros.
        vectorize: Accepted; rows are computed one at a time.

    Returns:
        For one output and one input a tensor of shape ``(*output.shape, *input.shape)``; for several a tuple for each.
    """
    one_input, given = _leaves(inputs, create_graph)
    with enable_grad():
        result = func(*given)
        one_output = isinstance(result, TensorBase)
        outputs = []
        for out in (result,) if one_output else tuple(result):
            rows = [_row(out, i, given, create_graph, strict) for i in range(out.numel())]
            outputs.append(
                tuple([
                    stack([row[k] for row in rows], 0).reshape((*out.array.shape, *x.array.shape))
                    if rows
                    else x.new_zeros((*out.array.shape, *x.array.shape))
                    for k, x in enumerate(given)
                ])
            )  # fmt: skip
    shaped = [blocks[0] if one_input else blocks for blocks in outputs]
    return shaped[0] if one_output else tuple(shaped)


def hessian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False
) -> Any:
    """The second derivatives of a function with one number as its output.

    Args:
        func: Takes the inputs, returns a tensor of one element.
        inputs: A tensor or a tuple of them.
        create_graph: Make the result differentiable.
        strict: Raise where the output does not depend on an input.
        vectorize: Accepted; rows are computed one at a time.

    Returns:
        For one input a tensor of shape ``(*input.shape, *input.shape)``; for several a tuple of tuples.

    Raises:
        AutogradError: When the function returns more than one number.
    """
    one = isinstance(inputs, TensorBase)

    def slope(*xs: Any) -> Any:
        out = func(*xs)
        if not isinstance(out, TensorBase) or out.array.size != 1:
            raise AutogradError("hessian() takes a function that returns one number")
        found = [None] * len(xs)
        if out.needs_grad:
            found = grad(out.sum(), xs, create_graph=True, allow_unused=not strict)  # type: ignore[attr-defined, assignment]
        gradients = [
            wrap(array_module(x.array).zeros_like(x.array)) if g is None else g for g, x in zip(found, xs, strict=True)
        ]
        return gradients[0] if one else tuple(gradients)

    return jacobian(slope, inputs, create_graph)


def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The outputs of a function, and ``v`` times its Jacobian.

    Args:
        func: Takes the inputs, returns a tensor or a tuple of them.
        inputs: A tensor or a tuple of them.
        v: The gradient of the outputs; may be left out for one number.
        create_graph: Make the result differentiable.
        strict: Raise where an output does not depend on an input, instead of giving zeros.
    """
    one, given = _leaves(inputs, create_graph)
    with enable_grad():
        out = func(*given)
        found = grad(out, given, v, create_graph=create_graph, allow_unused=not strict, materialize_grads=not strict)
    return out, found[0] if one else tuple(found)
