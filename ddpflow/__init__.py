"""ddpflow: tensors, autograd and data-parallel training on NumPy and CuPy."""

from ddpflow.autograd.tensor import Size, Tensor
from ddpflow.autograd import namespace as _namespace  # noqa: F401  (rules run on tensors through it)

__all__ = ["Size", "Tensor"]
