"""Random numbers shaped like, or driven by, tensors. None has a gradient."""

from ddpflow.autograd.op import Floats, Ints, op
from ddpflow.errors import DtypeError, ShapeError, ValueRangeError
from ddpflow.random import draw_normal, draw_uniform, stream

__all__ = [
    "bernoulli",
    "multinomial",
    "poisson",
    "rand_like",
    "randint_like",
    "randn_like",
]


def _floating(name, x):
    if x.dtype.kind not in "fcV":
        raise DtypeError(f"{name}() makes floating numbers, not {x.dtype}; pass dtype= or a floating tensor")
    return x.dtype


def rand_like(input, *, dtype=None, device=None, requires_grad=False, generator=None, memory_format=None):
    """Even draws from [0, 1) in the shape, dtype and device of a tensor."""
    from_ = input if dtype is None else input.detach().to(dtype)
    made = _rand_like(from_, generator=generator)
    return _placed(made, device, requires_grad)


def randn_like(input, *, dtype=None, device=None, requires_grad=False, generator=None, memory_format=None):
    """Draws from the standard normal distribution in the shape, dtype and device of a tensor."""
    from_ = input if dtype is None else input.detach().to(dtype)
    made = _randn_like(from_, generator=generator)
    return _placed(made, device, requires_grad)


def randint_like(input, low=0, high=None, *, dtype=None, device=None, requires_grad=False, generator=None):
    """Integers from ``[low, high)`` (one bound: from 0) in the shape, dtype and device of a tensor."""
    if high is None:
        low, high = 0, low
    made = _randint_like(input if dtype is None else input.detach().to(dtype), low, high, generator=generator)
    return _placed(made, device, requires_grad)


def _placed(made, device, requires_grad):
    if device is not None:
        made = made.to(device)
    return made.requires_grad_() if requires_grad else made


@op(samples=[((3, 4),), ((),), ((0, 2),)], differentiable=False, name="rand_like")
def _rand_like(xp, x, generator=None):
    """Even draws from [0, 1) in the shape and dtype of a tensor."""
    return draw_uniform(xp, x.shape, _floating("rand_like", x), generator)


@op(samples=[((3, 4),), ((),), ((0, 2),)], differentiable=False, name="randn_like")
def _randn_like(xp, x, generator=None):
    """Normal draws in the shape and dtype of a tensor."""
    return draw_normal(xp, x.shape, _floating("randn_like", x), generator)


@op(samples=[((3, 4), 2, 9), ((), 0, 3)], differentiable=False, tensors=1, name="randint_like")
def _randint_like(xp, x, low, high, generator=None):
    """Integers from a range in the shape and dtype of a tensor."""
    if high <= low:
        raise ValueRangeError(f"randint needs low < high, not [{low}, {high})")
    return xp.asarray(stream(xp, generator).integers(low, high, x.shape)).astype(x.dtype)


@op(samples=[(Floats((3, 4), 0.0, 1.0),), (Floats((), 0.0, 1.0),)], differentiable=False)
def bernoulli(xp, input, p=None, generator=None):
    """Ones with the probability that each element (or ``p``) gives, zeros else; in the input's dtype.

    Raises:
        ValueRangeError: When a probability is outside [0, 1].
    """
    chance = input if p is None else p
    if p is None and input.dtype.kind in "iub":
        raise DtypeError(f"bernoulli() takes probabilities of a floating dtype, not {input.dtype}")
    if not bool(((xp.asarray(chance) >= 0) & (xp.asarray(chance) <= 1)).all()):
        raise ValueRangeError("bernoulli() takes probabilities from 0 to 1")
    return (xp.asarray(stream(xp, generator).random(input.shape)) < chance).astype(input.dtype)


@op(samples=[(Floats((3, 4), 0.5, 9.0),)], differentiable=False)
def poisson(xp, input, generator=None):
    """Draws from the Poisson distribution with the rates that the input holds, in its dtype."""
    return xp.asarray(stream(xp, generator).poisson(input)).astype(input.dtype)


@op(
    samples=[(Floats((5,), 0.1, 1.0), 3), (Floats((2, 5), 0.1, 1.0), 9, True), (Ints((4,), 4, 1), 2)],
    differentiable=False,
    tensors=1,
)
def multinomial(xp, input, num_samples, replacement=False, *, generator=None):
    """Indices drawn with the weights of each row (they need not sum to 1), with or without putting back.

    Without replacement by the exponential race: the smallest of ``Exp(1) / weight`` win, in order, which draws each
    next index among the rest with the right odds (Efraimidis and Spirakis, 2006).

    Raises:
        ShapeError: When the input has not one or two dimensions, or a row has too few positive weights.
    """
    if input.ndim not in (1, 2):
        raise ShapeError(f"multinomial() takes weights of 1 or 2 dimensions, not shape {tuple(input.shape)}")
    if num_samples <= 0:
        raise ShapeError(f"multinomial() cannot draw {num_samples} samples")
    rows = (input if input.ndim == 2 else input[None]).astype("float64")
    if not bool(xp.isfinite(rows).all()) or bool((rows < 0).any()) or bool((rows.sum(1) <= 0).any()):
        raise ShapeError("multinomial() takes finite weights >= 0 with a positive sum in each row")
    source = stream(xp, generator)
    if replacement:
        edges = rows.cumsum(1)
        draws = xp.asarray(source.random((rows.shape[0], num_samples))) * edges[:, -1:]
        # For each draw, how many cumulative weights lie at or below it; rounding must not pass the last positive one.
        found = xp.stack([xp.searchsorted(e, d, side="right") for e, d in zip(edges, draws, strict=True)])
        last = rows.shape[1] - 1 - (rows[:, ::-1] > 0).argmax(1)
        found = xp.minimum(found, last[:, None])
    else:
        if num_samples > rows.shape[1] or bool(((rows > 0).sum(1) < num_samples).any()):
            raise ShapeError(
                f"multinomial() cannot draw {num_samples} different indices of {rows.shape[1]} "
                "(zero weights are never drawn); pass replacement=True"
            )
        race = xp.asarray(source.standard_exponential(rows.shape))
        race = xp.where(rows > 0, race / xp.where(rows > 0, rows, 1.0), xp.inf)
        found = xp.argsort(race, 1)[:, :num_samples]
    found = found.astype("int64")
    return found if input.ndim == 2 else found[0]
