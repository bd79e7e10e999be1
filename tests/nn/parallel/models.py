"""Small models and rank functions for the tests of data-parallel training; importable in every rank."""

import numpy as np

from ddpflow.autograd.tensor import Tensor
from ddpflow.nn.module import Module
from ddpflow.nn.parallel.distributed import DistributedDataParallel
from ddpflow.nn.parameter import Parameter


def tensor(values, dtype=np.float64):
    """Returns a tensor of the values."""
    return Tensor(np.array(values, dtype))


class Weights(Module):
    """Holds some scalars-or-vectors ``w0``, ``w1``, ... and computes the sum of those asked for, each times x."""

    def __init__(self, *values, frozen=(), dtype=np.float64):
        super().__init__()
        for i, value in enumerate(values):
            setattr(self, f"w{i}", Parameter(tensor(value, dtype), requires_grad=i not in frozen))

    def forward(self, x, use=None):
        """Returns ``sum(w_i * x)`` over the indices in ``use`` (all when None), in that order."""
        weights = list(self.parameters())
        out = None
        for i in range(len(weights)) if use is None else use:
            term = weights[i] * x
            out = term if out is None else out + term
        return out


class Remember(Module):
    """Returns buffer + x and keeps x in the buffer."""

    def __init__(self, values):
        super().__init__()
        self.register_buffer("last", tensor(values))
        self.w = Parameter(tensor(1.0))

    def forward(self, x):
        """Returns the buffer plus x (and w, times zero)."""
        out = self.last + x + self.w * 0.0
        self.last = Tensor(x.array.copy())
        return out


def total(x):
    """Returns the sum of all elements, and nothing else to lean on."""
    return x.sum()


def grads(module):
    """Returns the gradients by name, as lists; None where there is none."""
    return {n: None if p.grad is None else p.grad.tolist() for n, p in module.named_parameters()}


def wrap(module, **options):
    """Returns the module wrapped for data-parallel training."""
    return DistributedDataParallel(module, **options)
