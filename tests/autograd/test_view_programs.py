"""Random programs of views and in-place writes, against finite differences."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import gradcheck
from ddpflow.errors import AutogradError, ShapeError

VIEWS = [
    lambda x, rng: x[rng.integers(len(x))],
    lambda x, rng: x[1:],
    lambda x, rng: x.transpose(0, -1),
    lambda x, rng: x.reshape(-1),
    lambda x, rng: x.unsqueeze(0),
    lambda x, rng: x[..., ::2],
    lambda x, rng: x.diagonal() if x.ndim == 2 else x,
    lambda x, rng: x.permute(*range(x.ndim)[::-1]),
    lambda x, rng: x.chunk(2)[0],
    lambda x, rng: list(x)[-1],
]


def program(seed, *leaves):
    """Runs a random program that starts from copies of the leaves and a buffer; every tensor it made counts."""
    rng = np.random.default_rng(seed)
    pool = [leaf * (k + 1.0) for k, leaf in enumerate(leaves)]
    pool.append(ddpflow.zeros(3, 4, dtype=ddpflow.float64))
    for _ in range(rng.integers(4, 12)):
        x, other = (pool[k] for k in rng.integers(len(pool), size=2))
        kind = rng.integers(10)
        if kind < 4 and x.ndim and len(x):
            pool.append(VIEWS[rng.integers(len(VIEWS))](x, rng))
        elif kind == 4:
            x.mul_(1.5)
        elif kind == 5 and other.shape == x.shape:
            x.add_(other * other)
        elif kind == 6 and other.shape == x.shape:
            x.copy_(other)
        elif kind == 7 and x.ndim and len(x):
            x[rng.integers(len(x))] = x[0] * 2
        elif kind == 8 and x.ndim and len(x):
            pool.append(x[rng.integers(0, len(x), 2)])
        elif kind == 9:
            pool.append(x.sin())
    return sum((x * x).sum() for x in pool)


@pytest.mark.parametrize("seed", range(80))
def test_gradients_of_random_programs(seed):
    """A program either has right gradients, or says that a value which backward needs was changed."""
    rng = np.random.default_rng(1000 + seed)
    leaves = [ddpflow.tensor(rng.uniform(0.3, 1.2, (3, 4)), requires_grad=True) for _ in range(2)]
    try:
        gradcheck(lambda *tensors: program(seed, *tensors), leaves)
    except (AutogradError, ShapeError) as error:
        assert "changed in place" in str(error) or "expanded" in str(error)
