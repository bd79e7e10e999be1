"""Affine grids and sampling at their points, by hand."""

import numpy as np
import pytest

import ddpflow
import ddpflow.nn.functional as F

F64 = ddpflow.float64


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 4, 5, 3)])
def test_identity(shape, align_corners):
    """The identity map samples every pixel where it is, by every mode."""
    x = ddpflow.randn(*shape, dtype=F64)
    dims = len(shape) - 2
    theta = ddpflow.eye(dims, dims + 1, dtype=F64).expand(2, dims, dims + 1)
    grid = F.affine_grid(theta, shape, align_corners)
    assert grid.shape == (2, *shape[2:], dims)
    for mode in ("bilinear", "nearest", "bicubic")[: 3 if dims == 2 else 2]:
        y = F.grid_sample(x, grid, mode, align_corners=align_corners)
        np.testing.assert_allclose(y.numpy(), x.numpy(), rtol=1e-9, atol=1e-12)


def test_affine_grid_by_hand():
    """Points are [x, y] = theta [x, y, 1] of the output's places, -1 and 1 at the corners' centres or edges."""
    theta = ddpflow.tensor([[[0.5, 0.0, 0.25], [0.0, -1.0, 0.0]]], dtype=F64)
    grid = F.affine_grid(theta, (1, 1, 2, 3), align_corners=True).numpy()
    np.testing.assert_allclose(grid[0, :, :, 0], [[-0.25, 0.25, 0.75]] * 2)
    np.testing.assert_allclose(grid[0, :, :, 1], [[1.0] * 3, [-1.0] * 3])
    grid = F.affine_grid(theta, (1, 1, 2, 3), align_corners=False).numpy()
    np.testing.assert_allclose(grid[0, 0, :, 0], [0.5 * x + 0.25 for x in (-2 / 3, 0, 2 / 3)])
    np.testing.assert_allclose(grid[0, :, 0, 1], [0.5, -0.5])


def sampled(image, y, x, outside):
    """Returns the bilinear value at pixel coordinates, with `outside(i, n)` for places that are out of range."""
    total = 0.0
    for i in (int(np.floor(y)), int(np.floor(y)) + 1):
        for j in (int(np.floor(x)), int(np.floor(x)) + 1):
            row, column = outside(i, image.shape[0]), outside(j, image.shape[1])
            value = 0.0 if row is None or column is None else image[row, column]
            total += (1 - abs(y - i)) * (1 - abs(x - j)) * value
    return total


@pytest.mark.parametrize(
    ("padding_mode", "outside"),
    [
        ("zeros", lambda i, n: i if 0 <= i < n else None),
        ("border", lambda i, n: min(max(i, 0), n - 1)),
        ("reflection", lambda i, n: (n - 1) - abs((i % (2 * (n - 1))) - (n - 1))),
    ],
)
def test_bilinear_by_hand(padding_mode, outside):
    """Values between pixels are weighted by nearness; outside the image they are what the padding mode says."""
    rng = np.random.default_rng(0)
    image, points = rng.standard_normal((4, 5)), rng.uniform(-2, 2, (6, 2))
    grid = ddpflow.tensor(points[None, None])
    found = F.grid_sample(ddpflow.tensor(image[None, None]), grid, "bilinear", padding_mode, align_corners=True)
    expected = [sampled(image, (y + 1) / 2 * 3, (x + 1) / 2 * 4, outside) for x, y in points]
    np.testing.assert_allclose(found.numpy()[0, 0, 0], expected, rtol=1e-9, atol=1e-12)


def test_nearest():
    """The nearest pixel's value is taken, 0 outside the image."""
    image = ddpflow.arange(6.0).reshape(1, 1, 2, 3)
    grid = ddpflow.tensor([[[[-0.9, -0.9], [0.9, 0.8], [0.1, -1.0], [1.9, 0.0]]]])
    assert F.grid_sample(image, grid, "nearest", align_corners=True).flatten().tolist() == [0.0, 5.0, 1.0, 0.0]


@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("mode", "dims"), [("bilinear", 2), ("bilinear", 3), ("bicubic", 2)])
def test_gradients(mode, dims, padding_mode):
    """Gradients of image and grid agree with finite differences."""
    x = ddpflow.randn(1, 2, *(3, 4, 2)[:dims], dtype=F64, requires_grad=True)
    grid = ddpflow.tensor(np.random.default_rng(1).uniform(-0.7, 0.7, (1, *(2,) * dims, dims)), requires_grad=True)
    assert ddpflow.autograd.gradcheck(
        lambda x, grid: F.grid_sample(x, grid, mode, padding_mode, align_corners=False), (x, grid)
    )
    theta = ddpflow.randn(2, dims, dims + 1, dtype=F64, requires_grad=True)
    assert ddpflow.autograd.gradcheck(lambda theta: F.affine_grid(theta, (2, 1, *(2, 3, 2)[:dims])), theta)


@pytest.mark.parametrize(
    ("shape", "grid", "options", "error", "message"),
    [
        ((1, 2, 4), (1, 4, 2), {}, RuntimeError, r"does not take an input of shape \(1, 2, 4\)"),
        ((1, 2, 4, 4), (2, 4, 4, 2), {}, RuntimeError, r"grid of shape \(2, 4, 4, 2\) does not fit"),
        ((1, 2, 4, 4), (1, 4, 4, 3), {}, RuntimeError, "does not fit"),
        ((1, 2, 4, 4, 4), (1, 4, 4, 4, 3), {"mode": "bicubic"}, RuntimeError, "mode 'bicubic' does not take"),
        ((1, 2, 4, 4), (1, 4, 4, 2), {"mode": "cubic"}, ValueError, "mode should be"),
        ((1, 2, 4, 4), (1, 4, 4, 2), {"padding_mode": "wrap"}, ValueError, "padding_mode should be"),
    ],
)
def test_errors(shape, grid, options, error, message):
    """Shapes and modes that do not fit are errors of PyTorch's types."""
    with pytest.raises(error, match=message):
        F.grid_sample(ddpflow.ones(*shape), ddpflow.zeros(*grid), **options)


def test_affine_grid_errors():
    """A map that does not fit the size is a RuntimeError with both."""
    with pytest.raises(RuntimeError, match=r"shape \(1, 2, 2\) do not fit an output of size \(1, 1, 4, 4\)"):
        F.affine_grid(ddpflow.ones(1, 2, 2), (1, 1, 4, 4))
