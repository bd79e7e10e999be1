"""Losses over classes, by hand."""

import itertools

import numpy as np
import pytest

import ddpflow
from ddpflow import nn

X = np.random.default_rng(0).standard_normal((4, 5)) * 2
LABELS = np.array([2, 0, 4, 2])
WEIGHT = np.array([0.5, 1.0, 2.0, 3.0, 0.1])


def log_softmax(x):
    """Returns the logarithm of the softmax over classes."""
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def test_cross_entropy_of_labels():
    """The mean of -log p[label]; weights count in the mean."""
    elements = -log_softmax(X)[np.arange(4), LABELS]
    x, labels = ddpflow.tensor(X), ddpflow.tensor(LABELS)
    assert nn.CrossEntropyLoss()(x, labels).item() == pytest.approx(elements.mean(), rel=1e-12)
    assert nn.CrossEntropyLoss(reduction="sum")(x, labels).item() == pytest.approx(elements.sum(), rel=1e-12)
    np.testing.assert_allclose(nn.CrossEntropyLoss(reduction="none")(x, labels).numpy(), elements, rtol=1e-12)
    w = WEIGHT[LABELS]
    weighted = nn.CrossEntropyLoss(ddpflow.tensor(WEIGHT))(x, labels).item()
    assert weighted == pytest.approx((elements * w).sum() / w.sum(), rel=1e-12)
    assert nn.CrossEntropyLoss()(x[0], labels[0]).item() == pytest.approx(elements[0], rel=1e-12)


def test_cross_entropy_of_probabilities():
    """Targets may be probabilities, and label smoothing mixes them with even ones."""
    targets = np.abs(X) / np.abs(X).sum(1, keepdims=True)
    expected = -(targets * log_softmax(X)).sum(1).mean()
    assert nn.CrossEntropyLoss()(ddpflow.tensor(X), ddpflow.tensor(targets)).item() == pytest.approx(expected)
    one_hot = np.eye(5)[LABELS] * 0.9 + 0.1 / 5
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1)(ddpflow.tensor(X), ddpflow.tensor(LABELS)).item()
    assert smooth == pytest.approx(-(one_hot * log_softmax(X)).sum(1).mean(), rel=1e-12)


def test_cross_entropy_of_images():
    """Classes stand in dimension 1, places after it."""
    x = ddpflow.randn(2, 3, 4, 5, dtype=ddpflow.float64)
    labels = ddpflow.randint(0, 3, (2, 4, 5))
    flat = nn.CrossEntropyLoss()(x.permute(0, 2, 3, 1).reshape(-1, 3), labels.reshape(-1))
    assert nn.CrossEntropyLoss()(x, labels).item() == pytest.approx(flat.item(), rel=1e-12)


def test_ignored_labels():
    """Ignored labels do not count; where all are ignored the gradient is exactly zero."""
    x, labels = ddpflow.tensor(X, requires_grad=True), ddpflow.tensor([2, -100, 4, -100])
    elements = -log_softmax(X)[[0, 2], [2, 4]]
    loss = nn.CrossEntropyLoss()(x, labels)
    assert loss.item() == pytest.approx(elements.mean(), rel=1e-12)
    loss.backward()
    assert not x.grad[1].any()
    x.grad = None
    nn.CrossEntropyLoss()(x, ddpflow.full((4,), -100)).backward()
    assert not x.grad.any()


def test_nll_is_cross_entropy_after_log_softmax():
    """NLLLoss after LogSoftmax is CrossEntropyLoss; NLLLoss2d is the same."""
    x, labels = ddpflow.tensor(X), ddpflow.tensor(LABELS)
    logp = nn.LogSoftmax(1)(x)
    weight = ddpflow.tensor(WEIGHT)
    expected = nn.CrossEntropyLoss(weight)(x, labels).item()
    assert nn.NLLLoss(weight)(logp, labels).item() == pytest.approx(expected, rel=1e-12)
    image = logp.reshape(1, 4, 5, 1).transpose(1, 2)
    assert nn.NLLLoss2d(weight)(image, labels.reshape(1, 4, 1)).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("label", [5, -4])
def test_labels_out_of_range(label):
    """A label that is no class and not ignored is an IndexError with the label."""
    with pytest.raises(IndexError, match=str(label)):
        nn.CrossEntropyLoss()(ddpflow.tensor(X), ddpflow.tensor([0, 1, 2, label]))


def test_shapes_that_do_not_fit():
    """Targets of another size are errors with both shapes."""
    with pytest.raises((ValueError, RuntimeError), match="3"):
        nn.CrossEntropyLoss()(ddpflow.tensor(X), ddpflow.tensor([0, 1, 2]))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_multi_margin(p, weight):
    """The hinge of each other class against the target's score, weighted by the target's class."""
    gap = np.maximum(0, 0.7 - X[np.arange(4), LABELS][:, None] + X) ** p
    gap[np.arange(4), LABELS] = 0
    elements = gap.sum(1) / 5 * (1 if weight is None else weight[LABELS])
    module = nn.MultiMarginLoss(p, 0.7, None if weight is None else ddpflow.tensor(weight), reduction="none")
    np.testing.assert_allclose(module(ddpflow.tensor(X), ddpflow.tensor(LABELS)).numpy(), elements, rtol=1e-12)
    with pytest.raises(ValueError, match="only p == 1 and p == 2"):
        nn.MultiMarginLoss(3)
    with pytest.raises(ValueError, match="1D"):
        nn.MultiMarginLoss(weight=ddpflow.ones(2, 2))


def test_multi_label_margin():
    """Each target before the first -1 against each class that is no target."""
    targets = np.array([[3, 0, -1, 1, 2], [1, -1, 0, 0, 0], [-1, 0, 1, 2, 3], [4, 3, 2, 1, 0]])
    elements = []
    for x, row in zip(X, targets, strict=True):
        wanted = list(itertools.takewhile(lambda t: t >= 0, row))
        others = [k for k in range(5) if k not in wanted]
        elements.append(sum(max(0, 1 - (x[t] - x[k])) for t in wanted for k in others) / 5)
    out = nn.MultiLabelMarginLoss(reduction="none")(ddpflow.tensor(X), ddpflow.tensor(targets))
    np.testing.assert_allclose(out.numpy(), elements, rtol=1e-12)


def test_multi_label_soft_margin():
    """The binary cross entropy of each class, averaged over the classes."""
    targets = np.random.default_rng(3).integers(0, 2, (4, 5)).astype(float)
    losses = targets * np.logaddexp(0, -X) + (1 - targets) * np.logaddexp(0, X)
    module = nn.MultiLabelSoftMarginLoss(ddpflow.tensor(WEIGHT), reduction="none")
    out = module(ddpflow.tensor(X), ddpflow.tensor(targets))
    np.testing.assert_allclose(out.numpy(), (losses * WEIGHT).mean(1), rtol=1e-12)


def collapse(path):
    """Returns the labels of an alignment: repeats merged, blanks (0) removed."""
    merged = [label for label, _ in itertools.groupby(path)]
    return [label for label in merged if label != 0]


@pytest.mark.parametrize("target", [[1, 2], [1, 1], [2], []])
def test_ctc_sums_all_alignments(target):
    """CTC is the negative log of the summed probability of all paths that collapse to the target."""
    logp = log_softmax(np.random.default_rng(5).standard_normal((4, 3)))
    total = sum(
        np.exp(sum(logp[t, k] for t, k in enumerate(path)))
        for path in itertools.product(range(3), repeat=4)
        if collapse(path) == target
    )
    x = ddpflow.tensor(logp[:, None], requires_grad=True)
    targets = ddpflow.tensor([target + [0] * (2 - len(target))])
    loss = nn.CTCLoss(reduction="sum")(x, targets, [4], [len(target)])
    assert loss.item() == pytest.approx(-np.log(total), rel=1e-9)
    loss.backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_ctc_of_a_target_too_long():
    """A target longer than its input has an infinite loss, or zero with zero_infinity."""
    x = ddpflow.tensor(log_softmax(X[:1])[:, None], requires_grad=True)
    arguments = (x, ddpflow.tensor([[1, 2]]), [1], [2])
    assert nn.CTCLoss()(*arguments).item() == np.inf
    loss = nn.CTCLoss(zero_infinity=True)(*arguments)
    assert loss.item() == 0.0
    loss.backward()
    assert not x.grad.any()


@pytest.mark.parametrize(
    "module",
    [nn.CrossEntropyLoss(label_smoothing=0.1), nn.MultiMarginLoss(2), nn.NLLLoss(reduction="sum")],
    ids=repr,
)
def test_gradients(module):
    """Gradients agree with finite differences."""
    x = ddpflow.tensor(X, requires_grad=True)
    assert ddpflow.autograd.gradcheck(lambda x: module(x, ddpflow.tensor(LABELS)), x)


def test_linear_cross_entropy():
    """The module holds the linear layer, and its loss is that of the layer's scores."""
    loss = nn.LinearCrossEntropyLoss(5, 3, bias=True, label_smoothing=0.1).double()
    x, labels = ddpflow.randn(4, 5, dtype=ddpflow.float64), ddpflow.tensor([0, 2, 1, 2])
    expected = nn.CrossEntropyLoss(label_smoothing=0.1)(loss.linear(x), labels)
    assert loss(x, labels).item() == pytest.approx(expected.item(), rel=1e-12)
    assert list(loss.state_dict()) == ["linear.weight", "linear.bias"]
    several = nn.LinearCrossEntropyLoss(5, 3, out_features=(2,))
    assert several.linear.weight.shape == (6, 5)
    assert several(x.float(), ddpflow.tensor([[0, 1]] * 4)).shape == ()
    with pytest.raises(RuntimeError, match=r"expected weight shape to be \(3,\), got \(2,\)"):
        nn.LinearCrossEntropyLoss(5, 3, weight=ddpflow.ones(2))
    with pytest.raises(RuntimeError, match="label_smoothing"):
        nn.LinearCrossEntropyLoss(5, 3, label_smoothing=1.5)
