"""Making a batch of items: stack what can be stacked, keep the structure."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ddpflow.autograd.tensor import Tensor
from ddpflow.dtype import as_numpy, dtype_of
from ddpflow.errors import DtypeError, ShapeError

__all__ = ["default_collate"]


def default_collate(batch: Sequence[Any]) -> Any:
    """A batch from a list of items, as PyTorch makes it.

    Tensors and arrays are stacked along a new first dimension, numbers become a tensor (floats float64, integers
    int64), strings and bytes a list; of tuples, lists and dicts each entry is collated by itself.

    Raises:
        ShapeError: When tensors, lists or tuples of the items differ in shape or length.
        DtypeError: For items of other kinds.
    """
    first = batch[0]
    if isinstance(first, (Tensor, np.ndarray)):
        arrays = [np.asarray(item.array if isinstance(item, Tensor) else item) for item in batch]
        shapes = {a.shape for a in arrays}
        if len(shapes) > 1:
            raise ShapeError(f"items of one batch must have one shape, not {sorted(shapes)}; pass your own collate_fn")
        dtype_of(arrays[0].dtype)
        return Tensor(np.stack(arrays))
    if isinstance(first, (bool, np.bool_)):
        return Tensor(np.array(batch, np.bool_))
    if isinstance(first, np.generic):
        return Tensor(np.array(batch, first.dtype))
    if isinstance(first, int):
        return Tensor(np.array(batch, np.int64))
    if isinstance(first, float):
        return Tensor(np.array(batch, as_numpy("float64")))
    if isinstance(first, (str, bytes)):
        return list(batch)
    if isinstance(first, Mapping):
        collated = {key: default_collate([item[key] for item in batch]) for key in first}
        return collated if type(first) is dict else type(first)(collated)  # type: ignore[call-arg]
    if isinstance(first, (tuple, list)):
        lengths = {len(item) for item in batch}
        if len(lengths) > 1:
            raise ShapeError(f"items of one batch must have equally many entries, not {sorted(lengths)}")
        parts = [default_collate(part) for part in zip(*batch, strict=True)]
        return (
            type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts) if type(first) is tuple else parts
        )
    raise DtypeError(
        f"default_collate makes batches of tensors, arrays, numbers, dicts, lists and strings, not of "
        f"{type(first).__name__}; pass your own collate_fn"
    )
