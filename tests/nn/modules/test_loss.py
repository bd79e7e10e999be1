"""Losses against numbers and probabilities, by hand."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow import nn

RNG = np.random.default_rng(0)
X, T = RNG.standard_normal((2, 4, 3)) * 2
P, Q = RNG.uniform(0.05, 0.95, (2, 4, 3))
D = X - T
SMALL = np.abs(D)
LOG_T = np.log(Q / Q.sum(1, keepdims=True))
COUNTS = RNG.integers(0, 6, (4, 3)).astype(float)
VAR = RNG.uniform(0.1, 2.0, (4, 3))
STIRLING = np.where(
    COUNTS > 1, COUNTS * np.log(np.maximum(COUNTS, 1)) - COUNTS + 0.5 * np.log(2 * np.pi * np.maximum(COUNTS, 1)), 0
)


def sigmoid(x):
    """Returns the logistic function."""
    return 1 / (1 + np.exp(-x))


def cross(p, t):
    """Returns the binary cross entropy of each element."""
    return -(t * np.log(p) + (1 - t) * np.log(1 - p))


# Module class, its options, its inputs and each element's loss.
CASES = [
    (nn.L1Loss, {}, (X, T), SMALL),
    (nn.MSELoss, {}, (X, T), D**2),
    (nn.SmoothL1Loss, {}, (X, T), np.where(SMALL < 1, D**2 / 2, SMALL - 0.5)),
    (nn.SmoothL1Loss, {"beta": 2.5}, (X, T), np.where(SMALL < 2.5, D**2 / 5, SMALL - 1.25)),
    (nn.HuberLoss, {"delta": 2.5}, (X, T), np.where(SMALL < 2.5, D**2 / 2, 2.5 * (SMALL - 1.25))),
    (nn.BCELoss, {}, (P, Q), cross(P, Q)),
    (nn.BCELoss, {"weight": VAR}, (P, Q), VAR * cross(P, Q)),
    (nn.BCEWithLogitsLoss, {}, (X, Q), cross(sigmoid(X), Q)),
    (
        nn.BCEWithLogitsLoss,
        {"weight": VAR, "pos_weight": np.array([1.0, 2.0, 3.0])},
        (X, Q),
        -VAR * (np.array([1.0, 2.0, 3.0]) * Q * np.log(sigmoid(X)) + (1 - Q) * np.log(sigmoid(-X))),
    ),
    (nn.KLDivLoss, {}, (X, Q), Q * (np.log(Q) - X)),
    (nn.KLDivLoss, {"log_target": True}, (X, LOG_T), np.exp(LOG_T) * (LOG_T - X)),
    (nn.GaussianNLLLoss, {}, (X, T, VAR), 0.5 * (np.log(VAR) + D**2 / VAR)),
    (nn.GaussianNLLLoss, {"full": True}, (X, T, VAR), 0.5 * (np.log(VAR) + D**2 / VAR + math.log(2 * math.pi))),
    (nn.PoissonNLLLoss, {}, (X, COUNTS), np.exp(X) - COUNTS * X),
    (nn.PoissonNLLLoss, {"log_input": False}, (P, COUNTS), P - COUNTS * np.log(P + 1e-8)),
    (nn.PoissonNLLLoss, {"full": True}, (X, COUNTS), np.exp(X) - COUNTS * X + STIRLING),
]


def made(cls, options, **more):
    """Returns the module, with arrays among the options as tensors."""
    tensors = {k: ddpflow.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    return cls(**tensors, **more)


@pytest.mark.filterwarnings("ignore:reduction. 'mean'")
@pytest.mark.parametrize(("cls", "options", "inputs", "elements"), CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_values(cls, options, inputs, elements):
    """Each element's loss is the formula's; the reductions are its sum and mean."""
    tensors = [ddpflow.tensor(x) for x in inputs]
    np.testing.assert_allclose(made(cls, options, reduction="none")(*tensors).numpy(), elements, rtol=1e-8, atol=1e-12)
    assert made(cls, options, reduction="sum")(*tensors).item() == pytest.approx(elements.sum(), rel=1e-8)
    assert made(cls, options)(*tensors).item() == pytest.approx(elements.mean(), rel=1e-8)


@pytest.mark.filterwarnings("ignore:reduction. 'mean'")
@pytest.mark.parametrize(("cls", "options", "inputs", "elements"), CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_gradients(cls, options, inputs, elements):
    """Gradients of the prediction agree with finite differences."""
    first = ddpflow.tensor(inputs[0], requires_grad=True)
    rest = [ddpflow.tensor(x) for x in inputs[1:]]
    assert ddpflow.autograd.gradcheck(lambda x: made(cls, options)(x, *rest), first)


def test_kl_batchmean():
    """'batchmean' divides the sum by the number of samples."""
    loss = nn.KLDivLoss(reduction="batchmean")(ddpflow.tensor(X), ddpflow.tensor(Q))
    assert loss.item() == pytest.approx((Q * (np.log(Q) - X)).sum() / 4, rel=1e-9)


def test_logits_at_zero_and_far_out():
    """The loss of logits and its gradient sigmoid(x) - t are exact at 0 and finite at +-100, also in half precision."""
    x = ddpflow.tensor([0.0, -100.0, 100.0, -50.0], requires_grad=True)
    loss = nn.BCEWithLogitsLoss(reduction="none")(x, ddpflow.zeros(4))
    np.testing.assert_allclose(loss.detach().numpy(), [math.log(2), 3.8e-44, 100, 1.93e-22], rtol=0.03)
    loss.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [0.5, 0, 1, 0], atol=1e-20)
    half = ddpflow.tensor([0.0, -100.0, 100.0, -50.0], dtype=ddpflow.float16)
    assert np.isfinite(nn.BCEWithLogitsLoss()(half, ddpflow.zeros(4).half()).item())


def test_probabilities_of_zero_and_one():
    """BCELoss of 0 and 1 is cut off at 100, as PyTorch does, and refuses what is no probability."""
    loss = nn.BCELoss(reduction="none")(ddpflow.tensor([0.0, 1.0]), ddpflow.tensor([1.0, 1.0]))
    assert loss.tolist() == [100.0, 0.0]
    with pytest.raises(RuntimeError, match="between 0 and 1|0 and 1"):
        nn.BCELoss()(ddpflow.tensor([1.5]), ddpflow.tensor([1.0]))


def test_older_names_of_the_reduction():
    """size_average and reduce choose the reduction, as in PyTorch."""
    assert nn.MSELoss(size_average=False).reduction == "sum"
    assert nn.MSELoss(reduce=False).reduction == "none"


def test_weights_are_buffers():
    """Weights move and cast with the module."""
    loss = nn.BCEWithLogitsLoss(pos_weight=ddpflow.ones(3))
    assert [name for name, _ in loss.named_buffers()] == ["pos_weight"]
    assert loss.double().pos_weight.dtype is ddpflow.float64


def test_errors():
    """Unknown reductions are ValueErrors, shapes that do not fit are errors with both shapes."""
    with pytest.raises(ValueError, match="middle"):
        nn.L1Loss(reduction="middle")(ddpflow.ones(2), ddpflow.ones(2))
    with pytest.raises(ValueError, match=r"\(2,\)|\[2\]"):
        nn.BCELoss()(ddpflow.tensor([0.5, 0.5]), ddpflow.ones(3))
    with pytest.raises(RuntimeError, match=r"\(2,\).*\(3,\)"):
        nn.MSELoss()(ddpflow.ones(2), ddpflow.ones(3))
    with pytest.raises(TypeError, match="delta must be a float"):
        nn.HuberLoss(delta="1")
    with pytest.raises(ValueError, match="variance|var"):
        nn.GaussianNLLLoss()(ddpflow.ones(2), ddpflow.ones(2), -ddpflow.ones(2))
