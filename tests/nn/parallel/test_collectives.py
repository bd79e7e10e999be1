"""Collectives with gradients: values and gradients against NumPy over all ranks' inputs, in float64."""

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.autograd import engine
from ddpflow.autograd.tensor import Tensor
from ddpflow.comm.reduce import ReduceOp
from ddpflow.errors import ShapeError, ValueRangeError
from ddpflow.nn.parallel import collectives as C

N = 3


def _inputs():
    """All ranks' inputs and the weights of their losses, the same on every rank."""
    rng = np.random.default_rng(5)
    return rng.standard_normal((N, N, 4)), rng.standard_normal((N, N, N, 4))


def _functions():
    """For each collective its call on one rank, and what it gives to all ranks from all ranks' inputs."""
    return {
        "sum": (lambda x: C.all_reduce(x), lambda X: np.stack([X.sum(0)] * N)),
        "mean": (lambda x: C.all_reduce(x, ReduceOp.AVG), lambda X: np.stack([X.mean(0)] * N)),
        "module": (C.AllReduce(ReduceOp.AVG), lambda X: np.stack([X.mean(0)] * N)),
        "gather": (lambda x: C.all_gather(x), lambda X: np.stack([X] * N)),
        "scatter": (lambda x: C.reduce_scatter(x), lambda X: X.sum(0)),
        "broadcast": (lambda x: C.broadcast(x, 1), lambda X: np.stack([X[1]] * N)),
        "all_to_all": (lambda x: C.all_to_all_single(x), lambda X: X.swapaxes(0, 1)),
    }


def _weights(W, rank, ndim):
    return W[rank] if ndim == 3 else W[rank, 0] if ndim == 2 else W[rank, 0, 0]


def _run(rank, name):
    X, W = _inputs()
    x = Tensor(X[rank].copy(), requires_grad=True)
    y = _functions()[name][0](x)
    w = Tensor(_weights(W, rank, y.ndim))
    loss = (y * y * y * w).sum()
    (g,) = engine.grad(loss, [x], create_graph=True)
    first = g.detach().numpy().copy()
    (g * g).sum().backward()
    return y.detach().numpy(), first, x.grad.numpy()


def _total(name, W):
    """The sum of all ranks' losses as a function of all ranks' inputs, in NumPy."""

    def total(X):
        Y = _functions()[name][1](X)
        return sum((Y[r] ** 3 * _weights(W, r, Y[r].ndim)).sum() for r in range(N))

    return total


def _gradient(f, X):
    """The gradient of a polynomial f by complex steps: exact to rounding."""
    out = np.zeros_like(X)
    for i in np.ndindex(X.shape):
        step = X.astype(np.complex128)
        step[i] += 1e-30j
        out[i] = f(step).imag / 1e-30
    return out


@pytest.mark.parametrize("name", list(_functions()))
def test_values_and_gradients_are_those_of_the_sum_of_all_losses(world, name):
    """Forward, first and second order, on three ranks."""
    X, W = _inputs()
    results = world(_run, N, name)
    np.testing.assert_allclose(np.stack([y for y, _, _ in results]), _functions()[name][1](X), rtol=1e-12)
    total = _total(name, W)
    first = np.stack([g for _, g, _ in results])
    np.testing.assert_allclose(first, _gradient(total, X), rtol=1e-12, atol=1e-12)
    # d/dX of the sum of squares of the gradients is 2 H g; a central difference is exact for the gradient of a cubic
    eps = 1e-3
    along = _gradient(total, X + eps * first) - _gradient(total, X - eps * first)
    np.testing.assert_allclose(np.stack([s for _, _, s in results]), along / eps, rtol=1e-9, atol=1e-9)


def _uneven(rank):
    rows = [[1, 0, 2], [0, 3, 1], [2, 1, 0]]  # rows[r][s]: from rank r to rank s
    x = Tensor(np.arange(sum(rows[rank]), dtype=np.float64) + 10 * rank, requires_grad=True)
    y = C.all_to_all_single(x, [rows[s][rank] for s in range(N)], rows[rank])
    (y * (rank + 1.0)).sum().backward()
    return y.tolist(), x.grad.tolist()


def test_uneven_all_to_all(world):
    """Rows go where the splits say; gradients come back from there."""
    results = world(_uneven, N)
    assert [y for y, _ in results] == [[0.0, 20.0, 21.0], [10.0, 11.0, 12.0, 22.0], [1.0, 2.0, 13.0]]
    assert [g for _, g in results] == [[1.0, 3.0, 3.0], [2.0, 2.0, 2.0, 3.0], [1.0, 1.0, 2.0]]


def _pipeline(rank):
    x = Tensor(np.array([2.0, 3.0]), requires_grad=True)
    if rank == 0:
        y = x * x
        C.send(y, 1).backward()
        return x.grad.tolist()
    y = C.recv(Tensor(np.zeros(2), requires_grad=True), 0)
    loss = (y * x).sum()
    loss.backward()
    return loss.item(), x.grad.tolist()


def test_a_pipeline_of_two_stages(world):
    """The first stage's gradient comes from the second: d/dx (x^2 w) = 2 x w."""
    assert world(_pipeline, 2) == [[8.0, 18.0], (35.0, [4.0, 9.0])]


def test_bad_calls_are_refused():
    """An operation without a gradient, and rows that do not fit the ranks."""
    with pytest.raises(ValueRangeError, match="knows SUM and AVG, not MAX"):
        C.all_reduce(Tensor(np.ones(2)), dist.ReduceOp.MAX)
    with pytest.raises(ShapeError, match="one row for each of the 1 ranks"):
        C.reduce_scatter(Tensor(np.ones((2, 2))))
