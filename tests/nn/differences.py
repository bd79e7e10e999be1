"""Parameter gradients against central differences."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ddpflow


def check_parameters(module: ddpflow.nn.Module, run: Callable[[], Any], eps: float = 1e-6) -> None:
    """Asserts that the gradients of a float64 module's parameters agree with differences in one direction each.

    The parameters are changed in place, so that whatever reads them sees the change. What `run()` returns, a tensor, is
    weighted with fixed numbers and summed up.
    """
    rng = np.random.default_rng(0)
    weights: Any = None

    def value() -> Any:
        nonlocal weights
        out = run()
        if weights is None:
            weights = ddpflow.tensor(rng.standard_normal(tuple(out.shape)))
        return (out * weights).sum()

    module.zero_grad()
    value().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        direction = ddpflow.tensor(rng.standard_normal(tuple(parameter.shape)))
        with ddpflow.no_grad():
            parameter += eps * direction
            above = value().item()
            parameter -= 2 * eps * direction
            below = value().item()
            parameter += eps * direction
        found = (parameter.grad * direction).sum().item()
        assert found == pytest.approx((above - below) / (2 * eps), rel=1e-4, abs=1e-6), name
