"""In-place methods: the operation as usual, then its result written into the tensor's memory.

`in_place` makes the variant with a trailing underscore of any operation. What the graph needs of the old values is kept
aside, the version is counted up, a leaf that requires grad refuses, and a view's base learns of the change: all of that
is `ddpflow.autograd.views.write`.
"""

import functools
from collections.abc import Callable
from typing import Any

from ddpflow.autograd.base import TensorBase, check_leaf_write, meta_of, wrap
from ddpflow.autograd.mode import grad_mode
from ddpflow.autograd.quiet import QUIET, restore, silence
from ddpflow.autograd.views import refresh, write
from ddpflow.dtype import kind_rank
from ddpflow.errors import ShapeError

__all__ = ["in_place", "reshaped_in_place"]


def in_place(function: Callable[..., Any], ufunc: Any = None) -> Callable[..., Any]:
    """The in-place variant of an operation.

    Args:
        function: The operation; its first argument is the tensor that changes.
        ufunc: NumPy's function of two operands that does the same; used where nothing is recorded.
    """
    single = hasattr(function, "op")

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not (grad_mode.enabled and _wants(self, args, kwargs)):
            if ufunc is not None and len(args) == 1 and not kwargs and _direct(self, args[0], ufunc):
                return self
            return _write(self, function(self, *args, **kwargs))
        check_leaf_write(self)
        if self.meta is not None and self.meta.view is not None:
            refresh(self)
        if single:
            result = function(self, *args, **kwargs)
            if not _holds(result.node, self):
                return _write(self, result)
        # The operation needs the old values for its gradient: let it see a copy that stays as it is.
        kept: Any = wrap(self.array.copy(), self.needs_grad, self.node)
        args = tuple([kept if arg is self else arg for arg in args])
        return _write(self, function(kept, *args, **kwargs))

    functools.update_wrapper(method, function)
    del method.__wrapped__  # type: ignore[attr-defined]
    method.__name__ = f"{function.__name__.lstrip('_')}_"
    method.__doc__ = f"`{method.__name__[:-1]}`, in place: {(function.__doc__ or '').partition(chr(10))[0]}"
    return method


def reshaped_in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    """The in-place variant of an operation that gives another shape of the same memory, such as ``unsqueeze_``."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if grad_mode.enabled and self.needs_grad:
            check_leaf_write(self)
        result = function(self, *args, **kwargs)
        self.array, self.node = result.array, result.node
        meta_of(self).view = None
        return self

    method.__name__ = f"{function.__name__.lstrip('_')}_"
    method.__doc__ = f"`{method.__name__[:-1]}`, in place: {(function.__doc__ or '').partition(chr(10))[0]}"
    return method


def _wants(self: TensorBase, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the tensor or a tensor among the arguments takes part in a graph."""
    if self.needs_grad:
        return True
    return any(isinstance(arg, TensorBase) and arg.needs_grad for arg in (*args, *kwargs.values()))


def _holds(node: Any, tensor: TensorBase) -> bool:
    """Whether a node keeps a tensor's values."""
    return node is not None and any(arg is tensor for arg in node.args or ())


def _direct(self: Any, other: Any, ufunc: Any) -> bool:
    """Let NumPy compute into the tensor's own memory, where dtypes and shapes allow it without a second look."""
    array = self.array
    if isinstance(other, TensorBase):
        operand: Any = other.array
        if operand.dtype != array.dtype or operand.ndim > array.ndim or operand.size > array.size:
            return False
    elif other.__class__ is float or other.__class__ is int:
        operand = other
    else:
        return False
    if array.dtype.kind != "f" or not getattr(array.flags, "writeable", True) or not array.size:
        return False
    before = silence(QUIET)
    try:
        ufunc(array, operand, out=array)
    except (ValueError, OverflowError):
        return False  # the full path explains it
    finally:
        restore(before)
    self.bump_version()
    return True


def _write(self: Any, result: Any) -> Any:
    """Write an operation's result into the tensor.

    Raises:
        ShapeError: When the result has another shape, or a dtype of a higher category, than the tensor.
    """
    if result.array.shape != self.array.shape:
        raise ShapeError(
            f"an in-place result of shape {tuple(result.array.shape)} does not fit the tensor's "
            f"shape {tuple(self.array.shape)}"
        )
    if kind_rank(result.array.dtype) > kind_rank(self.array.dtype) and self.array.dtype.kind != "b":
        raise ShapeError(f"an in-place result of type {result.dtype} can't be cast to the tensor's {self.dtype}")
    return write(self, result)
