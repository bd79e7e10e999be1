"""The tensor that users hold: an array, its gradient, its place in the graph, and every operation as a method."""

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ddpflow.autograd import engine
from ddpflow.autograd.base import RemovableHandle, TensorBase, alias, meta_of, version_of, wrap
from ddpflow.autograd.conversion import ConversionMethods
from ddpflow.autograd.inplace_methods import InplaceMethods
from ddpflow.autograd.printing import tensor_repr
from ddpflow.autograd.shape_methods import ShapeMethods
from ddpflow.autograd.tensor_methods import TensorMethods
from ddpflow.autograd.views import refresh
from ddpflow.device import Device, array_module, device_of, gpu_array
from ddpflow.dtype import DType, dtype_of, is_floating
from ddpflow.errors import AutogradError, DeviceError, DtypeError, ShapeError

__all__ = ["Size", "Tensor"]


class Size(tuple[int, ...]):
    """A tensor's shape: a tuple with ``numel()``."""

    def numel(self) -> int:
        """The number of elements."""
        count = 1
        for n in self:
            count *= n
        return count

    def __repr__(self) -> str:
        return f"ddpflow.Size([{', '.join(map(str, self))}])"


class Tensor(TensorMethods, ShapeMethods, InplaceMethods, ConversionMethods):
    """An array that records what is done with it, so that gradients can be computed.

    Make one with `ddpflow.tensor` and the other factories. ``Tensor(array)`` wraps a NumPy or CuPy array without a
    copy, or copies nested numbers, as float32.

    Args:
        data: An array, nested numbers, or another tensor.
        requires_grad: Collect a gradient in ``grad``.

    Example:
        >>> import ddpflow
        >>> x = ddpflow.tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([2., 4.])
    """

    __slots__ = ()

    def __init__(self, data: Any = (), requires_grad: bool = False) -> None:
        if isinstance(data, TensorBase):
            array = data.array
        elif type(data) is np.ndarray:
            array = data
        elif hasattr(data, "__cuda_array_interface__"):
            array = gpu_array(data)
        else:
            array = np.array(data, dtype=np.float32)
        dtype_of(array.dtype)
        self.array = array
        self.needs_grad = False
        self.node = None
        self._grad = self.meta = None
        if requires_grad:
            self.requires_grad_()

    # --- what it is ---

    @property
    def shape(self) -> Size:
        """The length of each dimension."""
        return Size(self.array.shape)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return dtype_of(self.array.dtype)

    @property
    def device(self) -> Device:
        """Where the array lives."""
        return device_of(self.array)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return int(self.array.ndim)

    @property
    def is_cuda(self) -> bool:
        """True for a tensor on a GPU."""
        return device_of(self.array).type == "cuda"

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return int(self.array.itemsize)

    element_size = lambda self: self.itemsize  # noqa: E731

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(self.array.nbytes)

    def dim(self) -> int:
        """The number of dimensions."""
        return int(self.array.ndim)

    ndimension = dim

    def numel(self) -> int:
        """The number of elements."""
        return int(self.array.size)

    nelement = numel

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the length of one dimension."""
        return Size(self.array.shape) if dim is None else self.array.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        """Steps between neighbours of each dimension, in elements."""
        strides = tuple(s // self.array.itemsize for s in self.array.strides)
        return strides if dim is None else strides[dim]

    def is_contiguous(self) -> bool:
        """True when the elements lie in row-major order without gaps."""
        return bool(self.array.flags.c_contiguous)

    def is_floating_point(self) -> bool:
        """True for real floating types."""
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        """True for complex types."""
        return self.dtype.is_complex

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self.array.ctypes.data) if type(self.array) is np.ndarray else int(self.array.data.ptr)

    # --- its place in the graph ---

    @property
    def requires_grad(self) -> bool:
        """True when a gradient is wanted: set on leaves, inherited by results."""
        return self.needs_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> "Tensor":
        """Ask for a gradient, or stop asking.

        Raises:
            AutogradError: For integers and booleans, and for a result whose history already wants one.
        """
        if requires_grad and not is_floating(self.array.dtype):
            raise AutogradError(f"only floating and complex tensors can require gradients, not {self.dtype}")
        if not requires_grad and self.node is not None:
            raise AutogradError("requires_grad can only be switched off on leaf tensors; use detach() for a result")
        self.needs_grad = bool(requires_grad) or self.node is not None
        return self

    @property
    def is_leaf(self) -> bool:
        """True when no recorded operation made it."""
        return self.node is None

    @property
    def grad_fn(self) -> Any:
        """The graph node that made it; None for a leaf."""
        if self.meta is not None and self.meta.view is not None:
            refresh(self)
        return self.node

    @property
    def grad(self) -> "Tensor | None":
        """The gradient collected by backward; None before."""
        return self._grad

    @grad.setter
    def grad(self, value: "Tensor | None") -> None:
        if value is not None:
            if not isinstance(value, TensorBase):
                raise DtypeError(f"grad must be a tensor or None, not {type(value).__name__}")
            if value.array.shape != self.array.shape:
                raise ShapeError(
                    f"grad of shape {tuple(value.array.shape)} for a tensor of shape {tuple(self.array.shape)}"
                )
            if value.array.dtype != self.array.dtype:
                raise ShapeError(f"grad of dtype {value.array.dtype} for a tensor of dtype {self.array.dtype}")
        self._grad = value

    @property
    def data(self) -> "Tensor":
        """The same memory outside the graph; writes to it are not noticed by backward."""
        return wrap(self.array)

    @data.setter
    def data(self, value: "Tensor") -> None:
        self.array = value.array

    def detach(self) -> "Tensor":
        """The same memory outside the graph."""
        return alias(self)

    def detach_(self) -> "Tensor":
        """Leave the graph in place."""
        self.node = None
        self.needs_grad = False
        return self

    def backward(
        self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
    ) -> None:
        """Add the gradient of this tensor to the ``grad`` of every leaf it depends on.

        See `ddpflow.autograd.backward` for the arguments and errors.
        """
        engine.backward(self, None if gradient is None else [gradient], retain_graph, create_graph, inputs)

    def register_hook(self, hook: Callable[["Tensor"], Any]) -> RemovableHandle:
        """Call ``hook(gradient)`` when this tensor's gradient is known; what it returns, if not None, replaces it.

        Raises:
            AutogradError: When the tensor requires no gradient.
        """
        if not self.needs_grad:
            raise AutogradError("cannot register a hook on a tensor that does not require grad")
        node = self.grad_fn
        if node is None:
            return RemovableHandle(meta_of(self).hooks, hook)
        if node.hooks is None:
            node.hooks = {}
        return RemovableHandle(node.hooks, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[["Tensor"], None]) -> RemovableHandle:
        """Call ``hook(tensor)`` after this leaf's ``grad`` was added to in a backward pass.

        Raises:
            AutogradError: When the tensor is not a leaf, or requires no gradient.
        """
        if self.node is not None or not self.needs_grad:
            raise AutogradError("post-accumulate-grad hooks go on leaf tensors that require grad")
        return RemovableHandle(meta_of(self).post_hooks, hook)

    def retain_grad(self) -> None:
        """Keep the gradient of this result in ``grad``, as if it were a leaf."""
        if not self.needs_grad:
            raise AutogradError("cannot retain the gradient of a tensor that does not require grad")
        node = self.grad_fn
        if node is None or self.retains_grad:
            return
        meta_of(self).retain = True
        node.retained = [*(node.retained or ()), weakref.ref(self)]

    @property
    def retains_grad(self) -> bool:
        """True when `retain_grad` was called."""
        return self.meta is not None and self.meta.retain

    @property
    def _version(self) -> int:
        return version_of(self)

    # --- to Python and NumPy ---

    def numpy(self, *, force: bool = False) -> Any:
        """The values as a NumPy array; it shares memory with a CPU tensor.

        Args:
            force: Detach and copy to the CPU first where that is needed.

        Raises:
            AutogradError: When the tensor requires grad (use ``detach()``).
            DeviceError: When it is on a GPU (use ``cpu()``).
        """
        if self.needs_grad and not force:
            raise AutogradError("numpy() on a tensor that requires grad: call detach().numpy(), or numpy(force=True)")
        if self.is_cuda:
            if not force:
                raise DeviceError("numpy() on a GPU tensor: call cpu() first, or numpy(force=True)")
            return array_module(self.array).asnumpy(self.array)
        return self.array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(self, **kwargs: Any) -> Any:
        if self.needs_grad:
            raise AutogradError("DLPack export of a tensor that requires grad: call detach() first")
        return self.array.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()  # type: ignore[no-any-return]

    @property
    def __cuda_array_interface__(self) -> Any:
        if not self.is_cuda:
            raise AttributeError("a CPU tensor has no __cuda_array_interface__")
        if self.needs_grad:
            raise AutogradError("__cuda_array_interface__ of a tensor that requires grad: call detach() first")
        return self.array.__cuda_array_interface__

    def item(self) -> Any:
        """The value of a tensor with one element as a Python number.

        Raises:
            ShapeError: When it has more or fewer elements.
        """
        if self.array.size != 1:
            raise ShapeError(
                f"item() needs one element; this tensor of shape {tuple(self.array.shape)} has {self.array.size}"
            )
        return self.array.item()

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers."""
        return self.array.tolist()

    def __bool__(self) -> bool:
        if self.array.size != 1:
            raise ShapeError("the truth of a tensor with more than one element is ambiguous; use any() or all()")
        return bool(self.array.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.array.dtype.kind not in "iub" or self.array.size != 1:
            raise DtypeError("only integer tensors of one element can be used as an index")
        return int(self.array.item())

    def __len__(self) -> int:
        if self.array.ndim == 0:
            raise DtypeError("len() of a 0-d tensor")
        return int(self.array.shape[0])

    def __format__(self, spec: str) -> str:
        return (
            format(self.array.item(), spec)
            if self.array.ndim == 0 and spec
            else repr(self)
            if not spec
            else format(self.item(), spec)
        )

    def __repr__(self) -> str:
        return tensor_repr(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Tensor":
        if self.node is not None:
            raise AutogradError("only leaf tensors can be deep-copied; detach() the result first")
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[no-any-return]
        copy = type(self).__new__(type(self))
        memo[id(self)] = copy
        self._copy_into(copy, self.array.copy())
        if self._grad is not None:
            copy._grad = wrap(self._grad.array.copy())
        return copy

    def _copy_into(self, copy: "Tensor", array: Any) -> None:
        copy.array = array
        copy.needs_grad = self.needs_grad
        copy.node = None
        copy._grad = copy.meta = None
        if hasattr(self, "__dict__"):
            copy.__dict__.update(self.__dict__)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if self.node is not None:
            raise AutogradError("only leaf tensors can be pickled; detach() the result first")
        return _restore, (
            type(self),
            np.asarray(self.numpy(force=True)),
            self.needs_grad,
            getattr(self, "__dict__", None),
        )

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return TensorBase.namespace


def _restore(cls: type[Tensor], array: Any, needs_grad: bool, attributes: dict[str, Any] | None) -> Tensor:
    """Rebuild a pickled tensor."""
    tensor = cls.__new__(cls)
    tensor.array = array
    tensor.needs_grad = needs_grad
    tensor.node = None
    tensor._grad = tensor.meta = None
    if attributes:
        tensor.__dict__.update(attributes)
    return tensor


TensorBase.cls = Tensor
