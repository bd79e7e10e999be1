"""Convolutions as functions: padding words, batches, transposes, refusals."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.ops import conv as ops


def test_same_and_valid(rng):
    """'same' keeps the size, the odd zero goes after; 'valid' adds none."""
    x, w = ddpflow.from_numpy(rng.standard_normal((2, 3, 7, 6))), ddpflow.from_numpy(rng.standard_normal((4, 3, 3, 2)))
    same = ops.conv2d(x, w, padding="same")
    assert tuple(same.shape) == (2, 4, 7, 6)
    padded = ddpflow.from_numpy(np.pad(x.numpy(), ((0, 0), (0, 0), (1, 1), (0, 1))))
    np.testing.assert_allclose(same.numpy(), ops.conv2d(padded, w, padding="valid").numpy(), rtol=1e-10, atol=1e-12)


def test_without_a_batch(rng):
    """``(C, L)`` is one sample of ``(N, C, L)``, both ways."""
    x, w = ddpflow.from_numpy(rng.standard_normal((3, 7))), ddpflow.from_numpy(rng.standard_normal((3, 3, 2)))
    for function in (ops.conv1d, ops.conv_transpose1d):
        one, batch = function(x, w), function(x.unsqueeze(0), w)
        np.testing.assert_array_equal(one.numpy(), batch.numpy()[0])


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_transpose_is_the_adjoint(rng, axes):
    """``<y, conv(x)> = <conv_transpose(y), x>`` for each number of axes, with steps, zeros and dilation."""
    conv = getattr(ops, f"conv{axes}d")
    transpose = getattr(ops, f"conv_transpose{axes}d")
    x = ddpflow.from_numpy(rng.standard_normal((2, 4, *[7] * axes)))
    w = ddpflow.from_numpy(rng.standard_normal((6, 2, *[3] * axes)))
    out = conv(x, w, stride=2, padding=1, groups=2)
    y = ddpflow.from_numpy(rng.standard_normal(tuple(out.shape)))
    back = transpose(y, w, stride=2, padding=1, groups=2)
    assert back.shape == x.shape
    assert (y * out).sum().item() == pytest.approx((back * x).sum().item())


def test_bias_and_output_padding(rng):
    """The bias is added to each channel; output padding lengthens one side."""
    x, w = ddpflow.from_numpy(rng.standard_normal((1, 2, 4, 4))), ddpflow.from_numpy(rng.standard_normal((2, 3, 3, 3)))
    bias = ddpflow.tensor([1.0, 2.0, 3.0], dtype=ddpflow.float64)
    plain = ops.conv_transpose2d(x, w, stride=2, output_padding=1)
    assert tuple(plain.shape) == (1, 3, 10, 10)
    moved = ops.conv_transpose2d(x, w, bias, stride=2, output_padding=1)
    np.testing.assert_allclose((moved - plain).numpy()[0, :, 0, 0], [1.0, 2.0, 3.0])


def zeros(*shape):
    """A tensor of zeros."""
    return ddpflow.zeros(*shape)


@pytest.mark.parametrize(
    ("shape", "weight", "kwargs", "error", "words"),
    [
        ((1, 3, 5, 5), (4, 2, 3, 3), {}, RuntimeError, "2 channels, but got 3"),
        ((1, 3, 2, 5), (4, 3, 3, 3), {}, RuntimeError, "greater than actual"),
        ((3, 5), (4, 3, 3, 3), {}, RuntimeError, r"\[3, 5\]"),
        ((1, 3, 5, 5), (4, 3, 3), {}, RuntimeError, r"\(4, 3, 3\)"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"padding": "full"}, ValueError, "full"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"stride": 2, "padding": "same"}, RuntimeError, "same"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"stride": (1, 2, 3)}, RuntimeError, "stride"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"bias": zeros(3)}, RuntimeError, "bias"),
        ((1, 4, 5, 5), (3, 2, 3, 3), {"groups": 2}, RuntimeError, "groups"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"dilation": 0}, RuntimeError, "dilation"),
    ],
)
def test_bad_arguments(shape, weight, kwargs, error, words):
    """One error each, of PyTorch's type, with the shapes or the word."""
    with pytest.raises(error, match=words):
        ops.conv2d(zeros(*shape), zeros(*weight), **kwargs)


def test_other_bad_arguments():
    """Dtypes that differ, and output padding beyond the stride."""
    with pytest.raises(RuntimeError, match="same dtype"):
        ops.conv1d(zeros(1, 1, 5), zeros(1, 1, 2).double())
    with pytest.raises(RuntimeError, match="output padding"):
        ops.conv_transpose1d(zeros(1, 1, 5), zeros(1, 1, 2), output_padding=1)
