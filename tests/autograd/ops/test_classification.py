"""Cross entropy and negative log likelihood: weights, ignored labels, smoothing, reductions, bad labels."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.ops.classification import cross_entropy, nll_loss
from ddpflow.autograd.ops.softmax import log_softmax


def written_out(x, target, weight, ignore, smoothing, reduction):
    """The loss, label by label."""
    classes = x.shape[1]
    w = np.ones(classes) if weight is None else weight
    logp = x - np.log(np.exp(x).sum(1, keepdims=True))
    losses, counts = [], []
    for row, label in zip(logp, target, strict=True):
        if label == ignore:
            losses.append(0.0)
            counts.append(0.0)
            continue
        plain, spread = -w[label] * row[label], -(w * row).sum() / classes
        losses.append((1 - smoothing) * plain + smoothing * spread)
        counts.append(w[label])
    if reduction == "none":
        return np.array(losses)
    return sum(losses) / (sum(counts) if reduction == "mean" else 1)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [True, False])
def test_equals_the_loss_written_out(rng, reduction, smoothing, weighted):
    """With weights, an ignored label and smoothing; its gradient is that of the parts it is made of."""
    x, target = rng.standard_normal((6, 4)), np.array([0, 3, 1, 2, 1, 0])
    weight = np.array([0.5, 1.0, 2.0, 4.0]) if weighted else None
    t = ddpflow.from_numpy(x).requires_grad_()
    w = None if weight is None else ddpflow.from_numpy(weight)
    loss = cross_entropy(
        t, ddpflow.from_numpy(target), w, ignore_index=1, reduction=reduction, label_smoothing=smoothing
    )
    np.testing.assert_allclose(
        loss.detach().numpy(), written_out(x, target, weight, 1, smoothing, reduction), rtol=1e-10
    )
    assert ddpflow.autograd.gradcheck(
        lambda z: cross_entropy(
            z, ddpflow.from_numpy(target), w, ignore_index=1, reduction=reduction, label_smoothing=smoothing
        ),
        (t,),
    )


def test_mean_is_over_what_counts():
    """Labels [0, -100, 2] give the mean over two."""
    x = ddpflow.tensor([[1.0, 2.0, 4.0], [9.0, 1.0, 0.0], [0.0, 3.0, 1.0]], dtype=ddpflow.float64)
    both = cross_entropy(x, ddpflow.tensor([0, -100, 2]))
    alone = cross_entropy(x[ddpflow.tensor([0, 2])], ddpflow.tensor([0, 2]))
    assert both.item() == pytest.approx(alone.item(), rel=1e-12)


@pytest.mark.parametrize("loss", [cross_entropy, nll_loss])
def test_all_ignored_is_nan_with_a_gradient_of_zero(loss):
    """One empty rank cannot poison an average of gradients."""
    x = ddpflow.tensor([[1.0, -2.0], [0.5, 3.0]], requires_grad=True)
    value = loss(x, ddpflow.tensor([-100, -100]))
    value.backward()
    assert math.isnan(value.item())
    assert x.grad.tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("loss", [cross_entropy, nll_loss])
@pytest.mark.parametrize("label", [-4, 3])
def test_a_label_outside_the_classes_is_named(loss, label):
    """An IndexError with the label, before any memory is read."""
    with pytest.raises(IndexError, match=rf"Target {label} is out of bounds"):
        loss(ddpflow.zeros(2, 3), ddpflow.tensor([0, label]))


def test_probabilities_as_target(rng):
    """A target of probabilities that are all at one class is that class; smoothing mixes in all."""
    x = ddpflow.from_numpy(rng.standard_normal((3, 4)))
    onehot = ddpflow.from_numpy(np.eye(4)[[2, 0, 3]])
    for smoothing in (0.0, 0.2):
        a = cross_entropy(x, onehot, label_smoothing=smoothing)
        b = cross_entropy(x, ddpflow.tensor([2, 0, 3]), label_smoothing=smoothing)
        assert a.item() == pytest.approx(b.item(), rel=1e-12)


def test_more_axes_and_none(rng):
    """``(N, C, H, W)`` is every pixel by itself; ``(C,)`` is one sample."""
    x, target = rng.standard_normal((2, 3, 2, 2)), rng.integers(0, 3, (2, 2, 2))
    rows = cross_entropy(
        ddpflow.from_numpy(np.moveaxis(x, 1, -1).reshape(-1, 3).copy()), ddpflow.from_numpy(target.reshape(-1))
    )
    assert cross_entropy(ddpflow.from_numpy(x), ddpflow.from_numpy(target)).item() == pytest.approx(rows.item())
    one = cross_entropy(ddpflow.from_numpy(x[0, :, 0, 0].copy()), ddpflow.tensor(1), reduction="none")
    assert tuple(one.shape) == ()
    same = nll_loss(log_softmax(ddpflow.from_numpy(x), 1), ddpflow.from_numpy(target))
    assert same.item() == pytest.approx(rows.item())


@pytest.mark.parametrize(
    ("shapes", "kwargs", "error", "words"),
    [
        (((2, 3), (4,)), {}, ValueError, r"batch_size \(2\).*\(4\)"),
        (((2, 3), (2, 1)), {}, RuntimeError, r"\(2, 1\)"),
        (((2, 3), (2,)), {"reduction": "avg"}, ValueError, "avg"),
        (((2, 3), (2,)), {"label_smoothing": 1.5}, RuntimeError, "label_smoothing"),
        (((2, 3), (2,)), {"weight": (4,)}, RuntimeError, r"\(4,\)"),
    ],
)
def test_bad_arguments(shapes, kwargs, error, words):
    """Each is one error of PyTorch's type that holds the shapes."""
    x, target = ddpflow.zeros(*shapes[0]), ddpflow.zeros(*shapes[1], dtype=ddpflow.int64)
    kwargs = {k: ddpflow.ones(*v) if k == "weight" else v for k, v in kwargs.items()}
    with pytest.raises(error, match=words):
        cross_entropy(x, target, **kwargs)
