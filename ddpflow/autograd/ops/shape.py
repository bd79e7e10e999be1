"""The same elements in another shape: views wherever the memory allows."""

from ddpflow.autograd.op import Complexes, apply, op
from ddpflow.autograd.ops.dims import axis_of
from ddpflow.autograd.ops.extents import dims_of, sizes
from ddpflow.device import array_module
from ddpflow.dtype import as_numpy
from ddpflow.errors import DtypeError, ShapeError

__all__ = [
    "adjoint",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_shapes",
    "broadcast_tensors",
    "broadcast_to",
    "expand",
    "expand_as",
    "flatten",
    "matrix_transpose",
    "moveaxis",
    "movedim",
    "permute",
    "ravel",
    "reshape",
    "reshape_as",
    "reverse_dims",
    "squeeze",
    "swapaxes",
    "swapdims",
    "t",
    "transpose",
    "unflatten",
    "unfold",
    "unsqueeze",
    "view",
    "view_as",
    "view_as_complex",
    "view_as_real",
]


@op(samples=[((3, 4), (2, 6)), ((3, 4), (-1,)), ((), (1, 1)), ((0, 3), (3, 0))], view=True, tensors=1, name="reshape")
def _reshape(xp, a, shape):
    """The elements in another shape; a view where the strides allow it, else a copy."""
    before = a.shape
    return a.reshape(shape), (lambda g: g.reshape(before),)


def reshape(input, *shape):
    """The elements, in order, in another shape; one size may be -1. A view where the strides allow it, else a copy.

    Raises:
        ShapeError: When the number of elements differs.
    """
    wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    array = input.array
    if not array.size and -1 in wanted and 0 in wanted:
        raise ShapeError(f"reshape(): -1 is ambiguous for shape {tuple(array.shape)}: any size would do")
    return _reshape(input, tuple(wanted))


def reshape_as(input, other):
    """The elements in the shape of another tensor."""
    return _reshape(input, tuple(other.shape))


def view(input, *shape):
    """The elements in another shape on the same memory, or, given a dtype, the same bytes read as that dtype.

    Raises:
        ShapeError: When the memory's order does not allow it (use `reshape`), or the number of elements differs.
    """
    if len(shape) == 1 and not isinstance(shape[0], (int, tuple, list)) and not hasattr(shape[0], "__index__"):
        return _view_dtype(input, as_numpy(shape[0]))
    array = input.array
    result = reshape(input, *shape)
    if not array.flags.c_contiguous and array.size > 1:
        if not array_module(array).may_share_memory(array, result.array):
            raise ShapeError(
                f"view() of shape {tuple(array.shape)} with strides {tuple(input.stride())} as {tuple(result.shape)} "
                "needs a copy: use reshape()"
            )
    return result


def view_as(input, other):
    """The elements in the shape of another tensor, on the same memory."""
    return view(input, tuple(other.shape))


@op(samples=[((2, 4), "float32")], differentiable=False, name="view_dtype", tensors=1)
def _view_dtype(xp, a, dtype):
    """The same bytes read as another dtype; the last dimension changes by the ratio of the element sizes."""
    return a.view(dtype)


@op(samples=[((2, 3, 4), (2, 0, 1)), ((3, 4), (-1, 0)), ((), ())], view=True, tensors=1, name="permute")
def _permute(xp, a, dims):
    """The dimensions in another order."""
    return xp.transpose(a, dims), (lambda g: xp.transpose(g, _inverse(dims)),)


def _inverse(dims):
    """The order of dimensions that undoes another."""
    back = [0] * len(dims)
    for i, dim in enumerate(dims):
        back[dim] = i
    return tuple(back)


def permute(input, *axes, dims=None):
    """The dimensions in another order, given as numbers or as one tuple.

    Raises:
        ShapeError: When the dimensions are not each given once.
    """
    if dims is None:
        dims = axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
    ndim = input.array.ndim
    if len(dims) != ndim:
        raise ShapeError(f"permute() of {ndim} dimensions needs as many numbers, not {tuple(dims)}")
    return _permute(input, tuple(dims))


@op(samples=[((3, 4), 0, 1), ((2, 3, 4), -1, 0), ((), 0, -1)], view=True, tensors=1)
def transpose(xp, input, dim0, dim1):
    """The tensor with two dimensions exchanged."""
    if not input.ndim:
        axis_of(dim0, 0), axis_of(dim1, 0)
        return input.reshape(()), (lambda g: g,)
    return input.swapaxes(dim0, dim1), (lambda g: g.swapaxes(dim0, dim1),)


def swapaxes(input, axis0, axis1):
    """The tensor with two dimensions exchanged: `transpose` under NumPy's name."""
    return transpose(input, axis0, axis1)


def swapdims(input, dim0, dim1):
    """The tensor with two dimensions exchanged: `transpose` under another name."""
    return transpose(input, dim0, dim1)


def t(input):
    """The transpose of a matrix; vectors and 0-d tensors as they are.

    Raises:
        ShapeError: With more than two dimensions.
    """
    ndim = input.array.ndim
    if ndim > 2:
        raise ShapeError(f"t() takes at most two dimensions, not shape {tuple(input.shape)}; use transpose()")
    return transpose(input, 0, 1) if ndim == 2 else _reshape(input, input.array.shape)


def reverse_dims(input):
    """All dimensions in reverse order (the attribute ``T``)."""
    return _permute(input, tuple(range(input.array.ndim))[::-1])


def matrix_transpose(input):
    """The last two dimensions exchanged (the attribute ``mT``).

    Raises:
        ShapeError: With fewer than two dimensions.
    """
    if input.array.ndim < 2:
        raise ShapeError(f"mT needs at least two dimensions, not shape {tuple(input.shape)}")
    return transpose(input, -2, -1)


def adjoint(input):
    """The last two dimensions exchanged, and complex numbers conjugated (the attribute ``mH``)."""
    moved = matrix_transpose(input)
    return moved.conj() if moved.is_complex() else moved


def movedim(input, source, destination):
    """The dimensions ``source`` at the places ``destination``, the others in their order.

    Raises:
        ShapeError: When the two differ in number.
    """
    ndim = input.array.ndim
    source, destination = dims_of(source, ndim), dims_of(destination, ndim)
    if len(source) != len(destination):
        raise ShapeError(f"movedim() got {len(source)} dimensions for {len(destination)} places")
    if not ndim:
        return _permute(input, ())
    rest = iter([dim for dim in range(ndim) if dim not in source])
    where = dict(zip(destination, source, strict=True))
    return _permute(input, tuple([where[i] if i in where else next(rest) for i in range(ndim)]))


def moveaxis(input, source, destination):
    """The dimensions ``source`` at the places ``destination``: `movedim` under NumPy's name."""
    return movedim(input, source, destination)


@op(samples=[((3, 1), (3, 4)), ((4,), (2, 3, 4)), ((), (2,)), ((1, 3), (0, 3))], view=True, tensors=1)
def broadcast_to(xp, input, shape):
    """The tensor read as a larger shape: dimensions of length 1 repeat without memory. The result cannot be written to.

    Its gradient is the sum over what was repeated, which the engine does for every operation.
    """
    return xp.broadcast_to(input, shape), (lambda g: g,)


def expand(input, *size, implicit=False):
    """The tensor read as a larger shape; -1 keeps a length, new dimensions go in front.

    Raises:
        ShapeError: When a length other than 1 would have to change.
    """
    wanted, shape = sizes(size), input.array.shape
    lead = len(wanted) - len(shape)
    if lead < 0:
        raise ShapeError(f"expand() of shape {tuple(shape)} cannot have fewer dimensions: {wanted}")
    full = []
    for i, n in enumerate(wanted):
        held = shape[i - lead] if i >= lead else 1
        if n == -1 and i < lead:
            raise ShapeError(f"expand(): -1 in {wanted} stands for a new dimension, whose length must be given")
        if n not in (-1, held) and (held != 1 or n < 0):
            raise ShapeError(f"expand(): length {held} of shape {tuple(shape)} cannot become {n} in {wanted}")
        full.append(held if n == -1 else n)
    return broadcast_to(input, tuple(full))


def expand_as(input, other):
    """The tensor read as the shape of another."""
    return expand(input, *other.array.shape)


def broadcast_shapes(*shapes):
    """The shape that tensors of these shapes have together.

    Raises:
        ShapeError: When they do not fit.
    """
    given = [(shape,) if isinstance(shape, int) else tuple(shape) for shape in shapes]
    result = [1] * max(map(len, given), default=0)
    for shape in given:
        for i in range(-1, -len(shape) - 1, -1):
            if shape[i] != 1:
                if result[i] not in (1, shape[i]):
                    raise ShapeError(f"shapes do not broadcast together: {', '.join(map(str, shapes))}")
                result[i] = shape[i]
    return tuple(result)


def broadcast_tensors(*tensors):
    """The tensors, each read as the shape they have together."""
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    shape = broadcast_shapes(*[x.array.shape for x in tensors])
    return tuple([broadcast_to(x, shape) for x in tensors])


def squeeze(input, dim=None):
    """The tensor without its dimensions of length 1: all of them, or those given (others are left as they are)."""
    shape = input.array.shape
    chosen = range(len(shape)) if dim is None else dims_of(dim, len(shape))
    return _reshape(input, tuple([n for i, n in enumerate(shape) if n != 1 or i not in chosen]))


def unsqueeze(input, dim):
    """The tensor with a new dimension of length 1 at ``dim``."""
    shape = input.array.shape
    dim = axis_of(dim, len(shape) + 1)
    return _reshape(input, (*shape[:dim], 1, *shape[dim:]))


def flatten(input, start_dim=0, end_dim=-1):
    """The tensor with the dimensions from ``start_dim`` to ``end_dim`` made one.

    Raises:
        ShapeError: When the start lies behind the end.
    """
    shape = input.array.shape
    if not shape:
        axis_of(start_dim, 0), axis_of(end_dim, 0)
        return _reshape(input, (1,))
    start, end = axis_of(start_dim, len(shape)), axis_of(end_dim, len(shape))
    if start > end:
        raise ShapeError(f"flatten(): start_dim {start_dim} comes after end_dim {end_dim}")
    size = 1
    for n in shape[start : end + 1]:
        size *= n
    return _reshape(input, (*shape[:start], size, *shape[end + 1 :]))


def ravel(input):
    """The tensor in one dimension."""
    return _reshape(input, (input.array.size,))


def unflatten(input, dim, sizes):
    """The tensor with one dimension made several, whose sizes multiply to its length; one may be -1.

    Raises:
        ShapeError: When they do not.
    """
    shape = input.array.shape
    dim = axis_of(dim, len(shape))
    parts = list(sizes) if isinstance(sizes, (tuple, list)) else [sizes]
    known = 1
    for n in parts:
        known *= 1 if n == -1 else n
    length = shape[dim] if shape else 1
    if -1 in parts:
        parts[parts.index(-1)] = length // known if known else 0
    product = 1
    for n in parts:
        product *= n
    if product != length:
        raise ShapeError(
            f"unflatten(): {tuple(sizes)} does not multiply to {length}, dimension {dim} of {tuple(shape)}"
        )
    return _reshape(input, (*shape[:dim], *parts, *shape[dim + 1 :]))


def atleast_1d(*tensors):
    """The tensors with at least one dimension."""
    return _atleast(1, tensors, lambda x: _reshape(x, (1,)))


def atleast_2d(*tensors):
    """The tensors with at least two dimensions, new ones in front."""
    return _atleast(2, tensors, lambda x: _reshape(x, (1,) * (2 - x.array.ndim) + tuple(x.array.shape)))


def atleast_3d(*tensors):
    """The tensors with at least three dimensions: a vector becomes (1, n, 1), a matrix (m, n, 1)."""
    return _atleast(3, tensors, lambda x: _reshape(x, (*atleast_2d(x).array.shape, 1)))


def _atleast(ndim, tensors, lift):
    several = len(tensors) > 1 or isinstance(tensors[0], (tuple, list))
    if several and len(tensors) == 1:
        tensors = tensors[0]
    lifted = tuple([x if x.array.ndim >= ndim else lift(x) for x in tensors])
    return lifted if several else lifted[0]


@op(samples=[((6,), 0, 3, 2), ((2, 5), -1, 2, 1), ((4, 2), 0, 4, 1)], view=True, tensors=1)
def unfold(xp, input, dimension, size, step):
    """Windows of ``size`` elements, ``step`` apart, along a dimension; the window is the new last dimension.

    Raises:
        ShapeError: When the window is longer than the dimension, or the step is not positive.
    """
    if not input.ndim:
        if axis_of(dimension, 0) or size not in (0, 1) or step <= 0:
            raise ShapeError(f"unfold() of a 0-d tensor has no windows of size {size}, step {step}")
        return input.reshape(1)[:size], (lambda g: g.sum(),)
    dim, shape = axis_of(dimension, input.ndim), input.shape
    if not 0 <= size <= shape[dim] or step <= 0:
        raise ShapeError(f"unfold() of length {shape[dim]} has no windows of size {size}, step {step}")
    count, strides = (shape[dim] - size) // step + 1, input.strides
    found = xp.lib.stride_tricks.as_strided(
        input,
        (*shape[:dim], count, *shape[dim + 1 :], size),
        (*strides[:dim], strides[dim] * step, *strides[dim + 1 :], strides[dim]),
    )
    if hasattr(found.flags, "writeable"):
        found.flags.writeable = False  # windows overlap: a write to one would change others
    return found, (lambda g: apply(xp, _add_windows, g, shape, dim, step),)


@op(samples=[((2, 3), (6,), 0, 2), ((2, 4, 2), (2, 5), 1, 1)], tensors=1, name="add_windows")
def _add_windows(xp, input, shape, dim, step):
    """The sum of overlapping windows, each at its place: what carries a gradient back through `unfold`."""
    total = xp.zeros(shape, input.dtype)
    places = total.swapaxes(0, dim)
    count, size = input.shape[dim], input.shape[-1]
    windows = input.swapaxes(0, dim) if len(shape) > 1 else input
    for k in range(size):
        places[k : k + step * (count - 1) + 1 : step] += windows[..., k]
    return total, (lambda g: apply(xp, unfold, g, dim, size, step),)


@op(samples=[((3, 2),), ((2, 4, 2),)], view=True)
def view_as_complex(xp, input):
    """The last dimension, of length 2, read as real and imaginary parts.

    Raises:
        ShapeError: When its length is not 2.
    """
    if not input.ndim or input.shape[-1] != 2:
        raise ShapeError(f"view_as_complex() needs a last dimension of length 2, not shape {tuple(input.shape)}")
    if input.dtype not in (xp.float32, xp.float64):
        raise DtypeError(f"view_as_complex() takes float32 or float64, not {input.dtype}")
    found = input.view("complex64" if input.dtype.itemsize == 4 else "complex128")[..., 0]
    return found, (lambda g: apply(xp, view_as_real, xp.conj(g)),)


@op(samples=[(Complexes((3,)),), (Complexes(()),)], view=True)
def view_as_real(xp, input):
    """Complex numbers read as a last dimension of length 2: real and imaginary parts."""
    if input.dtype.kind != "c":
        raise DtypeError(f"view_as_real() takes complex numbers, not {input.dtype}")
    found = input[..., None].view("float32" if input.dtype.itemsize == 8 else "float64")
    return found, (lambda g: apply(xp, view_as_complex, g),)
