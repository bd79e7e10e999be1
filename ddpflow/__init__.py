"""ddpflow: tensors, autograd and data-parallel training on NumPy and CuPy.

    import ddpflow as torch

is enough for most scripts. Whole rooms (``nn``, ``optim``, ``comm`` ...) are loaded when first used.
"""

import importlib
import math as _math
from typing import TYPE_CHECKING, Any

from ddpflow import compat as _compat
from ddpflow import draws as _draws
from ddpflow import factories as _factories
from ddpflow import random as random
from ddpflow import typed as _typed
from ddpflow.autograd import namespace as _namespace  # noqa: F401  (rules run on tensors through it)
from ddpflow.autograd import ops as _ops
from ddpflow.autograd.mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from ddpflow.autograd.ops.activation import celu, hardshrink, prelu, relu, selu, sigmoid, threshold
from ddpflow.autograd.ops.arithmetic import *
from ddpflow.autograd.ops.arrange import *
from ddpflow.autograd.ops.compare import *
from ddpflow.autograd.ops.complexes import *
from ddpflow.autograd.ops.copies import *
from ddpflow.autograd.ops.diagonals import *
from ddpflow.autograd.ops.distance import cdist
from ddpflow.autograd.ops.einsum import *
from ddpflow.autograd.ops.elementwise import *
from ddpflow.autograd.ops.gathering import gather
from ddpflow.autograd.ops.indexing import index_put
from ddpflow.autograd.ops.joining import *
from ddpflow.autograd.ops.matrices import (
    cholesky,
    cholesky_inverse,
    cholesky_solve,
    det,
    inverse,
    logdet,
    matrix_exp,
    pinverse,
    qr,
    slogdet,
    svd,
    triangular_solve,
)
from ddpflow.autograd.ops.padding import constant_pad_nd
from ddpflow.autograd.ops.pairwise import *
from ddpflow.autograd.ops.products import *
from ddpflow.autograd.ops.quantiles import *
from ddpflow.autograd.ops.reduce import *
from ddpflow.autograd.ops.rounding import *
from ddpflow.autograd.ops.sampling import *
from ddpflow.autograd.ops.scan import *
from ddpflow.autograd.ops.scattering import *
from ddpflow.autograd.ops.selecting import *
from ddpflow.autograd.ops.shape import *
from ddpflow.autograd.ops.softmax import log_softmax, softmax
from ddpflow.autograd.ops.sorting import *
from ddpflow.autograd.ops.special import *
from ddpflow.autograd.ops.statistics import *
from ddpflow.autograd.ops.strided import as_strided
from ddpflow.autograd.printing import set_printoptions
from ddpflow.autograd.tensor import Size, Tensor
from ddpflow.compat import *
from ddpflow.device import Device as device
from ddpflow.draws import *
from ddpflow.dtype import DType as dtype
from ddpflow.dtype import (
    bfloat16,
    complex64,
    complex128,
    finfo,
    float16,
    float32,
    float64,
    get_default_dtype,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ddpflow.dtype import bool_ as bool
from ddpflow.factories import *
from ddpflow.memory import keep_freed_memory as _keep_freed_memory
from ddpflow.random import Generator, initial_seed, manual_seed, seed
from ddpflow.typed import *

if TYPE_CHECKING:
    from ddpflow import autograd as autograd
    from ddpflow import comm as comm
    from ddpflow import linalg as linalg
    from ddpflow import nn as nn
    from ddpflow import optim as optim
    from ddpflow import testing as testing
    from ddpflow import utils as utils
    from ddpflow.serialization import load, save
    from ddpflow.threads import get_num_interop_threads as get_num_interop_threads
    from ddpflow.threads import get_num_threads as get_num_threads
    from ddpflow.threads import set_num_interop_threads as set_num_interop_threads
    from ddpflow.threads import set_num_threads as set_num_threads

__version__ = "0.1.0.dev0"

_keep_freed_memory()

half = float16
float = float32
double = float64
short = int16
int = int32
long = int64
cfloat = complex64
cdouble = complex128
inf = _math.inf
nan = _math.nan
pi = _math.pi
e = _math.e
newaxis = None
# Accepted where PyTorch takes a layout or a memory format; there is one of each here.
strided = "strided"
contiguous_format = "contiguous_format"
preserve_format = "preserve_format"
channels_last = "channels_last"

__all__ = [
    "Generator",
    "Size",
    "Tensor",
    "__version__",
    "as_strided",
    "bfloat16",
    "bool",
    "cdist",
    "cdouble",
    "celu",
    "cfloat",
    "channels_last",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "complex128",
    "complex64",
    "constant_pad_nd",
    "contiguous_format",
    "det",
    "device",
    "double",
    "dtype",
    "e",
    "enable_grad",
    "finfo",
    "float",
    "float16",
    "float32",
    "float64",
    "gather",
    "get_default_dtype",
    "half",
    "hardshrink",
    "iinfo",
    "index_put",
    "inf",
    "inference_mode",
    "initial_seed",
    "int",
    "int16",
    "int32",
    "int64",
    "int8",
    "inverse",
    "is_grad_enabled",
    "load",
    "log_softmax",
    "logdet",
    "long",
    "manual_seed",
    "matrix_exp",
    "nan",
    "newaxis",
    "no_grad",
    "pi",
    "pinverse",
    "prelu",
    "preserve_format",
    "qr",
    "relu",
    "save",
    "seed",
    "selu",
    "set_default_dtype",
    "set_grad_enabled",
    "set_printoptions",
    "short",
    "sigmoid",
    "slogdet",
    "softmax",
    "strided",
    "svd",
    "threshold",
    "triangular_solve",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
]
# Every public function of these files is on the face.
__all__ += _ops.arithmetic.__all__
__all__ += _ops.arrange.__all__
__all__ += _ops.compare.__all__
__all__ += _ops.quantiles.__all__
__all__ += _ops.einsum.__all__
__all__ += _ops.complexes.__all__
__all__ += _ops.copies.__all__
__all__ += _ops.diagonals.__all__
__all__ += _ops.elementwise.__all__
__all__ += _ops.joining.__all__
__all__ += _ops.pairwise.__all__
__all__ += _ops.products.__all__
__all__ += _ops.reduce.__all__
__all__ += _ops.rounding.__all__
__all__ += _ops.sampling.__all__
__all__ += _ops.scan.__all__
__all__ += _ops.scattering.__all__
__all__ += _ops.selecting.__all__
__all__ += _ops.shape.__all__
__all__ += _ops.sorting.__all__
__all__ += _ops.special.__all__
__all__ += _ops.statistics.__all__
__all__ += _compat.__all__
__all__ += _draws.__all__
__all__ += _factories.__all__
__all__ += _typed.__all__

# Rooms that are loaded on first use, so that `import ddpflow` stays quick.
_ROOMS = {
    "accelerator": "ddpflow.accelerator",
    "amp": "ddpflow.amp",
    "autograd": "ddpflow.autograd",
    "backends": "ddpflow.backends",
    "comm": "ddpflow.comm",
    "cuda": "ddpflow.cuda",
    "distributed": "ddpflow.comm",
    "distributions": "ddpflow.distributions",
    "launch": "ddpflow.launch",
    "linalg": "ddpflow.linalg",
    "multiprocessing": "ddpflow.multiprocessing",
    "nn": "ddpflow.nn",
    "optim": "ddpflow.optim",
    "testing": "ddpflow.testing",
    "utils": "ddpflow.utils",
}


# And functions whose files need much of the standard library.
_LATER = {
    name: f"ddpflow.{room}"
    for room, names in {
        "amp": "autocast get_autocast_dtype is_autocast_enabled",
        "nn.functional": "adaptive_avg_pool1d adaptive_max_pool1d avg_pool1d bilinear channel_shuffle conv1d conv2d "
        "conv3d conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity group_norm layer_norm max_pool1d "
        "max_pool2d max_pool3d pairwise_distance pdist pixel_shuffle pixel_unshuffle rms_norm",
        "serialization": "load save",
        "threads": "get_num_interop_threads get_num_threads set_num_interop_threads set_num_threads",
        "windows": "bartlett_window blackman_window hamming_window hann_window kaiser_window",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(_ROOMS[name])
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    if name == "default_generator":
        return random.default_generator()  # this thread's
    raise AttributeError(f"module 'ddpflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS, *_LATER})
