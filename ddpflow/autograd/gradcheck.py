"""Gradients compared with finite differences."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase, wrap
from ddpflow.autograd.engine import grad
from ddpflow.autograd.mode import enable_grad
from ddpflow.autograd.quiet import QUIET, restore, silence
from ddpflow.device import array_module
from ddpflow.dtype import is_floating
from ddpflow.errors import AutogradError, DdpflowError, ShapeError

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]

FULL_LIMIT = 40  # up to so many elements every one is checked; beyond, random directions
DIRECTIONS = 3


class GradcheckError(DdpflowError, RuntimeError):
    """A gradient that finite differences contradict."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    fast_mode: bool = False,
) -> bool:
    """Compare the gradients of a function with central differences (PyTorch's ``autograd.gradcheck``).

    Both sides differentiate one number, the sum of all outputs times fixed random weights.

    Args:
        func: Takes the inputs, returns a tensor or a sequence of them.
        inputs: A tensor or a tuple; those that require grad are checked, and should be float64.
        eps: Half the step of the differences.
        atol: Absolute tolerance.
        rtol: Relative tolerance.
        raise_exception: Raise on a difference; else return False.
        nondet_tol: How much two backward passes may differ.
        fast_mode: Check random directions only, also for small inputs.

    Returns:
        True when all agree.

    Raises:
        GradcheckError: When they do not, naming the input and both numbers.
        AutogradError: When no input requires grad.
    """
    args = (inputs,) if isinstance(inputs, TensorBase) else tuple(inputs)
    checked = [i for i, x in enumerate(args) if isinstance(x, TensorBase) and x.needs_grad]
    if not checked:
        raise AutogradError("gradcheck needs at least one input that requires grad")
    try:
        _check(func, args, checked, eps, atol, rtol, nondet_tol, fast_mode)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    fast_mode: bool = False,
) -> bool:
    """Compare the gradients of a function's gradients with central differences (PyTorch's ``autograd.gradgradcheck``).

    Args:
        func: Takes the inputs, returns a tensor or a sequence of them.
        inputs: A tensor or a tuple of them.
        grad_outputs: The gradients of the outputs that are passed back; random ones by default.
        eps: As for `gradcheck`; so are the remaining arguments.
        atol: Absolute tolerance.
        rtol: Relative tolerance.
        raise_exception: Raise on a difference; else return False.
        nondet_tol: How much two backward passes may differ.
        fast_mode: Check random directions only.

    Returns:
        True when all agree.
    """
    args = (inputs,) if isinstance(inputs, TensorBase) else tuple(inputs)
    checked = [i for i, x in enumerate(args) if isinstance(x, TensorBase) and x.needs_grad]
    with enable_grad():
        outs = _floating(func(*args))
    if grad_outputs is None:
        rng = np.random.default_rng(1)
        seeds = [wrap(_like(out, rng), True) for out in outs]
    else:
        given = (grad_outputs,) if isinstance(grad_outputs, TensorBase) else tuple(grad_outputs)
        seeds = [wrap(g.array.copy(), True) for g in given]

    def first(*values: Any) -> tuple[Any, ...]:
        own, gs = values[: len(args)], values[len(args) :]
        results = _floating(func(*own))
        pairs = [(out, g) for out, g in zip(results, gs, strict=True) if out.needs_grad]
        found = grad(
            [out for out, _ in pairs],
            [own[i] for i in checked],
            [g for _, g in pairs],
            create_graph=True,
            allow_unused=True,
        )
        return tuple([g for g in found if g is not None])

    return gradcheck(
        first,
        (*args, *seeds),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        fast_mode=fast_mode,
    )


def _floating(result: Any) -> list[Any]:
    outs = [result] if isinstance(result, TensorBase) else list(result)
    return [out for out in outs if isinstance(out, TensorBase) and is_floating(out.array.dtype)]


def _like(tensor: Any, rng: "np.random.Generator") -> Any:
    """Random numbers of a tensor's shape, dtype and device."""
    values = rng.uniform(0.5, 1.5, tensor.array.shape) * rng.choice([-1.0, 1.0], tensor.array.shape)
    return array_module(tensor.array).asarray(values.astype(tensor.array.dtype))


def _check(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    checked: list[int],
    eps: float,
    atol: float,
    rtol: float,
    nondet_tol: float,
    fast_mode: bool,
) -> None:
    rng = np.random.default_rng(0)
    with enable_grad():
        outs = _floating(func(*args))
    weights = [_like(out, rng) for out in outs]
    analytic = _analytic(outs, weights, args, checked)
    again = _analytic(outs, weights, args, checked)
    for i, first, second in zip(checked, analytic, again, strict=True):
        if first.size and not float(abs(first - second).max()) <= nondet_tol:
            raise GradcheckError(f"backward is not deterministic: two passes differ for input {i}")

    def value(changed: int, array: Any) -> float:
        replaced = [wrap(array) if i == changed else x for i, x in enumerate(args)]
        with enable_grad():  # the function may itself call grad
            results = _floating(func(*_as_leaves(replaced, args)))
        return sum(float((r.array * w).sum()) for r, w in zip(results, weights, strict=True))

    before = silence(QUIET)
    try:
        for i, g in zip(checked, analytic, strict=True):
            _compare(i, args[i].array, g, value, rng, eps, atol, rtol, fast_mode)
    finally:
        restore(before)


def _as_leaves(replaced: list[Any], args: tuple[Any, ...]) -> list[Any]:
    """The inputs with their wish for a gradient."""
    return [
        wrap(x.array, True) if isinstance(x, TensorBase) and old.needs_grad else x
        for x, old in zip(replaced, args, strict=True)
    ]


def _analytic(outs: list[Any], weights: list[Any], args: tuple[Any, ...], checked: list[int]) -> list[Any]:
    pairs = [(out, wrap(w)) for out, w in zip(outs, weights, strict=True) if out.needs_grad]
    found: Sequence[Any] = [None] * len(checked)
    if pairs:
        found = grad(
            [out for out, _ in pairs],
            [args[i] for i in checked],
            [w for _, w in pairs],
            retain_graph=True,
            allow_unused=True,
        )
    results = []
    for i, g in zip(checked, found, strict=True):
        x = args[i].array
        if g is None:
            results.append(array_module(x).zeros_like(x))
        else:
            if g.array.shape != x.shape or g.array.dtype != x.dtype:
                raise GradcheckError(
                    f"input {i} of shape {x.shape}, {x.dtype} has a gradient of shape {g.array.shape}, {g.array.dtype}"
                )
            results.append(g.array)
    return results


def _compare(
    index: int,
    x: Any,
    g: Any,
    value: Callable[[int, Any], float],
    rng: "np.random.Generator",
    eps: float,
    atol: float,
    rtol: float,
    fast_mode: bool,
) -> None:
    xp = array_module(x)
    if x.dtype.kind == "c":
        raise ShapeError("gradcheck of complex inputs is not supported: check the real and imaginary parts")
    if x.size <= FULL_LIMIT and not fast_mode:
        steps = [(f"element {tuple(map(int, np.unravel_index(k, x.shape)))}", k) for k in range(x.size)]
    else:
        steps = [(f"random direction {k}", -1) for k in range(DIRECTIONS)]
    for name, k in steps:
        if k >= 0:
            direction = np.zeros(x.size)
            direction[k] = 1.0
        else:
            direction = rng.standard_normal(x.size)
            direction /= np.linalg.norm(direction) or 1.0
        v = xp.asarray(direction.reshape(x.shape)).astype(x.dtype)
        numeric = (value(index, xp.asarray(x + eps * v)) - value(index, xp.asarray(x - eps * v))) / (2 * eps)
        found = float((g * v).sum())
        if not abs(numeric - found) <= atol + rtol * abs(numeric):
            raise GradcheckError(
                f"input {index} of shape {tuple(x.shape)}, {name}: backward says {found:.8g}, "
                f"finite differences {numeric:.8g}"
            )
