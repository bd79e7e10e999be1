"""Every operation as a tensor method, under PyTorch's names."""

from typing import Any

from ddpflow.autograd.base import TensorBase
from ddpflow.autograd.ops import arithmetic
from ddpflow.autograd.views import write

__all__ = ["TensorMethods"]


class TensorMethods(TensorBase):
    """The operations of `ddpflow.autograd.ops`, bound."""

    __slots__ = ()

    # arithmetic
    add = __add__ = __radd__ = arithmetic.add
    sub = __sub__ = arithmetic.sub
    mul = __mul__ = __rmul__ = arithmetic.mul
    div = true_divide = __truediv__ = arithmetic.div
    neg = __neg__ = arithmetic.neg

    def __rsub__(self, other: Any) -> Any:
        return arithmetic.sub(other, self)

    def __rtruediv__(self, other: Any) -> Any:
        return arithmetic.div(other, self)
