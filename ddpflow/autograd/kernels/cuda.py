"""CUDA kernels of our own: from CuPy arrays to the sources in ``sources/``, compiled by CuPy when first used.

A kernel takes arrays of float16, bfloat16, float32 and float64, accumulates half types in float32, and wants its axis
last and its memory contiguous: `fits` says whether it takes some arrays. Every function here has a formula in plain
array functions beside its caller, which serves where the kernel does not.
"""

import itertools
import os
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

__all__ = [
    "adam",
    "address_table",
    "attention_weights",
    "batch_norm",
    "batch_norm_backward",
    "class_weights",
    "compiled",
    "cross_entropy",
    "cross_entropy_backward",
    "fits",
    "fits_as_it_is",
    "fits_classes",
    "fits_normalized",
    "fits_rows",
    "gelu",
    "gelu_backward",
    "keep_scaled",
    "layer_norm",
    "layer_norm_backward",
    "log_softmax",
    "log_softmax_backward",
    "softmax",
    "softmax_backward",
    "source",
]

# NumPy's character of a dtype -> its name in CUDA, the type to accumulate in there and here, and the header needed.
_TYPES = {
    "e": ("__half", "float", "f", "#include <cuda_fp16.h>\n"),
    "E": ("__nv_bfloat16", "float", "f", "#include <cuda_bf16.h>\n"),
    "f": ("float", "float", "f", ""),
    "d": ("double", "double", "d", ""),
}
_THREADS = 256


def source(family: str, dtype: str, params: str) -> str:
    """The CUDA C++ text of one of the files in ``sources/`` for one choice of types.

    Args:
        family: The file's name without ``.cu``.
        dtype: NumPy's character of the arrays' dtype.
        params: That of weight and bias.
    """
    name, wide, _, header = _TYPES[dtype]
    types = f"{header}typedef {name} T;\ntypedef {_TYPES[params][0]} W;\ntypedef {wide} A;\n"
    folder = os.path.join(os.path.dirname(__file__), "sources")
    texts = []
    for file in ("common", family):
        with open(os.path.join(folder, file + ".cu"), encoding="utf-8") as stream:
            texts.append(stream.read())
    return "\n".join([types, *texts])


def fits(xp: Any, x: Any, *others: Any) -> bool:
    """Whether there are kernels for arrays: of CuPy, floating, not empty, on the current device, and of one dtype.

    Args:
        xp: NumPy, CuPy, or their functions over tensors.
        x: An array.
        *others: Arrays of its dtype, or None.
    """
    return (
        hasattr(xp, "RawModule")
        and x.dtype.char in _TYPES
        and x.size > 0
        and all(other is None or other.dtype == x.dtype for other in others)
        and x.data.device_id == xp.cuda.runtime.getDevice()
    )


def fits_as_it_is(xp: Any, *arrays: Any) -> bool:
    """As `fits`, for kernels that write into the arrays themselves and so cannot take copies: they are contiguous."""
    return fits(xp, *arrays) and all(a.flags.c_contiguous for a in arrays)


def fits_rows(xp: Any, axis: int, x: Any, *others: Any) -> bool:
    """As `fits`, for kernels along the last axis."""
    return axis in (-1, x.ndim - 1) and fits(xp, x, *others)


def fits_classes(xp: Any, target: Any, weight: Any, dtype: Any) -> bool:
    """Whether `class_weights` takes class indices, and weights of the classes for results of a dtype."""
    indices = hasattr(xp, "RawModule") and target.dtype.char == "l" and dtype.char in _TYPES
    return indices and target.size > 0 and (weight is None or (weight.dtype == dtype and fits(xp, weight)))


def fits_normalized(xp: Any, x: Any, weight: Any, bias: Any = None) -> bool:
    """As `fits`, with a weight and a bias that are of one dtype, be it another than that of the array, or None."""
    params = [p for p in (weight, bias) if p is not None]
    return fits(xp, x) and all(p.dtype.char in _TYPES and p.dtype == params[0].dtype for p in params)


def _launch(xp: Any, family: str, name: str, x: Any, grid: Any, block: Any, args: Any, params: Any = None) -> None:
    """Run a kernel on the current stream; the types are those of ``x`` and of ``params``, or of ``x`` alone."""
    dtype = x.dtype.char
    compiled(xp, family, name, dtype, dtype if params is None else params.dtype.char)(grid, block, args)


@cache
def compiled(xp: Any, family: str, name: str, dtype: str, params: str) -> Any:
    """A kernel, ready to be launched; CuPy compiles it, for each device, and keeps what it compiled on disk."""
    return xp.RawModule(code=source(family, dtype, params), options=("-std=c++17",)).get_function(name)


def _by_row(xp: Any, family: str, name: str, x: Any, rows: int, width: int, args: Any, params: Any = None) -> None:
    """Run a kernel over rows: one warp for a short row, a block for a long one."""
    threads, rows_per_block = (32, 4) if width <= 1024 else (_THREADS, 1) if width <= 8192 else (1024, 1)
    _launch(xp, family, name, x, (_ceil(rows, rows_per_block),), (threads, rows_per_block), args, params)


def _by_element(xp: Any, family: str, name: str, x: Any, count: int, args: Any) -> None:
    _launch(xp, family, name, x, (_ceil(count, _THREADS),), (_THREADS,), args)


def _ceil(count: int, size: int) -> int:
    return (count + size - 1) // size


def _wide(x: Any) -> str:
    return _TYPES[x.dtype.char][2]


def _or_null(array: Any) -> Any:
    """An argument that may be missing: CuPy hands an integer over as it is, so 0 is a null pointer."""
    return 0 if array is None else array


# --- softmax and cross entropy ----------------------------------------------------------------------------------------


def _rows_of(xp: Any, name: str, *arrays: Any) -> Any:
    """The result of a kernel from rows to rows of the same shape."""
    arrays = tuple([xp.ascontiguousarray(a) for a in arrays])
    x = arrays[0]
    out = xp.empty(x.shape, x.dtype)
    width = x.shape[-1]
    _by_row(xp, "softmax", name, x, x.size // width, width, (*arrays, out, x.size // width, width))
    return out


def softmax(xp: Any, x: Any) -> Any:
    """``exp(x) / sum(exp(x))`` along the last axis."""
    return _rows_of(xp, "softmax", x)


def softmax_backward(xp: Any, g: Any, y: Any) -> Any:
    """The input's gradient from the output's and the output."""
    return _rows_of(xp, "softmax_backward", g, y)


def log_softmax(xp: Any, x: Any) -> Any:
    """``x - log(sum(exp(x)))`` along the last axis."""
    return _rows_of(xp, "log_softmax", x)


def log_softmax_backward(xp: Any, g: Any, y: Any) -> Any:
    """The input's gradient from the output's and the output."""
    return _rows_of(xp, "log_softmax_backward", g, y)


def attention_weights(xp: Any, scores: Any, scale: float, causal: bool) -> Any:
    """Softmax of ``scale * scores``, ``(*, queries, keys)``, over all keys or those up to a query's place."""
    scores = xp.ascontiguousarray(scores)
    queries, width = scores.shape[-2:]
    p = xp.empty(scores.shape, scores.dtype)
    rows = scores.size // width
    args = (scores, p, rows, width, queries, float(scale), causal)
    _by_row(xp, "softmax", "attention_weights", scores, rows, width, args)
    return p


def class_weights(xp: Any, target: Any, weight: Any, ignored: int, classes: int, dtype: Any) -> tuple[Any, Any, Any]:
    """For class indices: safe ones, each sample's weight (NaN for no class, 0 if ignored), and whether it counts."""
    target = xp.ascontiguousarray(target)
    index, coefficient = xp.empty(target.shape, target.dtype), xp.empty(target.shape, dtype)
    valid = xp.empty(target.shape, bool)
    weight = weight if weight is None else xp.ascontiguousarray(weight)
    args = (target, _or_null(weight), index, coefficient, valid, target.size, classes, ignored)
    _by_element(xp, "softmax", "class_weights", coefficient, target.size, args)
    return index, coefficient, valid


def cross_entropy(xp: Any, x: Any, index: Any) -> tuple[Any, Any]:
    """For logits ``(N, C)``: ``logsumexp(x) - x[index]``, and the logsumexp, each of shape ``(N,)`` and wide."""
    x = xp.ascontiguousarray(x)
    rows, width = x.shape
    loss, lse = xp.empty(rows, _wide(x)), xp.empty(rows, _wide(x))
    _by_row(xp, "softmax", "cross_entropy", x, rows, width, (x, index, loss, lse, rows, width))
    return loss, lse


def cross_entropy_backward(xp: Any, x: Any, index: Any, lse: Any, scale: Any) -> Any:
    """The gradient ``(softmax(x) - onehot(index)) * scale``; 0 where the scale is."""
    x = xp.ascontiguousarray(x)
    rows, width = x.shape
    gx = xp.empty(x.shape, x.dtype)
    args = (x, index, lse, xp.ascontiguousarray(scale), gx, rows, width)
    _by_row(xp, "softmax", "cross_entropy_backward", x, rows, width, args)
    return gx


# --- normalisation ----------------------------------------------------------------------------------------------------


def layer_norm(xp: Any, x: Any, weight: Any, bias: Any, width: int, eps: float) -> tuple[Any, Any, Any]:
    """Normalise runs of ``width`` elements; the output, and the means and 1 / deviations, ``(rows,)`` and wide."""
    x = xp.ascontiguousarray(x)
    rows = x.size // width
    y, mean, rstd = xp.empty(x.shape, x.dtype), xp.empty(rows, _wide(x)), xp.empty(rows, _wide(x))
    w, b = [None if p is None else xp.ascontiguousarray(p) for p in (weight, bias)]
    args = (x, _or_null(w), _or_null(b), y, mean, rstd, rows, width, eps)
    _by_row(xp, "layer_norm", "layer_norm", x, rows, width, args, b if w is None else w)
    return y, mean, rstd


def layer_norm_backward(xp: Any, g: Any, x: Any, weight: Any, mean: Any, rstd: Any, width: int) -> tuple[Any, Any, Any]:
    """The gradients of input, weight and bias; those of weight and bias are ``(width,)`` and wide."""
    g, x = xp.ascontiguousarray(g), xp.ascontiguousarray(x)
    rows = x.size // width
    gx = xp.empty(x.shape, x.dtype)
    weight = weight if weight is None else xp.ascontiguousarray(weight)
    args = (g, x, _or_null(weight), mean, rstd, gx, rows, width)
    _by_row(xp, "layer_norm", "layer_norm_backward", x, rows, width, args, weight)
    parts = xp.empty((min(64, _ceil(rows, 128)), 2, width), _wide(x))
    grid = (_ceil(width, 32), len(parts))
    _launch(xp, "layer_norm", "layer_norm_columns", x, grid, (32, 8), (g, x, mean, rstd, parts, rows, width))
    gw, gb = parts[0] if len(parts) == 1 else parts.sum(0)
    return gx, gw, gb


def _channels(x: Any) -> tuple[Any, int, int]:
    """For ``(N, C, ...)``: the grid, the elements of a channel, and how many of them are neighbours in memory."""
    channels = x.shape[1]
    count = x.size // channels
    shares = min(_ceil(count, 4096), _ceil(1024, channels), 64)
    return (channels, shares), count, count // x.shape[0]


def batch_norm(xp: Any, x: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    """Normalise each channel of ``(N, C, ...)``; the output, means and (biased) variances, these wide."""
    x = xp.ascontiguousarray(x)
    grid, count, run = _channels(x)
    y, mean, var = xp.empty(x.shape, x.dtype), xp.empty(x.shape[1], _wide(x)), xp.empty(x.shape[1], _wide(x))
    parts = xp.empty((*grid, 2), _wide(x))
    w, b = [None if p is None else xp.ascontiguousarray(p) for p in (weight, bias)]
    _launch(xp, "batch_norm", "batch_norm_moments", x, grid, (_THREADS,), (x, parts, count, run))
    args = (x, _or_null(w), _or_null(b), parts, y, mean, var, count, run, eps)
    _launch(xp, "batch_norm", "batch_norm", x, grid, (_THREADS,), args, b if w is None else w)
    return y, mean, var


def batch_norm_backward(xp: Any, g: Any, x: Any, weight: Any, mean: Any, var: Any, eps: float) -> tuple[Any, Any, Any]:
    """The gradients of input, weight and bias; those of weight and bias are wide."""
    g, x = xp.ascontiguousarray(g), xp.ascontiguousarray(x)
    grid, count, run = _channels(x)
    gx, gw, gb = xp.empty(x.shape, x.dtype), xp.empty(x.shape[1], _wide(x)), xp.empty(x.shape[1], _wide(x))
    parts = xp.empty((*grid, 2), _wide(x))
    weight = weight if weight is None else xp.ascontiguousarray(weight)
    _launch(xp, "batch_norm", "batch_norm_sums", x, grid, (_THREADS,), (g, x, mean, var, parts, count, run, eps))
    args = (g, x, _or_null(weight), mean, var, parts, gx, gw, gb, count, run, eps)
    _launch(xp, "batch_norm", "batch_norm_backward", x, grid, (_THREADS,), args, weight)
    return gx, gw, gb


# --- element by element -----------------------------------------------------------------------------------------------


def gelu(xp: Any, x: Any, approximate: str) -> Any:
    """``x * P(X <= x)``, exact or by the tanh formula."""
    x = xp.ascontiguousarray(x)
    y = xp.empty(x.shape, x.dtype)
    _by_element(xp, "elementwise", "gelu", x, x.size, (x, y, x.size, approximate == "tanh"))
    return y


def gelu_backward(xp: Any, g: Any, x: Any, approximate: str) -> Any:
    """The input's gradient from the output's."""
    g, x = xp.ascontiguousarray(g), xp.ascontiguousarray(x)
    gx = xp.empty(x.shape, x.dtype)
    _by_element(xp, "elementwise", "gelu_backward", x, x.size, (g, x, gx, x.size, approximate == "tanh"))
    return gx


def keep_scaled(xp: Any, x: Any, keep: Any, scale: float) -> Any:
    """The input times ``scale`` where a mask of its shape is True, 0 elsewhere."""
    x = xp.ascontiguousarray(x)
    y = xp.empty(x.shape, x.dtype)
    args = (x, xp.ascontiguousarray(keep), y, x.size, float(scale))
    _by_element(xp, "elementwise", "keep_scaled", x, x.size, args)
    return y


# --- the optimizer's step ---------------------------------------------------------------------------------------------


_ADAM_BLOCK = 4096  # elements of a block of `adam`


def adam(xp: Any, arrays: Sequence[Sequence[Any]], step: int, options: dict[str, Any]) -> None:
    """One step of Adam for many parameters, in one launch.

    Args:
        xp: CuPy.
        arrays: Five lists of contiguous arrays: parameters and gradients (of one dtype), running means of the gradient
            and of its square, and largest squares, which may be empty (all wide).
        step: The number of the step, from 1.
        options: What `ddpflow.optim.Adam` keeps in a parameter group.
    """
    params = arrays[0]
    addresses = tuple([tuple([a.data.ptr for a in kind]) or (0,) * len(params) for kind in arrays])
    sizes = tuple([p.size for p in params])
    place = xp.cuda.runtime.getDevice(), xp.cuda.get_current_stream().ptr
    table = address_table(xp, place, addresses, sizes)
    decayed, (beta1, beta2) = options["lr"] * options["weight_decay"], options["betas"]
    decoupled = options["decoupled_weight_decay"]
    args = (
        *table[:4],
        table[4] if arrays[4] else 0,
        *table[5:],
        len(params),
        _ADAM_BLOCK,
        -1.0 if options["maximize"] else 1.0,
        1.0 - decayed if decoupled else 1.0,
        0.0 if decoupled else float(options["weight_decay"]),
        1.0 - beta1,
        float(beta2),
        1.0 - beta2,
        1.0 / (1.0 - beta2**step) ** 0.5,
        float(options["eps"]),
        options["lr"] / (1.0 - beta1**step),
    )
    blocks = sum([_ceil(size, _ADAM_BLOCK) for size in sizes])
    _launch(xp, "adam", "adam", params[0], (blocks,), (_THREADS,), args)


@lru_cache(maxsize=16)
def address_table(xp: Any, place: Any, addresses: tuple[tuple[int, ...], ...], sizes: tuple[int, ...]) -> Any:
    """Rows of addresses, sizes and ends on the device; kept, for they seldom change from step to step.

    Args:
        xp: CuPy.
        place: The device and the stream that the rows are written on: on another stream they would have to be waited
            for.
        addresses: Where the arrays lie, a tuple for each kind.
        sizes: The number of elements of each parameter.
    """
    ends = itertools.accumulate(_ceil(size, _ADAM_BLOCK) for size in sizes)
    return tuple(xp.asarray([*addresses, sizes, tuple(ends)]))
