"""NumPy's function names over tensors: what ``xp`` is when a rule runs on tensors, for gradients of gradients.

Only what rules use is here, with NumPy's argument names (``axis``, ``keepdims``).
"""

from typing import Any

from ddpflow.autograd.base import TensorBase
from ddpflow.autograd.ops import arithmetic

__all__ = ["namespace"]


class _Namespace:
    """The functions, as static methods."""

    add = staticmethod(arithmetic.add)
    subtract = staticmethod(arithmetic.sub)
    multiply = staticmethod(arithmetic.mul)
    divide = staticmethod(arithmetic.div)
    negative = staticmethod(arithmetic.neg)


namespace: Any = _Namespace()
TensorBase.namespace = namespace
