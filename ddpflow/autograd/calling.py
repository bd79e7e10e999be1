"""What the callers of operations share: keywords to places, results to arrays, exceptions to PyTorch's kinds."""

from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase
from ddpflow.errors import DdpflowError, DtypeError, IndexRangeError, ShapeError

__all__ = ["bind", "explain", "narrowed", "not_a_tensor", "repair"]


def bind(definition: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Move tensors that came by keyword to their places, so that vjps and arguments line up; take NumPy's names too."""
    params = definition.params
    for numpy_name, name in (("axis", "dim"), ("keepdims", "keepdim")):
        if numpy_name in kwargs and numpy_name not in params and name in params:
            kwargs[name] = kwargs.pop(numpy_name)
    if definition.variadic or not any(isinstance(v, TensorBase) for v in kwargs.values()):
        return args, kwargs
    placed = list(args)
    rest = dict(kwargs)
    last = max(params.index(name) for name, v in kwargs.items() if isinstance(v, TensorBase) and name in params)
    for name in params[len(placed) : last + 1]:
        if name in rest:
            placed.append(rest.pop(name))
        else:
            placed.append(definition.defaults[name])
    return tuple(placed), rest


def repair(result: Any, like: Any) -> Any:
    """An array of what NumPy returned as a scalar; CuPy arrays pass."""
    return result if hasattr(result, "__cuda_array_interface__") else np.asarray(result)


def narrowed(result: Any, like: Any) -> Any:
    """A result in bfloat16 again: beside Python numbers NumPy widens this type, which is not its own."""
    return result.astype(like.dtype) if result.dtype.kind == "f" and like.dtype.kind == "V" else result


def not_a_tensor(definition: Any, value: Any) -> DtypeError:
    """The error for an operand that is no tensor."""
    return DtypeError(
        f"{definition.name}() takes a tensor, not {type(value).__name__}; make one with ddpflow.tensor(...)"
    )


def explain(definition: Any, error: Exception, arrays: Any) -> Exception:
    """PyTorch's exception type, with the operation's name and the operands' shapes, for what NumPy says."""
    if isinstance(error, DdpflowError):
        return error
    shapes = ", ".join(str(tuple(x.shape)) for x in arrays if hasattr(x, "shape"))
    kind: type[Exception] = ShapeError
    if isinstance(error, IndexError):
        kind = IndexRangeError
    elif isinstance(error, TypeError):
        kind = DtypeError
    return kind(f"{definition.name}(): {error} (tensor shapes: {shapes})")
