"""Normalisation functions: statistics, running statistics, refusals."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.ops.norm import batch_norm, group_norm, instance_norm, layer_norm, rms_norm


def rows():
    """Four channels, each a column."""
    return ddpflow.tensor([[2.0, 15.0, 2.0, 1.0], [2.0, 17.0, 2.0, 1.0], [-4.0, -2.0, -2.0, -1.0]])


def test_batch_norm_has_two_variances():
    """Normalised by the one over n, while the running one moves by that over n - 1."""
    mean, var = ddpflow.zeros(4), ddpflow.ones(4)
    out = batch_norm(rows(), mean, var, training=True, momentum=1.0, eps=0.0)
    np.testing.assert_allclose(mean.numpy(), [0, 10, 2 / 3, 1 / 3], atol=1e-6)
    np.testing.assert_allclose(var.numpy(), [12, 109, 16 / 3, 4 / 3], rtol=1e-6)
    np.testing.assert_allclose(
        out.numpy()[0], (np.array([2, 15, 2, 1]) - mean.numpy()) / np.sqrt(var.numpy() * 2 / 3), rtol=1e-5
    )


def test_running_statistics_move_by_momentum_and_evaluation_uses_them():
    """``new = (1 - m) * old + m * batch``; then the same numbers by hand."""
    mean, var = ddpflow.full((4,), 1.0), ddpflow.full((4,), 2.0)
    before = mean._version
    batch_norm(rows(), mean, var, training=True, momentum=0.1)
    np.testing.assert_allclose(mean.numpy(), 0.9 + 0.1 * np.array([0, 10, 2 / 3, 1 / 3]), rtol=1e-6)
    np.testing.assert_allclose(var.numpy(), 1.8 + 0.1 * np.array([12, 109, 16 / 3, 4 / 3]), rtol=1e-6)
    assert mean._version > before
    out = batch_norm(rows(), mean, var, ddpflow.tensor([1.0, 2.0, 3.0, 4.0]), ddpflow.tensor([0.0, 1.0, 2.0, 3.0]))
    expected = (rows().numpy() - mean.numpy()) / np.sqrt(var.numpy() + 1e-5) * [1, 2, 3, 4] + [0, 1, 2, 3]
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5)


def test_one_value_per_channel_in_training_is_refused():
    """It has no variance."""
    with pytest.raises(ValueError, match=r"more than 1 value per channel.*\(1, 4\)"):
        batch_norm(ddpflow.ones(1, 4), training=True)
    with pytest.raises(ValueError, match="more than 1 spatial"):
        instance_norm(ddpflow.ones(2, 3, 1))


def test_group_and_instance_norm_are_layer_norm_of_parts(rng):
    """One group is layer norm over everything; as many groups as channels is instance norm."""
    x = ddpflow.from_numpy(rng.standard_normal((2, 6, 3, 4)))
    np.testing.assert_allclose(group_norm(x, 1).numpy(), layer_norm(x, (6, 3, 4)).numpy(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(group_norm(x, 6).numpy(), instance_norm(x).numpy(), rtol=1e-9, atol=1e-12)


def test_instance_norm_moves_running_statistics_by_their_mean(rng):
    """Over the samples, with the variance over n - 1."""
    x = rng.standard_normal((3, 2, 5))
    mean, var = (ddpflow.zeros(2, dtype=ddpflow.float64) for _ in range(2))
    instance_norm(ddpflow.from_numpy(x), mean, var, momentum=1.0)
    np.testing.assert_allclose(mean.numpy(), x.mean(2).mean(0), rtol=1e-10)
    np.testing.assert_allclose(var.numpy(), x.var(2, ddof=1).mean(0), rtol=1e-10)


def test_rms_norm_takes_machine_epsilon(rng):
    """Without ``eps`` it is the dtype's."""
    x = rng.standard_normal((3, 4))
    out = rms_norm(ddpflow.from_numpy(x), (4,))
    np.testing.assert_allclose(
        out.numpy(), x / np.sqrt((x * x).mean(1, keepdims=True) + np.finfo(np.float64).eps), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: layer_norm(ddpflow.zeros(2, 3), (4,)), r"\[4\].*\(2, 3\)"),
        (lambda: layer_norm(ddpflow.zeros(2, 3), (3,), ddpflow.zeros(2)), r"weight has shape \(2,\)"),
        (lambda: rms_norm(ddpflow.zeros(2, 3), ()), "at least one"),
        (lambda: group_norm(ddpflow.zeros(2, 6), 4), "num_groups=4"),
        (lambda: batch_norm(ddpflow.zeros(2, 3), ddpflow.zeros(4), ddpflow.zeros(3)), "3 elements"),
        (lambda: batch_norm(ddpflow.zeros(2, 3)), "training=False"),
    ],
)
def test_shapes_that_do_not_fit(call, words):
    """A RuntimeError with the shapes."""
    with pytest.raises(RuntimeError, match=words):
        call()
