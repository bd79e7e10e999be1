"""Gradient descent against its formula in NumPy."""

import numpy as np
import pytest

import ddpflow as flow
from ddpflow.optim import SGD


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize(
    ("momentum", "dampening", "nesterov"), [(0, 0, False), (0.9, 0, False), (0.9, 0.3, False), (0.8, 0, True)]
)
def test_steps_follow_the_formula(momentum, dampening, nesterov, weight_decay, maximize):
    """Five steps in float64; the first velocity is the gradient itself, without dampening."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal(4)
    p = flow.from_numpy(w.copy()).requires_grad_()
    optimizer = SGD([p], 0.1, momentum, dampening, weight_decay, nesterov, maximize=maximize)
    velocity = None
    for _ in range(5):
        g = rng.standard_normal(4)
        p.grad = flow.from_numpy(g.copy())
        optimizer.step()
        d = (-g if maximize else g) + weight_decay * w
        if momentum:
            velocity = d if velocity is None else momentum * velocity + (1 - dampening) * d
            d = d + momentum * velocity if nesterov else velocity
        w = w - 0.1 * d
        np.testing.assert_allclose(p.detach().numpy(), w, rtol=1e-13)
