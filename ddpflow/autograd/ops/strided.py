"""Elements of a tensor's memory at any sizes and strides."""

from ddpflow.autograd.kernels.accumulate import accumulate
from ddpflow.autograd.op import apply, op
from ddpflow.autograd.ops.extents import sizes
from ddpflow.errors import IndexRangeError, ShapeError

__all__ = ["as_strided"]


def as_strided(input, size, stride, storage_offset=None):
    """A view of the tensor's memory with the given sizes and strides (PyTorch's ``as_strided``).

    Args:
        input: A contiguous tensor.
        size: The view's shape.
        stride: How many elements of memory lie between neighbours, one number >= 0 for each dimension.
        storage_offset: How many elements of the memory that the input is a view of lie before the view's first; None
            to start where the input does.

    Returns:
        A view; where its elements overlap, a read-only one.

    Raises:
        ShapeError: When the input is not contiguous, or sizes and strides differ in number or are negative.
        IndexRangeError: When an element would lie outside the input.

    Example:
        >>> import ddpflow
        >>> ddpflow.as_strided(ddpflow.arange(5), (3, 3), (1, 1)).tolist()  # windows of three
        [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    """
    size, stride = sizes((size,)), sizes((stride,))
    if len(size) != len(stride) or min((*size, *stride), default=0) < 0:
        raise ShapeError(f"as_strided(): sizes {size} and strides {stride} must be as many, and none negative")
    if not input.array.flags.c_contiguous:
        raise ShapeError(f"as_strided() takes contiguous memory, not strides {input.stride()}: call contiguous() first")
    start = 0 if storage_offset is None else storage_offset - input.storage_offset()
    last = start + sum([(n - 1) * step for n, step in zip(size, stride, strict=True)])
    if 0 not in size and not 0 <= start <= last < input.array.size:
        raise IndexRangeError(
            f"as_strided(): sizes {size} with strides {stride} reach from element {start} to {last} of a tensor of "
            f"{input.array.size}"
        )
    return _strided(input, size, stride, start)


@op(
    samples=[((6,), (3, 3), (1, 1), 1), ((3, 4), (2, 2), (5, 2), 1), ((5,), (), (), 4), ((2, 2), (0, 3), (2, 1), 0)],
    view=True,
    tensors=1,
    name="strided",
)
def _strided(xp, input, size, stride, start):
    """The elements ``start + sum(index * stride)`` of a tensor, in its order, for each index of a size."""
    shape = input.shape
    if 0 in size:
        return input.reshape(-1)[:0].reshape(size), (lambda g: xp.zeros(shape, g.dtype),)
    item = input.dtype.itemsize
    found = xp.lib.stride_tricks.as_strided(
        xp.ascontiguousarray(input).reshape(-1)[start:], size, [n * item for n in stride]
    )
    if _overlaps(size, stride) and hasattr(found.flags, "writeable"):
        found.flags.writeable = False  # a write to one element would change others
    return found, (lambda g: apply(xp, _add_strided, g, shape, stride, start),)


@op(samples=[((3, 3), (6,), (1, 1), 1), ((2, 2), (3, 4), (5, 2), 1), ((), (5,), (), 4)], tensors=1, name="add_strided")
def _add_strided(xp, input, shape, stride, start):
    """The sum of what stands at each place of a shape: what carries a gradient back through `as_strided`."""
    size, places = input.shape, xp.zeros(input.shape, "int64") + start
    for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
        places += (xp.arange(n) * step).reshape(n, *[1] * (len(size) - 1 - axis))
    count = 1
    for n in shape:
        count *= n
    total = accumulate(xp, count, places.reshape(-1), input.reshape(-1, 1)).reshape(shape)
    return total, (lambda g: apply(xp, _strided, g, size, stride, start),)


def _overlaps(size, stride):
    """Whether two indices may name one element: no, when each step passes all that the shorter steps reach."""
    reach = 0
    for step, n in sorted([(step, n) for n, step in zip(size, stride, strict=True) if n > 1]):
        if step <= reach:
            return True
        reach += (n - 1) * step
    return False
