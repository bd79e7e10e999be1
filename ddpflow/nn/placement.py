"""Where the tensors of a module live, and of which type they are: ``to()``, ``float()``, ``cuda()``."""

from collections.abc import Callable
from typing import Any, Self

from ddpflow.autograd.base import wrap
from ddpflow.autograd.mode import no_grad
from ddpflow.autograd.tensor import Tensor
from ddpflow.device import Device, as_device, move
from ddpflow.dtype import DType, as_dtype, float16, float32, float64
from ddpflow.dtype import bfloat16 as bfloat16_dtype
from ddpflow.errors import DtypeError
from ddpflow.nn.parameter import Parameter

__all__ = ["Placed"]


class Placed:
    """The part of a module that moves and casts its tensors, in place: the parameters stay the same objects."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]

    def _apply(self, fn: Callable[[Tensor], Tensor]) -> Self:
        """Replace the data of every parameter, its gradient and every buffer by ``fn`` of it."""
        for module in self._modules.values():
            if module is not None:
                module._apply(fn)
        with no_grad():
            for parameter in self._parameters.values():
                if parameter is None:
                    continue
                grad = parameter._grad
                parameter.data = fn(parameter)
                if grad is not None:
                    parameter._grad = fn(grad)
            for name, buffer in self._buffers.items():
                if buffer is not None:
                    self._buffers[name] = self.__dict__[name] = fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move the module, and cast its floating parameters and buffers, in place.

        Args:
            *args: A device, a dtype, both in this order, or a tensor whose device and dtype to take.
            **kwargs: ``device``, ``dtype``, ``non_blocking`` as `Tensor.to` takes them; ``memory_format`` is accepted
                and means nothing here.

        Returns:
            This module.

        Raises:
            DtypeError: For a dtype that is not floating or complex.
        """
        device, dtype, non_blocking = _parse_to(*args, **kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise DtypeError(
                f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
            )

        def convert(tensor: Tensor) -> Tensor:
            array = tensor.array
            if dtype is not None and (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
                array = array.astype(dtype.dtype, copy=False)
            if device is not None:
                array = move(array, device, non_blocking)
            return tensor if array is tensor.array else wrap(array)

        return self._apply(convert)

    def type(self, dst_type: Any) -> Self:
        """Cast all parameters and buffers, in place."""
        dtype = as_dtype(dst_type)
        return self._apply(lambda tensor: wrap(tensor.array.astype(dtype.dtype, copy=False)))

    def float(self) -> Self:
        """Cast floating parameters and buffers to float32, in place."""
        return self.to(float32)

    def double(self) -> Self:
        """Cast floating parameters and buffers to float64, in place."""
        return self.to(float64)

    def half(self) -> Self:
        """Cast floating parameters and buffers to float16, in place."""
        return self.to(float16)

    def bfloat16(self) -> Self:
        """Cast floating parameters and buffers to bfloat16, in place."""
        return self.to(bfloat16_dtype)

    def cpu(self) -> Self:
        """Move all parameters and buffers to the CPU."""
        return self.to("cpu")

    def cuda(self, device: int | Device | None = None) -> Self:
        """Move all parameters and buffers to a GPU; the current one without an index."""
        return self.to(Device("cuda") if device is None else as_device(device))


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Device | None, DType | None, bool]:
    """The device and dtype that the arguments of ``to()`` name, and whether the host need not wait."""
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    non_blocking = bool(kwargs.pop("non_blocking", False))
    kwargs.pop("memory_format", None)
    if kwargs:
        raise DtypeError(f"to() got unexpected arguments: {', '.join(sorted(kwargs))}")
    for arg in args:
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, (Device, str)) or (isinstance(arg, int) and not isinstance(arg, bool)):
            device = arg
        elif isinstance(arg, bool):
            non_blocking = arg
        elif arg is not None:
            dtype = arg
    place = None if device is None else as_device(device)
    return place, None if dtype is None else as_dtype(dtype), non_blocking
