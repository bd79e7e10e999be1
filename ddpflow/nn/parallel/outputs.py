"""What a model returns, taken apart and put together again."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from ddpflow.autograd.ops.tie import select_first
from ddpflow.autograd.tensor import Tensor

__all__ = ["tie"]


def tie(out: Any, params: Sequence[Any]) -> Any:
    """Tie every tensor in a model's output to parameters that may have had no part in it, keeping the structure.

    Tensors, tuples (named ones too), lists, dicts and dataclasses are gone through; anything else is given back as it
    is, as are tensors without a gradient.
    """
    if isinstance(out, Tensor):
        return select_first(out, *params) if out.requires_grad else out
    if isinstance(out, tuple):
        items = [tie(item, params) for item in out]
        return type(out)(*items) if hasattr(out, "_fields") else type(out)(items)
    if isinstance(out, list):
        return type(out)([tie(item, params) for item in out])
    if isinstance(out, dict):
        copy = out.copy()
        for key, item in out.items():
            copy[key] = tie(item, params)
        return copy
    if dataclasses.is_dataclass(out) and not isinstance(out, type) and all(f.init for f in dataclasses.fields(out)):
        return dataclasses.replace(out, **{f.name: tie(getattr(out, f.name), params) for f in dataclasses.fields(out)})
    return out
