"""Starting values: distributions, fans and gains are PyTorch's."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow.nn import init

SHAPE = (60, 80)


def made(function, *args, shape=SHAPE, **kwargs):
    """Returns the values that an initializer fills in, after checking that it works in place."""
    tensor = ddpflow.nn.Parameter(ddpflow.empty(shape))
    assert function(tensor, *args, **kwargs) is tensor
    assert tensor.is_leaf
    assert tensor.requires_grad
    assert tensor.dtype is ddpflow.float32
    return tensor.detach().numpy()


@pytest.mark.parametrize(
    ("name", "param", "gain"),
    [
        ("linear", None, 1),
        ("conv2d", None, 1),
        ("conv_transpose3d", None, 1),
        ("sigmoid", None, 1),
        ("tanh", None, 5 / 3),
        ("relu", None, math.sqrt(2)),
        ("leaky_relu", None, math.sqrt(2 / (1 + 0.01**2))),
        ("leaky_relu", 0.2, math.sqrt(2 / (1 + 0.2**2))),
        ("selu", None, 0.75),
    ],
)
def test_gains(name, param, gain):
    """Gains are PyTorch's."""
    assert init.calculate_gain(name, param) == pytest.approx(gain, rel=1e-12)


def test_bad_gains():
    """Unknown names and slopes that are no numbers are ValueErrors."""
    with pytest.raises(ValueError, match="Unsupported nonlinearity swish"):
        init.calculate_gain("swish")
    with pytest.raises(ValueError, match="negative_slope True not a valid number"):
        init.calculate_gain("leaky_relu", True)


def check_uniform(values, bound):
    """Asserts that values fill [-bound, bound) evenly."""
    assert np.abs(values).max() <= bound
    assert np.abs(values).max() > 0.99 * bound
    assert values.std() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def check_normal(values, std):
    """Asserts that values have mean 0 and the standard deviation."""
    assert values.std() == pytest.approx(std, rel=0.05)
    assert abs(values.mean()) < 0.1 * std


def test_uniform_and_normal():
    """uniform_ and normal_ take their bounds and moments."""
    values = made(init.uniform_, 2.0, 5.0)
    assert values.min() >= 2.0
    assert values.max() < 5.0
    assert values.mean() == pytest.approx(3.5, abs=0.1)
    check_normal(made(init.normal_, 0.0, 0.3), 0.3)
    assert made(init.normal_, 7.0, 0.1).mean() == pytest.approx(7.0, abs=0.01)
    with pytest.raises(ValueError, match=">= 0"):
        made(init.normal_, 0.0, -1.0)


def test_constants():
    """constant_, ones_ and zeros_ fill with one number."""
    assert set(made(init.constant_, 2.5).ravel().tolist()) == {2.5}
    assert set(made(init.ones_).ravel().tolist()) == {1.0}
    assert set(made(init.zeros_).ravel().tolist()) == {0.0}


def test_xavier():
    """Xavier's bounds come from the sum of both fans."""
    check_uniform(made(init.xavier_uniform_), math.sqrt(6 / 140))
    check_uniform(made(init.xavier_uniform_, 2.0), 2 * math.sqrt(6 / 140))
    check_normal(made(init.xavier_normal_), math.sqrt(2 / 140))


@pytest.mark.parametrize(("mode", "fan"), [("fan_in", 80), ("fan_out", 60)])
def test_kaiming(mode, fan):
    """Kaiming's bounds come from one fan and the gain of what follows."""
    check_uniform(made(init.kaiming_uniform_, mode=mode, nonlinearity="relu"), math.sqrt(6 / fan))
    check_normal(made(init.kaiming_normal_, mode=mode, nonlinearity="relu"), math.sqrt(2 / fan))
    check_uniform(made(init.kaiming_uniform_, math.sqrt(5), mode), math.sqrt(1 / fan))


def test_fans_of_convolutions():
    """A kernel's size counts in both fans."""
    check_uniform(made(init.kaiming_uniform_, nonlinearity="linear", shape=(40, 30, 3, 2)), math.sqrt(3 / (30 * 6)))


def test_fans_need_two_dimensions():
    """Vectors have no fans, and unknown modes are refused."""
    with pytest.raises(ValueError, match="fewer than 2 dimensions"):
        made(init.xavier_normal_, shape=(3,))
    with pytest.raises(ValueError, match="Mode fan_avg not supported"):
        made(init.kaiming_normal_, mode="fan_avg")


def test_empty_tensors_warn():
    """Kaiming of an empty tensor does nothing and says so."""
    with pytest.warns(UserWarning, match="zero-element"):
        made(init.kaiming_uniform_, shape=(0, 3))


@pytest.mark.parametrize(
    ("mean", "std", "low", "high"), [(0.0, 1.0, -2.0, 2.0), (0.0, 1.0, 3.0, 9.0), (1.0, 0.5, 0.9, 1.0)]
)
def test_trunc_normal(mean, std, low, high):
    """Truncated draws stay within their bounds and follow the density, in the middle and in a tail."""
    with np.errstate(all="raise"):
        if mean < low - 2 * std:
            with pytest.warns(UserWarning, match="more than 2 std"):
                values = made(init.trunc_normal_, mean, std, low, high)
        else:
            values = made(init.trunc_normal_, mean, std, low, high)
    assert values.min() >= low
    assert values.max() <= high
    grid = np.linspace(low, high, 20001)
    density = np.exp(-0.5 * ((grid - mean) / std) ** 2)
    expected = (grid * density).sum() / density.sum()
    spread = math.sqrt(((grid - expected) ** 2 * density).sum() / density.sum())
    assert values.mean() == pytest.approx(expected, abs=5 * spread / math.sqrt(values.size))
    assert values.std() == pytest.approx(spread, rel=0.05)


def test_eye():
    """eye_ gives the identity as far as it goes, for matrices only."""
    assert made(init.eye_, shape=(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    with pytest.raises(ValueError, match="Only tensors with 2 dimensions"):
        made(init.eye_, shape=(2, 3, 4))


def test_dirac_passes_channels_on():
    """A convolution with a Dirac weight gives its input back, group by group."""
    x = ddpflow.randn(2, 4, 5, 5)
    weight = ddpflow.empty(4, 4, 3, 3)
    y = ddpflow.nn.functional.conv2d(x, init.dirac_(weight), padding=1)
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    weight = init.dirac_(ddpflow.empty(4, 2, 3), groups=2)
    x = ddpflow.randn(1, 4, 6)
    y = ddpflow.nn.functional.conv1d(x, weight, padding=1, groups=2)
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    with pytest.raises(ValueError, match="3, 4, or 5 dimensions"):
        made(init.dirac_, shape=(2, 2))
    with pytest.raises(ValueError, match="divisible by groups"):
        made(init.dirac_, groups=3, shape=(4, 2, 3))


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (4, 2, 3)])
def test_orthogonal(shape):
    """The fewer of rows and columns are orthonormal, times the gain."""
    values = made(init.orthogonal_, 2.0, shape=shape).reshape(shape[0], -1)
    product = values @ values.T if values.shape[0] <= values.shape[1] else values.T @ values
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-5)
    with pytest.raises(ValueError, match="2 or more dimensions"):
        made(init.orthogonal_, shape=(3,))


def test_sparse():
    """A share of each column is zero, rounded up; the rest is normal."""
    values = made(init.sparse_, 0.25, std=0.5, shape=(10, 400))
    assert ((values == 0).sum(0) == 3).all()
    check_normal(values[values != 0], 0.5)


def test_generator_and_seed():
    """Draws repeat with a seed, and with a generator of their own."""
    ddpflow.manual_seed(3)
    first = made(init.kaiming_normal_)
    ddpflow.manual_seed(3)
    np.testing.assert_array_equal(first, made(init.kaiming_normal_))
    one = made(init.uniform_, generator=ddpflow.Generator().manual_seed(5))
    np.testing.assert_array_equal(one, made(init.uniform_, generator=ddpflow.Generator().manual_seed(5)))


def test_half_precision():
    """Half tensors stay half and get finite values."""
    tensor = init.kaiming_uniform_(ddpflow.empty(8, 8, dtype=ddpflow.float16))
    assert tensor.dtype is ddpflow.float16
    assert np.isfinite(tensor.numpy()).all()
