"""ddpflow: tensors, autograd and data-parallel training on NumPy and CuPy."""

from ddpflow.autograd import namespace as _namespace  # noqa: F401  (rules run on tensors through it)
from ddpflow.autograd import ops as _ops
from ddpflow.autograd.ops.activation import celu, hardshrink, prelu, relu, selu, sigmoid, threshold
from ddpflow.autograd.ops.arithmetic import *
from ddpflow.autograd.ops.compare import *
from ddpflow.autograd.ops.elementwise import *
from ddpflow.autograd.ops.pairwise import *
from ddpflow.autograd.ops.products import *
from ddpflow.autograd.ops.reduce import *
from ddpflow.autograd.ops.rounding import *
from ddpflow.autograd.ops.scan import *
from ddpflow.autograd.ops.special import *
from ddpflow.autograd.ops.statistics import *
from ddpflow.autograd.tensor import Size, Tensor

__all__ = ["Size", "Tensor", "celu", "hardshrink", "prelu", "relu", "selu", "sigmoid", "threshold"]
# Every public function of these families is on the face.
__all__ += _ops.arithmetic.__all__
__all__ += _ops.compare.__all__
__all__ += _ops.elementwise.__all__
__all__ += _ops.products.__all__
__all__ += _ops.pairwise.__all__
__all__ += _ops.reduce.__all__
__all__ += _ops.rounding.__all__
__all__ += _ops.scan.__all__
__all__ += _ops.special.__all__
__all__ += _ops.statistics.__all__
