"""Batch and instance normalization: both variances, momentum, modes."""

import copy

import numpy as np
import pytest

import ddpflow
from ddpflow import nn

ROWS = [[2.0, 15.0, 2.0, 1.0], [2.0, 17.0, 2.0, 1.0], [-4.0, -2.0, -2.0, -1.0]]
BATCH = [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d]
INSTANCE = [nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d]


def test_two_variances():
    """The output uses the variance over n, the running variance is over n - 1; new = (1 - m) old + m batch."""
    norm = nn.BatchNorm1d(4, momentum=1.0, eps=0.0)
    out = norm(ddpflow.tensor(ROWS))
    np.testing.assert_allclose(norm.running_mean.numpy(), [0, 10, 2 / 3, 1 / 3], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(norm.running_var.numpy(), [12, 109, 16 / 3, 4 / 3], rtol=1e-5)
    rows = np.array(ROWS)
    expected = (rows - rows.mean(0)) / np.sqrt([8, 218 / 3, 32 / 9, 8 / 9])
    np.testing.assert_allclose(out.detach().numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_over_batch_and_space(dims):
    """Each channel is normalized over the batch and all places: n = N * places."""
    norm = BATCH[dims - 1](3, momentum=0.3).double()
    x = np.random.default_rng(dims).standard_normal((4, 3, *(5, 4, 2)[:dims])) * 2 + 1
    with ddpflow.no_grad():
        norm.weight.copy_(ddpflow.tensor([1.0, 2.0, 3.0]))
        norm.bias.copy_(ddpflow.tensor([0.5, 0.0, -1.0]))
    out = norm(ddpflow.tensor(x)).detach().numpy()
    axes = (0, *range(2, dims + 2))
    column = (1, 3, *[1] * dims)
    mean, var, count = x.mean(axes), x.var(axes), x.size // 3
    normal = (x - mean.reshape(column)) / np.sqrt(var.reshape(column) + 1e-5)
    expected = normal * np.array([1.0, 2.0, 3.0]).reshape(column) + np.array([0.5, 0.0, -1.0]).reshape(column)
    np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(norm.running_mean.numpy(), 0.3 * mean, rtol=1e-9)
    np.testing.assert_allclose(norm.running_var.numpy(), 0.7 + 0.3 * var * count / (count - 1), rtol=1e-9)


def test_evaluation_uses_the_running_statistics():
    """After one training step, evaluation is reproduced by hand, and changes nothing."""
    norm = nn.BatchNorm1d(4, momentum=0.1).double()
    norm(ddpflow.tensor(ROWS, dtype=ddpflow.float64))
    norm.eval()
    before = copy.deepcopy(norm.state_dict())
    x = np.array([[1.0, 2.0, 3.0, 4.0]])
    mean = 0.1 * np.array([0, 10, 2 / 3, 1 / 3])
    var = 0.9 + 0.1 * np.array([12, 109, 16 / 3, 4 / 3])
    out = norm(ddpflow.tensor(x)).detach().numpy()
    np.testing.assert_allclose(out, (x - mean) / np.sqrt(var + 1e-5), rtol=1e-9)
    for name, tensor in norm.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), before[name].numpy())


def test_cumulative_average():
    """momentum=None averages over all batches alike, and the counter counts them."""
    norm = nn.BatchNorm1d(1, momentum=None).double()
    for value in (1.0, 2.0, 6.0):
        norm(ddpflow.tensor([[value], [value + 2]], dtype=ddpflow.float64))
    assert norm.num_batches_tracked.item() == 3
    assert norm.running_mean.item() == pytest.approx((2 + 3 + 7) / 3)


def test_one_value_per_channel_is_an_error():
    """A batch of one value for each channel has no variance: a ValueError in training, fine in evaluation."""
    norm = nn.BatchNorm1d(4)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        norm(ddpflow.ones(1, 4))
    assert norm.eval()(ddpflow.ones(1, 4)).shape == (1, 4)
    assert nn.BatchNorm2d(4)(ddpflow.randn(1, 4, 2, 2)).shape == (1, 4, 2, 2)


@pytest.mark.parametrize(
    ("module", "shape", "message"),
    [
        (nn.BatchNorm1d(3), (3,), "expected 2D or 3D input"),
        (nn.BatchNorm2d(3), (2, 3, 4), r"expected 4D input \(got 3D input of shape \(2, 3, 4\)\)"),
        (nn.BatchNorm3d(3), (2, 3, 4, 4), "expected 5D input"),
        (nn.InstanceNorm2d(3), (2, 3), "expected 3D or 4D input"),
        (nn.InstanceNorm1d(3, affine=True), (2, 4, 5), "to match num_features"),
    ],
)
def test_bad_ranks(module, shape, message):
    """Another number of dimensions is a ValueError with the shape."""
    with pytest.raises(ValueError, match=message):
        module(ddpflow.ones(*shape))


def test_bad_channels():
    """Another number of channels is a RuntimeError with the shape."""
    with pytest.raises(RuntimeError, match="4"):
        nn.BatchNorm2d(3)(ddpflow.ones(2, 4, 5, 5))


def test_without_running_statistics():
    """track_running_stats=False normalizes by the batch in both modes and has no buffers."""
    norm = nn.BatchNorm1d(4, track_running_stats=False, affine=False)
    assert norm.state_dict() == {}
    x = ddpflow.tensor(ROWS)
    assert norm(x).tolist() == norm.eval()(x).tolist()


@pytest.mark.parametrize("mode", [True, False])
def test_gradients(mode):
    """Gradients of input, weight and bias agree with finite differences, in both modes."""
    norm = nn.BatchNorm2d(2).double().train(mode)
    norm.running_var.fill_(2.5)
    x = ddpflow.randn(3, 2, 2, 3, dtype=ddpflow.float64, requires_grad=True)

    def run(x, weight, bias):
        return nn.functional.batch_norm(
            x, norm.running_mean.clone(), norm.running_var.clone(), weight, bias, mode, 0.1, norm.eps
        )

    assert ddpflow.autograd.gradcheck(run, (x, norm.weight, norm.bias))
    assert ddpflow.autograd.gradgradcheck(run, (x, norm.weight, norm.bias))


def test_buffers_change_in_place():
    """Training steps change the buffers in place: the objects stay the same."""
    norm = nn.BatchNorm1d(4)
    buffers = list(norm.buffers())
    norm(ddpflow.tensor(ROWS))
    assert all(after is before for after, before in zip(norm.buffers(), buffers, strict=True))
    assert norm.num_batches_tracked.dtype is ddpflow.int64
    norm.reset_running_stats()
    assert norm.running_mean.tolist() == [0.0] * 4
    assert norm.running_var.tolist() == [1.0] * 4
    assert norm.num_batches_tracked.item() == 0


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_instance_norm(dims):
    """Each channel of each sample is normalized by itself, with or without a batch dimension."""
    norm = INSTANCE[dims - 1](3).double()
    x = np.random.default_rng(dims).standard_normal((2, 3, *(5, 4, 2)[:dims])) * 3 - 1
    axes = tuple(range(2, dims + 2))
    expected = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    np.testing.assert_allclose(norm(ddpflow.tensor(x)).numpy(), expected, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(norm(ddpflow.tensor(x[0])).numpy(), expected[0], rtol=1e-9, atol=1e-11)
    points = ddpflow.tensor(x[:, :1], requires_grad=True)
    assert ddpflow.autograd.gradcheck(INSTANCE[dims - 1](1).double(), points)


def test_instance_norm_with_running_statistics():
    """Tracked instance norm averages the samples' statistics, and uses them in evaluation."""
    norm = nn.InstanceNorm1d(2, track_running_stats=True, momentum=0.5).double()
    x = np.array([[[1.0, 3.0], [2.0, 2.5]], [[5.0, 9.0], [0.0, 4.0]]])
    norm(ddpflow.tensor(x))
    mean, var = x.mean(2).mean(0), x.var(2, ddof=1).mean(0)
    np.testing.assert_allclose(norm.running_mean.numpy(), 0.5 * mean, rtol=1e-9)
    np.testing.assert_allclose(norm.running_var.numpy(), 0.5 + 0.5 * var, rtol=1e-9)
    out = norm.eval()(ddpflow.tensor(x)).numpy()
    shift, scale = 0.5 * mean.reshape(1, 2, 1), np.sqrt(0.5 + 0.5 * var.reshape(1, 2, 1) + 1e-5)
    np.testing.assert_allclose(out, (x - shift) / scale, rtol=1e-9)


def test_instance_norm_warns_about_channels():
    """Without affine, another number of channels works, with a warning."""
    with pytest.warns(UserWarning, match="has 4 channels, num_features is 3"):
        nn.InstanceNorm1d(3)(ddpflow.randn(2, 4, 5))


def test_half_precision():
    """Half inputs are normalized in float32 and stay half."""
    x = ddpflow.randn(64, 4).half() * 100
    out = nn.BatchNorm1d(4).half()(x)
    assert out.dtype is ddpflow.float16
    assert out.float().std().item() == pytest.approx(1.0, rel=0.01)


def test_repr():
    """The options are printed as PyTorch prints them."""
    assert repr(nn.BatchNorm2d(3)) == (
        "BatchNorm2d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)"
    )
