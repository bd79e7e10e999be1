"""L-BFGS finds minima that are known."""

import numpy as np
import pytest

import ddpflow as flow
from ddpflow.optim import LBFGS


def _minimize(f, start, steps=20, **options):
    x = flow.tensor(start, dtype=flow.float64, requires_grad=True)
    optimizer = LBFGS([x], **options)

    def closure():
        optimizer.zero_grad()
        loss = f(x)
        loss.backward()
        return loss

    first = optimizer.step(closure)
    for _ in range(steps - 1):
        optimizer.step(closure)
    return x.detach().numpy(), first.item()


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_a_quadratic_is_solved(line_search):
    """The minimum of a positive definite form is the solution of its linear system; the first loss is returned."""
    A, b = np.array([[4.0, 1.0], [1.0, 3.0]]), np.array([1.0, 2.0])

    def f(x):
        return 0.5 * (x @ (flow.from_numpy(A) @ x)) - flow.from_numpy(b) @ x

    x, first = _minimize(f, [2.0, 1.0], line_search_fn=line_search)
    np.testing.assert_allclose(x, np.linalg.solve(A, b), rtol=1e-4)  # it stops at a change of 1e-9
    assert first == pytest.approx(0.5 * np.array([2, 1]) @ A @ [2, 1] - b @ [2, 1])


def test_rosenbrocks_valley_with_a_line_search():
    """The curved valley ends at (1, 1)."""
    x, _ = _minimize(
        lambda x: (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2, [-1.2, 1.0], 30, line_search_fn="strong_wolfe"
    )
    np.testing.assert_allclose(x, [1.0, 1.0], rtol=1e-4)


def test_misuse_is_refused():
    """No closure, an unknown line search, and parameter groups."""
    p, q = (flow.zeros(1, requires_grad=True) for _ in range(2))
    with pytest.raises(TypeError, match="closure"):
        LBFGS([p]).step()
    with pytest.raises(ValueError, match="strong_wolfe"):
        LBFGS([p], line_search_fn="armijo")
    with pytest.raises(ValueError, match="parameter groups"):
        LBFGS([{"params": [p]}, {"params": [q]}])
