"""CTC and the loss of a linear layer's scores, as functions; their values are tested through the modules."""

import numpy as np
import pytest

import ddpflow
import ddpflow.nn.functional as F


def test_ctc_forms_of_targets():
    """Targets as a matrix and one after another, lengths as lists and tensors, give the same losses."""
    logits = ddpflow.randn(6, 3, 4, dtype=ddpflow.float64)
    logp = F.log_softmax(logits, 2)
    matrix = ddpflow.tensor([[1, 2, 3], [2, 2, 0], [3, 0, 0]])
    flat = ddpflow.tensor([1, 2, 3, 2, 2, 3])
    lengths = [3, 2, 1]
    expected = F.ctc_loss(logp, matrix, [6, 6, 4], lengths, reduction="none")
    found = F.ctc_loss(logp, flat, ddpflow.tensor([6, 6, 4]), ddpflow.tensor(lengths), reduction="none")
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)
    mean = F.ctc_loss(logp, matrix, [6, 6, 4], lengths)
    assert mean.item() == pytest.approx((expected.numpy() / lengths).mean(), rel=1e-12)
    assert F.ctc_loss(logp, matrix, [6, 6, 4], lengths, reduction="sum").item() == pytest.approx(expected.sum().item())
    for n in range(3):
        steps = [6, 6, 4][n]
        alone = F.ctc_loss(logp[:steps, n], matrix[n, : lengths[n]], [steps], [lengths[n]], reduction="none")
        assert alone.shape == ()
        assert alone.item() == pytest.approx(expected[n].item(), rel=1e-12)


def test_ctc_gradient_passes_log_softmax():
    """The gradient of the logits agrees with finite differences; steps past the end have none."""
    logits = ddpflow.randn(4, 2, 3, dtype=ddpflow.float64, requires_grad=True)
    targets = ddpflow.tensor([[1, 1], [2, 0]])

    def run(logits):
        return F.ctc_loss(F.log_softmax(logits, 2), targets, [4, 2], [2, 1], reduction="none")

    assert ddpflow.autograd.gradcheck(run, logits)
    run(logits).sum().backward()
    assert not logits.grad[2:, 1].any()


def test_ctc_without_steps():
    """No steps at all match only the empty target."""
    logp = F.log_softmax(ddpflow.randn(2, 2, 3), 2)
    loss = F.ctc_loss(logp, ddpflow.tensor([[1], [1]]), [0, 0], [0, 1], reduction="none")
    assert loss.tolist() == [0.0, np.inf]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blank": 3}, "blank must be in label range: 3 with 3 classes"),
        ({"input_lengths": [5, 4]}, r"input_lengths must be between 0 and 4, not \[5, 4\]"),
        ({"input_lengths": [4]}, "must be of size batch_size: 1 lengths for a batch of 2"),
        ({"target_lengths": [3, 1]}, "target_lengths must be between 0 and 2"),
        ({"targets": ddpflow.tensor([1, 2]), "target_lengths": [2, 1]}, "add up to more than the 2 labels"),
    ],
)
def test_ctc_errors(options, message):
    """Lengths and blanks that do not fit are RuntimeErrors."""
    given = {"targets": ddpflow.tensor([[1, 2], [1, 0]]), "input_lengths": [4, 4], "target_lengths": [2, 1]} | options
    with pytest.raises(RuntimeError, match=message):
        F.ctc_loss(ddpflow.zeros(4, 2, 3), **given)


@pytest.mark.parametrize("places", [(), (2,), (2, 3)])
def test_linear_cross_entropy(places):
    """It is the cross entropy of the linear layer's scores, also over several places."""
    x = ddpflow.randn(4, 5, dtype=ddpflow.float64)
    weight = ddpflow.randn(3, *places, 5, dtype=ddpflow.float64)
    bias = ddpflow.randn(3, *places, dtype=ddpflow.float64)
    target = ddpflow.randint(0, 3, (4, *places))
    logits = ddpflow.tensor(np.einsum("nf,c...f->nc...", x.numpy(), weight.numpy()) + bias.numpy())
    expected = F.cross_entropy(logits, target, label_smoothing=0.1).item()
    found = F.linear_cross_entropy(x, weight, target, linear_bias=bias, label_smoothing=0.1)
    assert found.item() == pytest.approx(expected, rel=1e-12)
