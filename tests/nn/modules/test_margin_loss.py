"""Margin losses of pairs and triplets, by hand."""

import numpy as np
import pytest

import ddpflow
from ddpflow import nn

RNG = np.random.default_rng(0)
A, B, C = RNG.standard_normal((3, 6, 4))
SIGN = np.array([1.0, -1.0, 1.0, -1.0, -1.0, 1.0])


def distance(x, y, p=2):
    """Returns the p-norm of each row's difference plus eps."""
    return np.linalg.norm(x - y + 1e-6, p, 1)


def check(module, inputs, elements, differentiable):
    """Asserts values for every reduction, and gradients of the first inputs."""
    tensors = [ddpflow.tensor(x) for x in inputs]
    for reduction, value in (("none", elements), ("sum", elements.sum()), ("mean", elements.mean())):
        module.reduction = reduction
        np.testing.assert_allclose(module(*tensors).numpy(), value, rtol=1e-9, atol=1e-12)
    leaves = [ddpflow.tensor(x, requires_grad=True) for x in inputs[:differentiable]]
    assert ddpflow.autograd.gradcheck(lambda *xs: module(*xs, *tensors[differentiable:]), leaves)


@pytest.mark.parametrize("margin", [0.0, 0.3])
def test_cosine_embedding(margin):
    """Like pairs should have cosine 1, unlike ones at most the margin."""
    cos = (A * B).sum(1) / (np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1))
    elements = np.where(SIGN == 1, 1 - cos, np.maximum(0, cos - margin))
    check(nn.CosineEmbeddingLoss(margin), (A, B, SIGN), elements, 2)


def test_margin_ranking():
    """The first should be above the second by the margin where the target is 1, below where it is -1."""
    check(nn.MarginRankingLoss(0.5), (A[:, 0], B[:, 0], SIGN), np.maximum(0, -SIGN * (A - B)[:, 0] + 0.5), 2)


def test_hinge_embedding():
    """The input for like pairs, the rest of the margin for unlike ones."""
    x = np.abs(A[:, 0])
    check(nn.HingeEmbeddingLoss(0.8), (x, SIGN), np.where(SIGN == 1, x, np.maximum(0, 0.8 - x)), 1)


def test_soft_margin():
    """log(1 + exp(-target * input))."""
    check(nn.SoftMarginLoss(), (A[:, 0], SIGN), np.log1p(np.exp(-SIGN * A[:, 0])), 1)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("swap", [False, True])
def test_triplets(p, swap):
    """The negative should be farther than the positive by the margin; swap takes the closer of two negatives."""
    far = distance(A, C, p)
    far = np.minimum(far, distance(B, C, p)) if swap else far
    elements = np.maximum(0, distance(A, B, p) - far + 1.5)
    check(nn.TripletMarginLoss(1.5, p, swap=swap), (A, B, C), elements, 3)
    with pytest.raises(ValueError, match="greater than 0"):
        nn.TripletMarginLoss(0)


def test_triplets_with_any_distance():
    """Any function of two tensors can be the distance; the default is the pairwise distance."""

    def squared(x, y):
        return ((x - y) ** 2).sum(1)

    elements = np.maximum(0, ((A - B) ** 2).sum(1) - ((A - C) ** 2).sum(1) + 1.0)
    check(nn.TripletMarginWithDistanceLoss(distance_function=squared), (A, B, C), elements, 3)
    plain = nn.TripletMarginWithDistanceLoss(swap=True)
    tensors = [ddpflow.tensor(x) for x in (A, B, C)]
    assert plain(*tensors).item() == pytest.approx(nn.TripletMarginLoss(swap=True)(*tensors).item(), rel=1e-9)
    with pytest.raises(ValueError, match="greater than 0"):
        nn.TripletMarginWithDistanceLoss(margin=-1.0)
