"""How tensors print: PyTorch's form. Source: the layout of torch/_tensor_str.py."""

import math
from typing import Any, NamedTuple

import numpy as np

from ddpflow.autograd.base import TensorBase
from ddpflow.device import device_of
from ddpflow.dtype import bool_, dtype_of, get_default_dtype, int64, is_floating
from ddpflow.errors import ValueRangeError

__all__ = ["PrintOptions", "set_printoptions", "tensor_repr"]


class PrintOptions(NamedTuple):
    """What `set_printoptions` sets.

    Attributes:
        precision: Digits after the point.
        threshold: More elements than that are summarised.
        edgeitems: How many are shown at each end of a summary.
        linewidth: Columns.
        sci_mode: Scientific notation always or never; None to decide by the values.
    """

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_PROFILES = {
    "default": PrintOptions(),
    "short": PrintOptions(precision=2, edgeitems=2),
    "full": PrintOptions(threshold=math.inf),
}
_options = PrintOptions()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors print; what is None stays, and ``sci_mode`` goes back to deciding by the values.

    Args:
        precision: Digits after the point.
        threshold: More elements than that are summarised.
        edgeitems: How many are shown at each end of a summary.
        linewidth: Columns.
        profile: Start from ``"default"``, ``"short"`` or ``"full"``.
        sci_mode: Scientific notation always or never.

    Raises:
        ValueRangeError: When there is no such profile.
    """
    global _options
    if profile is not None and profile not in _PROFILES:
        raise ValueRangeError(f"print profile must be one of {sorted(_PROFILES)}, not {profile!r}")
    start = _options if profile is None else _PROFILES[profile]
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    changed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    _options = start._replace(sci_mode=sci_mode, **changed)


def tensor_repr(tensor: TensorBase) -> str:
    """``tensor([1., 2.])``, with dtype, device, gradient where they are not the default."""
    array = tensor.array if device_of(tensor.array).type == "cpu" else tensor.array.get()
    dtype = dtype_of(array.dtype)
    if dtype.name == "bfloat16":
        array = array.astype(np.float32)
    head = "tensor("
    body = "[]" if array.size == 0 else _body(array, len(head))
    suffix: list[str] = []
    if array.size == 0 and array.ndim != 1:
        suffix.append(f"size={tuple(array.shape)}")
    if device_of(tensor.array).type != "cpu":
        suffix.append(f"device='{device_of(tensor.array)}'")
    default = get_default_dtype()
    if dtype not in (default, default.to_complex(), int64, bool_) or (array.size == 0 and dtype is not default):
        suffix.append(f"dtype={dtype}")
    if tensor.node is not None:
        suffix.append(f"grad_fn={tensor.node!r}")
    elif tensor.needs_grad:
        suffix.append("requires_grad=True")
    kind = "" if type(tensor) is TensorBase.cls else f"{type(tensor).__name__} containing:\n"
    return kind + _with_suffixes(head + body, suffix, len(head))


def _with_suffixes(text: str, suffixes: list[str], indent: int) -> str:
    used = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if used + len(suffix) + 2 > _options.linewidth:
            text += ",\n" + " " * indent + suffix
            used = indent + len(suffix)
        else:
            text += ", " + suffix
            used += len(suffix) + 2
    return text + ")"


def _body(array: Any, indent: int) -> str:
    summarise = array.size > _options.threshold
    shown = _edges(array) if summarise else array
    write: Any
    if array.dtype.kind == "c":
        real, imaginary = _Format(shown.real), _Format(shown.imag)

        def write(value: Any) -> str:
            tail = (imaginary(value.imag) + "j").lstrip()
            return real(value.real) + ("" if tail[0] in "+-" else "+") + tail

        width = real.width + imaginary.width + 1
    else:
        write = _Format(shown)
        width = write.width
    return _nested(array, indent, summarise, write, width)


def _edges(array: Any) -> Any:
    """What a summary shows, as one array."""
    edge = _options.edgeitems
    for axis in range(array.ndim):
        if array.shape[axis] > 2 * edge:
            kept = [*range(edge), *range(array.shape[axis] - edge, array.shape[axis])]
            array = array.take(kept, axis)
    return array


def _nested(array: Any, indent: int, summarise: bool, write: Any, width: int) -> str:
    if array.ndim == 0:
        return str(write(array.item()))
    edge = _options.edgeitems
    cut = summarise and array.shape[0] > 2 * edge
    if array.ndim == 1:
        values = [write(v) for v in (array[:edge] if cut else array).tolist()]
        if cut:
            values += [" ...", *[write(v) for v in array[-edge:].tolist()]]
        per_line = max(1, (_options.linewidth - indent) // (width + 2))
        lines = [", ".join(values[i : i + per_line]) for i in range(0, len(values), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    rows = [_nested(row, indent + 1, summarise, write, width) for row in (array[:edge] if cut else array)]
    if cut:
        rows += ["...", *[_nested(row, indent + 1, summarise, write, width) for row in array[-edge:]]]
    between = "," + "\n" * int(array.ndim - 1) + " " * (indent + 1)
    return "[" + between.join(rows) + "]"


class _Format:
    """Writes the elements of an array to one width: whole floats with a bare point, others with digits."""

    def __init__(self, array: Any) -> None:
        self.width = 1
        self.floating = is_floating(array.dtype)
        self.whole = True
        self.scientific = False
        flat = array.reshape(-1)
        if not self.floating:
            self.width = max([len(str(v)) for v in flat.tolist()], default=1)
            return
        numbers = flat[np.isfinite(flat) & (flat != 0)].astype(np.float64)
        if numbers.size:
            low, high = float(np.abs(numbers).min()), float(np.abs(numbers).max())
            self.whole = bool((numbers == np.ceil(numbers)).all())
            self.scientific = high / low > 1000.0 or high > 1e8 or (not self.whole and low < 1e-4)
        if _options.sci_mode is not None:
            self.scientific = _options.sci_mode
        self.width = max([len(self._text(v)) for v in flat.tolist() if math.isfinite(v) and v != 0], default=1)

    def _text(self, value: Any) -> str:
        if not self.floating:
            return str(value)
        if self.scientific:
            return f"{value:.{_options.precision}e}"
        if self.whole:
            return f"{value:.0f}" + ("." if math.isfinite(value) else "")
        return f"{value:.{_options.precision}f}"

    def __call__(self, value: Any) -> str:
        return str(self._text(value).rjust(self.width))
