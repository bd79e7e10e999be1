"""Gradient buckets: flat arrays in communication memory that are the gradients of their parameters."""

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ddpflow.autograd.base import meta_of, wrap
from ddpflow.device import array_module, unwrap

__all__ = ["Bucket"]

ALIGNMENT = 64  # bytes: a gradient starts on a cache line, and on what vector instructions and GPUs like


class Bucket:
    """A flat array in communication memory, and one view of it for each of its parameters.

    Its methods are those of PyTorch's GradBucket, which communication hooks get.

    Attributes:
        number: Its place in the launch order.
        indices: Its parameters, by their number among all parameters of the reducer.
        flat: The array; between the views there may be a few elements of padding, which stay zero.
        views: For each parameter its part of the array, in the parameter's shape: its gradient.
        grads: The views as tensors.
        tag: Number and parameter names, for errors.
    """

    def __init__(
        self,
        number: int,
        indices: Sequence[int],
        names: Sequence[str],
        params: Sequence[Any],
        group: Any,
        last: bool = False,
    ) -> None:
        self.number = number
        self.indices = list(indices)
        self.names = list(names)
        self._params = [weakref.ref(p) for p in params]
        self._last = last
        self._copies: dict[Any, Bucket] = {}  # by the dtype in which a compressing hook sends them
        arrays = [p.array for p in params]
        xp = array_module(arrays[0])
        self._empty = group.empty if xp is np else xp.empty  # on a GPU any memory will do
        dtype = arrays[0].dtype
        step = max(1, ALIGNMENT // dtype.itemsize)
        self.offsets: list[int] = []
        end = 0
        for array in arrays:
            self.offsets.append(end)
            end += -(-array.size // step) * step
        self.flat = self._empty(end, dtype)
        self.flat[...] = 0
        self.views = [
            self.flat[start : start + a.size].reshape(a.shape) for start, a in zip(self.offsets, arrays, strict=True)
        ]
        self.grads = [wrap(view) for view in self.views]
        shown = ", ".join(self.names[:4]) + (f", ... {len(self.names) - 4} more" if len(self.names) > 4 else "")
        self.tag = f"bucket {number}: {shown}"

    def index(self) -> int:
        """Its place in the launch order."""
        return self.number

    def buffer(self) -> Any:
        """The gradients as one flat tensor; writing to it writes to them."""
        return wrap(self.flat)

    def gradients(self) -> list[Any]:
        """The gradients as tensors, each in its parameter's shape."""
        return list(self.grads)

    def parameters(self) -> list[Any]:
        """The parameters."""
        return [p() for p in self._params]

    def is_last(self) -> bool:
        """True for the bucket that is launched last."""
        return self._last

    def set_buffer(self, tensor: Any) -> None:
        """Make the values of another flat tensor or array the gradients."""
        array = unwrap(tensor)
        if array is not self.flat:
            self.flat[...] = array.reshape(-1)

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return int(self.flat.nbytes)

    def take(self, slot: int, param: Any) -> None:
        """Make the bucket's view the gradient, now and from now on; copy in what lies elsewhere, zeros for None."""
        view, own, grad = self.views[slot], self.grads[slot], param._grad
        if grad is None:
            view[...] = 0
        elif grad.array is not view:
            view[...] = grad.array
        own.array = view  # ``param.grad.data = ...`` puts another array there
        param._grad = meta_of(param).home = own

    def __repr__(self) -> str:
        return f"Bucket({self.tag}; {self.nbytes} bytes)"
