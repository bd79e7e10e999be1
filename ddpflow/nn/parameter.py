"""Tensors that belong to a module: parameters, which are trained, and buffers, which are not."""

from typing import Any

import numpy as np

from ddpflow.autograd.tensor import Tensor
from ddpflow.dtype import as_numpy, get_default_dtype
from ddpflow.errors import DtypeError, ShapeError

__all__ = ["Buffer", "Parameter", "UninitializedParameter"]


class Parameter(Tensor):
    """A tensor that a module trains: assigned to a module's attribute, it is found by ``module.parameters()``.

    It shares memory with ``data``, is a leaf, and wants a gradient also when made under ``no_grad``. It may carry
    attributes of its own.

    Args:
        data: A tensor; None makes an empty one.
        requires_grad: Collect a gradient in ``grad``.

    Raises:
        DtypeError: When ``data`` is not a tensor.
        AutogradError: When an integer tensor is to require a gradient.

    Example:
        >>> import ddpflow
        >>> from ddpflow.nn.parameter import Parameter
        >>> Parameter(ddpflow.Tensor([1.0, 2.0]))
        Parameter containing:
        tensor([1., 2.], requires_grad=True)
    """

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        super().__init__(_array_of(data, "Parameter"), requires_grad)


class UninitializedParameter(Parameter):
    """A parameter whose shape is not known yet, of a module that takes it from its first input.

    It has a dtype and a device, and can be given to an optimizer; its shape cannot be asked for. With its data it
    becomes a `Parameter`, the same object.
    """

    @property
    def shape(self) -> Any:
        """Refused.

        Raises:
            ShapeError: Always.
        """
        raise ShapeError(
            "an uninitialized parameter has no shape yet: give its module a first input, or load its state"
        )

    def materialize(self, data: Tensor) -> None:
        """Take the data, of any shape, and become a `Parameter`."""
        self.array = data.array
        self.__class__ = Parameter  # type: ignore[assignment]


class Buffer(Tensor):
    """A tensor that belongs to a module's state but is not trained: assigned to an attribute, it becomes a buffer.

    Args:
        data: A tensor; None makes an empty one.
        persistent: Whether it is part of the module's ``state_dict``.

    Raises:
        DtypeError: When ``data`` is not a tensor.
    """

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        super().__init__(_array_of(data, "Buffer"))
        self.persistent = persistent


def _array_of(data: Any, what: str) -> Any:
    if data is None:
        return np.empty(0, as_numpy(get_default_dtype()))
    if not isinstance(data, Tensor):
        raise DtypeError(f"{what}() takes a tensor, not {type(data).__name__}; make one with ddpflow.tensor(...)")
    return data.array
