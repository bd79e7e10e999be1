"""Einstein's summation convention, as products of matrices."""

import math

from ddpflow.autograd.ops.products import matmul
from ddpflow.errors import ShapeError, ValueRangeError

__all__ = ["einsum"]

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def einsum(equation, *operands):
    """Sums of products of elements, as an equation over the dimensions' letters says.

    Operands are combined from left to right, two at a time, each time as one batched matrix product.

    Args:
        equation: Such as ``"ij,jk->ik"``; ``...`` stands for any leading dimensions; without ``->`` the letters that
            appear once, in alphabetical order, are the output. Or tensors and lists of numbers in turn.
        operands: The tensors, or one list of them.

    Raises:
        ShapeError: When letters and shapes do not fit.
        ValueRangeError: When the equation cannot be read.

    Example:
        >>> import ddpflow
        >>> ddpflow.einsum("ij,j->i", ddpflow.ones(2, 3), ddpflow.arange(3.0))
        tensor([3., 3.])
    """
    if not isinstance(equation, str):
        equation, operands = _from_lists([equation, *operands])
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    inputs, output = _parse(equation, [x.array.shape for x in operands])
    sizes = _sizes(inputs, operands)
    pending = [_without_repeats(x, labels) for x, labels in zip(operands, inputs, strict=True)]
    result, labels = pending[0]
    for i, (other, other_labels) in enumerate(pending[1:], 2):
        wanted = set(output).union(*[names for _, names in pending[i:]])
        result, labels = _pair(result, labels, other, other_labels, wanted, sizes)
    drop = [i for i, name in enumerate(labels) if name not in output]
    if drop:
        result = result.sum(drop, dtype=result.dtype)
        labels = [name for name in labels if name in output]
    return result.permute(*[labels.index(name) for name in output]) if output else result


def _from_lists(parts):
    """The equation of the form with lists of dimension numbers."""
    operands, terms = [], []
    while len(parts) > 1:
        operands.append(parts[0])
        terms.append(_letters(parts[1]))
        parts = parts[2:]
    return ",".join(terms) + ("->" + _letters(parts[0]) if parts else ""), operands


def _letters(numbers):
    return "".join(["..." if n is Ellipsis else _LETTERS[n] for n in numbers])


def _parse(equation, shapes):
    """The labels of each operand and of the output; an ellipsis becomes numbers, counted from the right."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ValueRangeError(f"einsum {equation!r} has {len(terms)} terms for {len(shapes)} tensors")
    inputs = []
    for term, shape in zip(terms, shapes, strict=True):
        named = term.replace("...", "", 1)
        extra = len(shape) - len(named)
        if not all(c in _LETTERS for c in named) or extra < 0 or (extra and "..." not in term):
            raise ShapeError(f"einsum {equation!r}: the term {term!r} does not fit a tensor of shape {tuple(shape)}")
        head, dots, tail = term.partition("...")
        inputs.append([*head, *(range(-extra, 0) if dots else ()), *tail])
    wide = max((sum(isinstance(name, int) for name in labels) for labels in inputs), default=0)
    if not arrow:
        names = [name for labels in inputs for name in labels if isinstance(name, str)]
        return inputs, [*range(-wide, 0), *sorted(name for name in set(names) if names.count(name) == 1)]
    head, dots, tail = right.partition("...")
    output = [*head, *(range(-wide, 0) if dots else ()), *tail]
    known = {name for labels in inputs for name in labels}
    for name in output:
        if name not in known or output.count(name) > 1:
            raise ValueRangeError(f"einsum {equation!r}: {name!r} in the output must appear once there, and in a term")
    return inputs, output


def _sizes(inputs, operands):
    """The size of each label; a size of 1 is repeated to fit another."""
    sizes: dict[object, int] = {}
    for labels, x in zip(inputs, operands, strict=True):
        for name, n in zip(labels, x.array.shape, strict=True):
            if sizes.setdefault(name, n) != n:
                if 1 not in (n, sizes[name]):
                    raise ShapeError(f"einsum(): dimension {name!r} is {sizes[name]} in one tensor and {n} in another")
                sizes[name] = max(n, sizes[name])
    return sizes


def _without_repeats(x, labels):
    """The diagonals along which a label appears twice."""
    labels = list(labels)
    for name in list(dict.fromkeys(labels)):
        while labels.count(name) > 1:
            first = labels.index(name)
            second = labels.index(name, first + 1)
            x = x.diagonal(0, first, second)
            labels = [other for i, other in enumerate(labels) if i not in (first, second)] + [name]
    return x, labels


def _pair(a, a_names, b, b_names, wanted, sizes):
    """Multiply two operands and sum over what nobody wants any more."""
    a, a_names = _sum_alone(a, a_names, set(b_names) | wanted)
    b, b_names = _sum_alone(b, b_names, set(a_names) | wanted)
    batch = [name for name in a_names if name in b_names and name in wanted]
    inner = [name for name in a_names if name in b_names and name not in wanted]
    rows = [name for name in a_names if name not in b_names]
    columns = [name for name in b_names if name not in a_names]
    left = _blocks(a, a_names, (batch, rows, inner), sizes)
    right = _blocks(b, b_names, (batch, inner, columns), sizes)
    order = batch + rows + columns
    return matmul(left, right).reshape([sizes[name] for name in order]), order


def _sum_alone(x, names, needed):
    drop = [i for i, name in enumerate(names) if name not in needed]
    return (x.sum(drop, dtype=x.dtype) if drop else x), [name for name in names if name in needed]


def _blocks(x, names, groups, sizes):
    """The tensor as a stack of matrices whose dimensions are the groups of labels."""
    order = [name for group in groups for name in group]
    x = x.permute(*[names.index(name) for name in order]) if order else x
    full = [sizes[name] for name in order]
    if list(x.array.shape) != full:
        x = x.expand(*full)
    return x.reshape([math.prod([sizes[name] for name in group]) for group in groups])
