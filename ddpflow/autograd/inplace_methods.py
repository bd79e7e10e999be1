"""The in-place methods of tensors."""

from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase, wrap
from ddpflow.autograd.inplace import in_place, reshaped_in_place
from ddpflow.autograd.ops import (
    activation,
    arithmetic,
    compare,
    diagonals,
    elementwise,
    indexing,
    pairwise,
    products,
    rounding,
    scan,
    scattering,
    selecting,
    shape,
    special,
)
from ddpflow.autograd.views import write
from ddpflow.device import array_module, copy_to_pinned, device_of
from ddpflow.errors import ShapeError, ValueRangeError
from ddpflow.random import Generator, draw_normal, draw_uniform, stream

__all__ = ["InplaceMethods"]


class InplaceMethods(TensorBase):
    """Every method whose name ends in an underscore, the operators such as ``+=``, and assignment to a part."""

    __slots__ = ()

    # arithmetic
    add_ = __iadd__ = in_place(arithmetic.add, np.add)
    sub_ = subtract_ = __isub__ = in_place(arithmetic.sub, np.subtract)
    mul_ = multiply_ = __imul__ = in_place(arithmetic.mul, np.multiply)
    div_ = divide_ = true_divide_ = __itruediv__ = in_place(arithmetic.div, np.true_divide)
    floor_divide_ = __ifloordiv__ = in_place(arithmetic.floor_divide)
    remainder_ = __imod__ = in_place(arithmetic.remainder)
    fmod_ = in_place(arithmetic.fmod)
    neg_ = negative_ = in_place(arithmetic.neg)
    pow_ = __ipow__ = in_place(arithmetic.pow)
    float_power_ = in_place(arithmetic.float_power)
    square_ = in_place(arithmetic.square)
    reciprocal_ = in_place(arithmetic.reciprocal)
    abs_ = absolute_ = in_place(arithmetic.abs)
    sign_ = in_place(arithmetic.sign)
    clamp_ = clip_ = in_place(arithmetic.clamp)
    clamp_min_ = in_place(arithmetic.clamp_min)
    clamp_max_ = in_place(arithmetic.clamp_max)
    lerp_ = in_place(arithmetic.lerp)
    addcmul_ = in_place(arithmetic.addcmul)
    addcdiv_ = in_place(arithmetic.addcdiv)

    # pairwise
    atan2_ = arctan2_ = in_place(pairwise.atan2)
    hypot_ = in_place(pairwise.hypot)
    copysign_ = in_place(pairwise.copysign)
    xlogy_ = in_place(pairwise.xlogy)
    heaviside_ = in_place(pairwise.heaviside)
    nextafter_ = in_place(pairwise.nextafter)
    gcd_ = in_place(pairwise.gcd)
    lcm_ = in_place(pairwise.lcm)
    ldexp_ = in_place(pairwise.ldexp)

    # compare
    eq_ = in_place(compare.eq)
    ne_ = not_equal_ = in_place(compare.ne)
    lt_ = less_ = in_place(compare.lt)
    le_ = less_equal_ = in_place(compare.le)
    gt_ = greater_ = in_place(compare.gt)
    ge_ = greater_equal_ = in_place(compare.ge)
    logical_and_ = in_place(compare.logical_and)
    logical_or_ = in_place(compare.logical_or)
    logical_xor_ = in_place(compare.logical_xor)
    logical_not_ = in_place(compare.logical_not)
    bitwise_and_ = __iand__ = in_place(compare.bitwise_and)
    bitwise_or_ = __ior__ = in_place(compare.bitwise_or)
    bitwise_xor_ = __ixor__ = in_place(compare.bitwise_xor)
    bitwise_not_ = in_place(compare.bitwise_not)
    bitwise_left_shift_ = __ilshift__ = in_place(compare.bitwise_left_shift)
    bitwise_right_shift_ = __irshift__ = in_place(compare.bitwise_right_shift)

    # elementwise
    exp_ = in_place(elementwise.exp)
    exp2_ = in_place(elementwise.exp2)
    expm1_ = in_place(elementwise.expm1)
    log_ = in_place(elementwise.log)
    log2_ = in_place(elementwise.log2)
    log10_ = in_place(elementwise.log10)
    log1p_ = in_place(elementwise.log1p)
    sqrt_ = in_place(elementwise.sqrt)
    rsqrt_ = in_place(elementwise.rsqrt)
    sin_ = in_place(elementwise.sin)
    cos_ = in_place(elementwise.cos)
    tan_ = in_place(elementwise.tan)
    asin_ = arcsin_ = in_place(elementwise.asin)
    acos_ = arccos_ = in_place(elementwise.acos)
    atan_ = arctan_ = in_place(elementwise.atan)
    sinh_ = in_place(elementwise.sinh)
    cosh_ = in_place(elementwise.cosh)
    tanh_ = in_place(elementwise.tanh)
    asinh_ = arcsinh_ = in_place(elementwise.asinh)
    acosh_ = arccosh_ = in_place(elementwise.acosh)
    atanh_ = arctanh_ = in_place(elementwise.atanh)
    deg2rad_ = in_place(elementwise.deg2rad)
    rad2deg_ = in_place(elementwise.rad2deg)
    logit_ = in_place(elementwise.logit)
    sinc_ = in_place(elementwise.sinc)
    nan_to_num_ = in_place(elementwise.nan_to_num)
    sgn_ = in_place(elementwise.sgn)

    # rounding
    floor_ = in_place(rounding.floor)
    ceil_ = in_place(rounding.ceil)
    trunc_ = fix_ = in_place(rounding.trunc)
    round_ = in_place(rounding.round)
    frac_ = in_place(rounding.frac)

    # activation
    relu_ = in_place(activation.relu)
    sigmoid_ = in_place(activation.sigmoid)

    # special
    erf_ = in_place(special.erf)
    erfc_ = in_place(special.erfc)
    erfinv_ = in_place(special.erfinv)
    lgamma_ = in_place(special.lgamma)
    digamma_ = in_place(special.digamma)

    # scan
    cumsum_ = in_place(scan.cumsum)
    cumprod_ = in_place(scan.cumprod)

    # products
    addmm_ = in_place(products.addmm)
    baddbmm_ = in_place(products.baddbmm)
    addbmm_ = in_place(products.addbmm)
    addmv_ = in_place(products.addmv)
    addr_ = in_place(products.addr)

    # diagonals
    tril_ = in_place(diagonals.tril)
    triu_ = in_place(diagonals.triu)

    # indexing
    index_put_ = in_place(indexing.index_put)

    # selecting
    index_add_ = in_place(selecting.index_add)
    index_copy_ = in_place(selecting.index_copy)
    index_fill_ = in_place(selecting.index_fill)
    put_ = in_place(selecting.put)
    masked_fill_ = in_place(selecting.masked_fill)
    masked_scatter_ = in_place(selecting.masked_scatter)

    # scattering
    scatter_ = in_place(scattering.scatter)
    scatter_add_ = in_place(scattering.scatter_add)
    scatter_reduce_ = in_place(scattering.scatter_reduce)
    index_reduce_ = in_place(scattering.index_reduce)

    # other shapes of the same memory
    squeeze_ = reshaped_in_place(shape.squeeze)
    unsqueeze_ = reshaped_in_place(shape.unsqueeze)
    transpose_ = reshaped_in_place(shape.transpose)
    swapaxes_ = reshaped_in_place(shape.swapaxes)
    swapdims_ = reshaped_in_place(shape.swapdims)
    t_ = reshaped_in_place(shape.t)

    # parts
    def __setitem__(self, index: Any, value: Any) -> None:
        basic, chosen = indexing.parse(self.array, index)
        view = value.meta.view if isinstance(value, TensorBase) and value.meta is not None else None
        if view is not None and view.base is self and chosen is None and view.args == (basic,):
            return  # the end of `x[i] += y`, which has already written
        if basic is not None and chosen is not None:
            write(self[basic], value, chosen)  # type: ignore[index]
        else:
            write(self, value, basic if chosen is None else chosen)

    # values
    def copy_(self, src: Any, non_blocking: bool = False) -> Any:
        """Write another tensor's values, cast to this dtype, into this one; it must broadcast to this shape.

        Args:
            src: The tensor.
            non_blocking: Between a GPU and pinned memory of the same shape and dtype, let the GPU copy while the host
                goes on; see `to`.
        """
        place = device_of(self.array)
        if device_of(src.array) != place:
            if non_blocking and not (self.needs_grad or src.needs_grad) and copy_to_pinned(src.array, self.array):
                self.bump_version()
                return self
            src = src.to(device=place, non_blocking=non_blocking and place.type == "cuda")
        return write(self, src)

    def fill_(self, value: Any) -> Any:
        """Set all elements to one number.

        Raises:
            ShapeError: When the value is a tensor with dimensions.
        """
        if isinstance(value, TensorBase) and value.array.ndim:
            raise ShapeError(f"fill_() takes one number, not a tensor of shape {tuple(value.array.shape)}")
        return write(self, value)

    def zero_(self) -> Any:
        """Set all elements to 0."""
        return write(self, 0)

    def fill_diagonal_(self, fill_value: Any, wrap: bool = False) -> Any:
        """Set the main diagonal (of all dimensions, which must be equal beyond two) to one number."""
        if self.array.ndim == 2 and not wrap:
            write(diagonals.diagonal(self), fill_value)
        else:
            write(self, self.array.copy())  # checks what may be written
            array_module(self.array).fill_diagonal(self.array, fill_value, wrap)
        return self

    # random values
    def normal_(self, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Any:
        """Fill with draws from a normal distribution.

        Raises:
            ValueRangeError: When the deviation is negative.
        """
        if std < 0:
            raise ValueRangeError(f"normal_() takes a standard deviation >= 0, not {std}")
        array = self.array
        return write(self, wrap(draw_normal(array_module(array), array.shape, array.dtype, generator) * std + mean))

    def uniform_(self, a: float = 0.0, b: float = 1.0, *, generator: Generator | None = None) -> Any:
        """Fill with even draws from [a, b).

        Raises:
            ValueRangeError: When b is below a.
        """
        low, high = a, b
        if low > high:
            raise ValueRangeError(f"uniform_() takes a range from low to high, not [{low}, {high})")
        array = self.array
        drawn = draw_uniform(array_module(array), array.shape, array.dtype, generator)
        return write(self, wrap(drawn * (high - low) + low))

    def random_(self, a: int = 0, to: int | None = None, *, generator: Generator | None = None) -> Any:
        """Fill with integers from ``[a, to)``, ``[0, a)`` with one bound; without any, up to what the dtype counts."""
        array = self.array
        low, high = (a, to) if to is not None else (0, a)
        if high == 0:
            high = (
                2
                if array.dtype.kind == "b"
                else 1
                << {"f": {2: 11, 4: 24, 8: 53}}.get(array.dtype.kind, {}).get(
                    array.itemsize, min(array.itemsize * 8 - 1, 62)
                )
            )
        source = stream(array_module(array), generator)
        return write(self, wrap(array_module(array).asarray(source.integers(low, high, array.shape))))

    def bernoulli_(self, p: Any = 0.5, *, generator: Generator | None = None) -> Any:
        """Fill with ones of probability ``p`` (a number or a tensor of probabilities), zeros else."""
        array, xp = self.array, array_module(self.array)
        chance = p.array if isinstance(p, TensorBase) else p
        if not 0 <= float(xp.min(chance)) <= float(xp.max(chance)) <= 1:
            raise ValueRangeError(f"bernoulli_() takes probabilities from 0 to 1, not {p}")
        return write(self, wrap(xp.asarray(stream(xp, generator).random(array.shape) < chance)))

    def exponential_(self, lambd: float = 1.0, *, generator: Generator | None = None) -> Any:
        """Fill with draws from the exponential distribution with rate ``lambd``."""
        return self._drawn(lambda source, size: source.standard_exponential(size) / lambd, generator)

    def geometric_(self, p: float, *, generator: Generator | None = None) -> Any:
        """Fill with the number of trials of probability ``p`` until the first success."""
        return self._drawn(lambda source, size: source.geometric(p, size), generator)

    def log_normal_(self, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Any:
        """Fill with exponentials of normal draws."""
        return self._drawn(lambda source, size: np.exp(source.standard_normal(size) * std + mean), generator)

    def cauchy_(self, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Any:
        """Fill with draws from a Cauchy distribution."""
        return self._drawn(lambda source, size: np.tan(np.pi * (source.random(size) - 0.5)) * sigma + median, generator)

    def _drawn(self, draw: Any, generator: Generator | None) -> Any:
        xp = array_module(self.array)
        return write(self, wrap(xp.asarray(draw(stream(xp, generator), self.array.shape))))
