"""The blocked softmax kernels against the formulas, in float64, over several blocks of rows."""

import numpy as np
import pytest

from ddpflow.autograd.kernels import softmax as kernels


def formula(x, axis):
    """Softmax written out."""
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize(("shape", "axis"), [((300, 257), 1), ((7, 5, 300), -1), ((4, 6), 0), ((3, 40000), 1)])
def test_softmax_and_gradients_equal_the_formulas(rng, shape, axis):
    """Values and both gradients agree to rounding, whichever path takes the array."""
    x, g = rng.standard_normal(shape) * 3, rng.standard_normal(shape)
    y = kernels.softmax(np, x, axis)
    expected = formula(x, axis)
    np.testing.assert_allclose(y, expected, rtol=1e-12)
    np.testing.assert_allclose(
        kernels.softmax_backward(np, g, y, axis),
        expected * (g - (g * expected).sum(axis, keepdims=True)),
        rtol=1e-9,
        atol=1e-14,
    )
    logs = kernels.log_softmax(np, x, axis)
    np.testing.assert_allclose(logs, np.log(expected), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(
        kernels.log_softmax_backward(np, g, logs, axis),
        g - expected * g.sum(axis, keepdims=True),
        rtol=1e-9,
        atol=1e-12,
    )


@pytest.mark.parametrize("shape", [(300, 257), (5, 7, 4)])
def test_cross_entropy_equals_the_formula(rng, shape):
    """Losses, log-sums and gradient agree, for rows in blocks and for classes on axis 1 of more."""
    x = rng.standard_normal(shape)
    index = rng.integers(0, shape[1], (shape[0], *shape[2:]))
    scale = rng.standard_normal(index.shape)
    loss, lse = kernels.cross_entropy(np, x, index)
    p = formula(x, 1)
    picked = np.take_along_axis(p, index[:, None], 1)[:, 0]
    np.testing.assert_allclose(loss, -np.log(picked), rtol=1e-10, atol=1e-12)
    onehot = np.arange(shape[1]).reshape(1, -1, *[1] * (len(shape) - 2)) == index[:, None]
    np.testing.assert_allclose(
        kernels.cross_entropy_backward(np, x, index, lse, scale), (p - onehot) * scale[:, None], rtol=1e-9, atol=1e-12
    )


def test_a_scale_of_zero_gives_a_zero_gradient_from_infinite_logits():
    """An ignored row gets no gradient, whatever it holds."""
    x = np.array([[1.0, 2.0], [np.inf, np.nan]])
    with np.errstate(invalid="ignore"):
        _, lse = kernels.cross_entropy(np, x, np.array([0, 0]))
        g = kernels.cross_entropy_backward(np, x, np.array([0, 0]), lse, np.array([1.0, 0.0]))
    assert g[1].tolist() == [0.0, 0.0]
    assert g[0].sum() == pytest.approx(0.0)
