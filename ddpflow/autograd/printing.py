"""How tensors print: PyTorch's form."""

from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase
from ddpflow.device import device_of
from ddpflow.dtype import bool_, dtype_of, get_default_dtype, int64, is_floating

__all__ = ["tensor_repr"]


def tensor_repr(tensor: TensorBase) -> str:
    """``tensor([1., 2.])``, with dtype, device, gradient where they are not the default."""
    array = tensor.array if device_of(tensor.array).type == "cpu" else tensor.array.get()
    dtype = dtype_of(array.dtype)
    if dtype.name == "bfloat16":
        array = array.astype(np.float32)
    kind = "tensor" if type(tensor) is TensorBase.cls else f"{type(tensor).__name__} containing:\ntensor"
    body = "[]" if array.size == 0 else _values(array, len("tensor("))
    suffix: list[str] = []
    if array.size == 0 and array.ndim != 1:
        suffix.append(f"size={tuple(array.shape)}")
    if device_of(tensor.array).type != "cpu":
        suffix.append(f"device='{device_of(tensor.array)}'")
    if dtype not in (get_default_dtype(), int64, bool_) or (array.size == 0 and dtype is not get_default_dtype()):
        suffix.append(f"dtype={dtype}")
    if tensor.node is not None:
        suffix.append(f"grad_fn={tensor.node!r}")
    elif tensor.needs_grad:
        suffix.append("requires_grad=True")
    return f"{kind}({', '.join([body, *suffix])})"


def _values(array: Any, indent: int) -> str:
    options: dict[str, Any] = {"separator": ", ", "prefix": " " * indent, "max_line_width": 80, "threshold": 1000}
    if is_floating(array.dtype) and array.dtype.kind == "f":
        options["formatter"] = {"float_kind": _float_format(array)}
    elif array.dtype.kind == "b":
        options["formatter"] = {"bool": lambda v: "True" if v else "False"}
    text = np.array2string(array, **options)
    return text.replace("\n\n", "\n") if array.ndim < 3 else text


def _float_format(array: Any) -> Any:
    finite = array[np.isfinite(array)]
    nonzero = np.abs(finite[finite != 0].astype(np.float64))
    if (
        finite.size == array.size
        and array.size
        and np.all(finite == np.round(finite))
        and (nonzero.size == 0 or nonzero.max() < 1e8)
    ):
        texts = [f"{v:.0f}." for v in array.reshape(-1)[:1000].tolist()]
        width = max(map(len, texts))
        return lambda v: f"{v:.0f}.".rjust(width)
    scientific = nonzero.size > 0 and (
        nonzero.max() / nonzero.min() > 1000.0 or nonzero.max() > 1e8 or nonzero.min() < 1e-4
    )
    pattern = "{:.4e}" if scientific else "{:.4f}"
    sample = array.reshape(-1)
    width = max((len(pattern.format(v)) for v in sample[:1000].tolist()), default=0)
    return lambda v: pattern.format(v).rjust(width)
