"""Mixed precision for DistributedDataParallel: computing on copies of the parameters in a smaller type."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ddpflow.autograd.ops.casting import cast
from ddpflow.autograd.surroundings import within
from ddpflow.autograd.tensor import Tensor
from ddpflow.dtype import DType, as_dtype, as_numpy
from ddpflow.errors import DtypeError
from ddpflow.nn.parallel.compression import compress_wrapper

__all__ = ["Lowered", "MixedPrecision"]


@dataclass(frozen=True)
class MixedPrecision:
    """The types in which a wrapped model computes, communicates and keeps its buffers; PyTorch's names.

    Parameters, their gradients and the optimizer's state keep their own type.

    Args:
        param_dtype: Of the copies that forward and backward run on, and of the inputs; None leaves them alone.
        reduce_dtype: In which gradients are averaged; as ``param_dtype`` when None.
        buffer_dtype: To which floating buffers are cast, once; None leaves them alone.

    Raises:
        DtypeError: When one of them is not a floating type.

    Example:
        >>> import ddpflow
        >>> from ddpflow.nn.parallel import DistributedDataParallel
        >>> precision = MixedPrecision(param_dtype=ddpflow.float16, reduce_dtype=ddpflow.float32)
        >>> ddp = DistributedDataParallel(ddpflow.nn.Linear(3, 2), mixed_precision=precision)
        >>> y = ddp(ddpflow.ones(4, 3))
        >>> y.sum().backward()
        >>> y.dtype, ddp.module.weight.grad.dtype
        (ddpflow.float16, ddpflow.float32)
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            dtype = as_dtype(value)
            if not dtype.is_floating_point:
                raise DtypeError(f"{field.name} must be a floating type, not {dtype}")
            object.__setattr__(self, field.name, dtype)

    def cast_buffers(self, buffers: Any) -> None:
        """Cast floating buffers, in place."""
        if self.buffer_dtype is None:
            return
        dtype = as_numpy(self.buffer_dtype)
        for buffer in buffers:
            if buffer.is_floating_point() and buffer.array.dtype != dtype:
                buffer.array = buffer.array.astype(dtype)

    def reducing(self, hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """A communication hook that runs another in the type for averaging."""
        dtype: DType | None = self.reduce_dtype or self.param_dtype
        if dtype is None:
            return hook
        small, wanted = compress_wrapper(hook, as_numpy(dtype)), as_numpy(dtype)
        return lambda state, bucket: (hook if bucket.flat.dtype == wanted else small)(state, bucket)


class Lowered:
    """Calls a module with its parameters replaced by copies in another type, and its inputs cast to it.

    The copies are made with gradients, so backward casts each gradient and hands it to the parameter itself, whose
    hooks then see it as ever. What `ddpflow.utils.checkpoint` runs again in backward runs on copies as well.

    Args:
        module: The model.
        dtype: The type of the copies.
    """

    def __init__(self, module: Any, dtype: DType) -> None:
        self._module = module
        self._dtype = dtype.dtype
        self._active = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's output."""
        args, kwargs = self._cast(args), self._cast(kwargs)
        with within(self._copies):
            return self._module(*args, **kwargs)

    @contextlib.contextmanager
    def _copies(self) -> Iterator[None]:
        """A block in which the modules hold copies; inside another one it does nothing."""
        if self._active:
            yield
            return
        made: dict[int, Any] = {}
        changed: list[tuple[Any, str, Any]] = []
        self._active = True
        try:
            for module in self._module.modules():
                for name, param in module._parameters.items():
                    if param is None or not param.is_floating_point() or param.array.dtype == self._dtype:
                        continue
                    copy = made.get(id(param))
                    if copy is None:
                        copy = made[id(param)] = cast(param, self._dtype)
                    module._parameters[name] = module.__dict__[name] = copy
                    changed.append((module, name, param))
            yield
        finally:
            self._active = False
            for module, name, param in changed:
                if module._parameters.get(name) is made[id(param)]:
                    module._parameters[name] = module.__dict__[name] = param

    def _cast(self, value: Any) -> Any:
        """Floating tensors in arguments, cast; lists, tuples and dicts are gone through."""
        if isinstance(value, Tensor):
            same = value.array.dtype == self._dtype or not value.is_floating_point()
            return value if same else cast(value, self._dtype)
        if isinstance(value, tuple):
            items = [self._cast(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if isinstance(value, list):
            return type(value)([self._cast(item) for item in value])
        if isinstance(value, dict):
            copy = value.copy()
            for key, item in value.items():
                copy[key] = self._cast(item)
            return copy
        return value
