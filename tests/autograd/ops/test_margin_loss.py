"""Margin losses against their formulas, element by element."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.ops import margin_loss as ops


@pytest.fixture
def scores(rng):
    """Scores of three samples for four classes."""
    return rng.standard_normal((3, 4))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("weighted", [True, False])
def test_multi_margin(scores, p, weighted):
    """Every class but the right one, over the number of classes."""
    labels, w = [2, 0, 3], np.array([1.0, 2.0, 0.5, 4.0])
    expected = [
        sum(max(0, 0.7 - x[y] + x[j]) ** p for j in range(4) if j != y) / 4 * (w[y] if weighted else 1)
        for x, y in zip(scores, labels, strict=True)
    ]
    weight = ddpflow.from_numpy(w) if weighted else None
    found = ops.multi_margin_loss(ddpflow.from_numpy(scores), ddpflow.tensor(labels), p, 0.7, weight, reduction="none")
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10)


def test_multilabel_margin(scores):
    """Labels count up to the first -1."""
    labels = [[2, 0, -1, 1], [3, -1, -1, -1], [-1, 0, 0, 0]]
    expected = []
    for x, row in zip(scores, labels, strict=True):
        right = row[: row.index(-1)]
        expected.append(sum(max(0, 1 - (x[r] - x[j])) for r in right for j in range(4) if j not in right) / 4)
    found = ops.multilabel_margin_loss(ddpflow.from_numpy(scores), ddpflow.tensor(labels), reduction="none")
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10)


def test_soft_margins(scores):
    """log(1 + exp(-t x)), and its mean over labels."""
    x, signs = ddpflow.from_numpy(scores), np.where(scores > 0.1, 1.0, -1.0)
    expected = np.log1p(np.exp(-signs * scores))
    np.testing.assert_allclose(ops.soft_margin_loss(x, ddpflow.from_numpy(signs)).item(), expected.mean(), rtol=1e-10)
    labels = ddpflow.from_numpy((signs + 1) / 2)
    found = ops.multilabel_soft_margin_loss(x, labels, reduction="none")
    np.testing.assert_allclose(found.numpy(), expected.mean(1), rtol=1e-10)


def test_pairs(rng):
    """Ranking, hinge and cosine losses of targets 1 and -1."""
    a, b = rng.standard_normal((2, 3)), rng.standard_normal((2, 3))
    t = ddpflow.tensor([1.0, -1.0], dtype=ddpflow.float64)
    x, y = ddpflow.from_numpy(a[:, 0].copy()), ddpflow.from_numpy(b[:, 0].copy())
    ranking = ops.margin_ranking_loss(x, y, t, margin=0.5, reduction="none").numpy()
    np.testing.assert_allclose(ranking, np.maximum(0, -np.array([1, -1]) * (a - b)[:, 0] + 0.5))
    hinge = ops.hinge_embedding_loss(x, t, margin=2.0, reduction="none").numpy()
    np.testing.assert_allclose(hinge, [a[0, 0], max(0, 2 - a[1, 0])])
    cos = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    found = ops.cosine_embedding_loss(ddpflow.from_numpy(a), ddpflow.from_numpy(b), t, margin=-0.5, reduction="none")
    np.testing.assert_allclose(found.numpy(), [1 - cos[0], max(0, cos[1] + 0.5)], rtol=1e-9)


@pytest.mark.parametrize("swap", [True, False])
def test_triplets(rng, swap):
    """Near, far, and the smaller of two far distances with ``swap``."""
    a, p, n = (rng.standard_normal((4, 3)) for _ in range(3))

    def norm(u, v):
        return np.linalg.norm(u - v + 1e-6, axis=1)

    far = np.minimum(norm(a, n), norm(p, n)) if swap else norm(a, n)
    tensors = [ddpflow.from_numpy(v) for v in (a, p, n)]
    found = ops.triplet_margin_loss(*tensors, swap=swap, reduction="none")
    np.testing.assert_allclose(found.numpy(), np.maximum(0, 1 + norm(a, p) - far), rtol=1e-10)
    own = ops.triplet_margin_with_distance_loss(
        *tensors, distance_function=lambda u, v: (u - v).abs().sum(-1), margin=2.0, reduction="sum"
    )
    assert own.item() == pytest.approx(np.maximum(0, 2 + np.abs(a - p).sum(1) - np.abs(a - n).sum(1)).sum())


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x, y: ops.multi_margin_loss(x, y, p=3), ValueError),
        (lambda x, y: ops.multi_margin_loss(x, y + 9), IndexError),
        (lambda x, y: ops.multilabel_margin_loss(x, y), RuntimeError),
        (lambda x, y: ops.margin_ranking_loss(x, x, y), RuntimeError),
        (lambda x, y: ops.cosine_embedding_loss(x, x, x), RuntimeError),
        (lambda x, y: ops.soft_margin_loss(x, y), RuntimeError),
        (lambda x, y: ops.triplet_margin_loss(x, x, x, margin=0), ValueError),
        (lambda x, y: ops.triplet_margin_with_distance_loss(x, x, y), RuntimeError),
    ],
)
def test_bad_arguments(call, error):
    """PyTorch's exception type."""
    with pytest.raises(error):
        call(ddpflow.zeros(2, 3), ddpflow.tensor([0, 1]))
