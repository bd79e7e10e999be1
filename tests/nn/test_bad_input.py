"""Inputs of the wrong dtype: PyTorch's exception types, and a message that names both dtypes."""

import pytest

import ddpflow
from ddpflow import nn

FLOATING_ONLY = [
    nn.GELU(),
    nn.SiLU(),
    nn.Mish(),
    nn.ELU(),
    nn.CELU(),
    nn.SELU(),
    nn.LeakyReLU(),
    nn.Softplus(),
    nn.LogSigmoid(),
    nn.Hardsigmoid(),
    nn.Hardswish(),
    nn.Hardshrink(),
    nn.Softshrink(),
    nn.BatchNorm1d(3),
    nn.LayerNorm(3),
    nn.RMSNorm(3),
    nn.Dropout(),
]
ONE_DTYPE = [
    (nn.Linear(3, 2), (2, 3)),
    (nn.Bilinear(3, 3, 2), (2, 3), (2, 3)),
    (nn.Conv2d(3, 2, 3), (2, 3, 5, 5)),
    (nn.ConvTranspose2d(3, 2, 3), (2, 3, 5, 5)),
    (nn.BatchNorm1d(3), (2, 3)),
    (nn.LayerNorm(3), (2, 3)),
    (nn.GroupNorm(1, 3), (2, 3)),
    (nn.MultiheadAttention(4, 2), (4, 1, 4), (4, 1, 4), (4, 1, 4)),
    (nn.RNNCell(3, 2), (4, 3)),
]


@pytest.mark.parametrize("module", FLOATING_ONLY, ids=repr)
def test_integers_in_functions_of_real_numbers(module):
    """Integers are refused with a NotImplementedError, which is a RuntimeError, as in PyTorch."""
    with pytest.raises(NotImplementedError, match="is not defined for ddpflow.int64"):
        module(ddpflow.ones(2, 3).long())


@pytest.mark.parametrize("case", ONE_DTYPE, ids=lambda case: repr(case[0]))
def test_data_of_another_dtype_than_the_parameters(case):
    """float64 data in a float32 layer is a RuntimeError that names both dtypes, never a silent float64 result."""
    module, *shapes = case
    with pytest.raises(RuntimeError, match=r"float64.*float32"):
        module(*(ddpflow.randn(*shape).double() for shape in shapes))


def test_recurrent_layers_name_both_dtypes():
    """A recurrent layer refuses data of another dtype with a ValueError, as in PyTorch."""
    with pytest.raises(ValueError, match=r"\(ddpflow.float64\) does not match weight dtype \(ddpflow.float32\)"):
        nn.LSTM(3, 2)(ddpflow.randn(4, 1, 3).double())


def test_half_inputs_with_float32_parameters():
    """Norms take half inputs with float32 parameters, the usual mixed precision."""
    x = ddpflow.randn(4, 3).half()
    for module in (nn.LayerNorm(3), nn.BatchNorm1d(3), nn.GroupNorm(1, 3)):
        assert module(x).dtype is ddpflow.float16


@pytest.mark.parametrize("value", ["text", [[1.0, 2.0, 3.0]], None, 3.0])
def test_what_is_no_tensor(value):
    """Something that is no tensor is a TypeError or AttributeError of its own, not of NumPy's."""
    with pytest.raises((TypeError, AttributeError)):
        nn.Linear(3, 2)(value)


def test_losses_of_integers():
    """Losses of integer predictions are refused; integer targets of BCE are taken as numbers."""
    labels = ddpflow.tensor([0, 1])
    with pytest.raises(NotImplementedError, match="cross_entropy"):
        nn.CrossEntropyLoss()(ddpflow.ones(2, 3).long(), labels)
    with pytest.raises(NotImplementedError, match="mse_loss"):
        nn.MSELoss()(labels, labels)
    assert nn.BCELoss()(ddpflow.tensor([0.5, 0.5]), labels).dtype is ddpflow.float32


@pytest.mark.parametrize(
    ("module", "shape", "out"),
    [
        (nn.Linear(3, 2), (0, 3), (0, 2)),
        (nn.Conv2d(3, 2, 3), (0, 3, 5, 5), (0, 2, 3, 3)),
        (nn.LayerNorm(3), (0, 3), (0, 3)),
        (nn.MaxPool2d(2), (0, 1, 4, 4), (0, 1, 2, 2)),
        (nn.Softmax(1), (0, 3), (0, 3)),
        (nn.Flatten(), (0, 3, 4), (0, 12)),
    ],
    ids=repr,
)
def test_empty_batches(module, shape, out):
    """An empty batch gives an empty result of the right shape, and a backward pass without NaN."""
    x = ddpflow.ones(*shape, requires_grad=True)
    y = module(x)
    assert y.shape == out
    y.sum().backward()
    assert x.grad.shape == shape
