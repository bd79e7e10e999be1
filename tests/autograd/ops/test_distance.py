"""Distances: values, zero vectors, shapes."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.ops.distance import cdist, cosine_similarity, normalize, pairwise_distance, pdist


def test_all_pairs(rng):
    """The matrix of cdist holds every pair's norm; pdist the pairs above the diagonal, row by row."""
    a, b = rng.standard_normal((4, 3)), rng.standard_normal((5, 3))
    expected = np.linalg.norm(a[:, None] - b[None], axis=-1)
    np.testing.assert_allclose(cdist(ddpflow.from_numpy(a), ddpflow.from_numpy(b)).numpy(), expected, rtol=1e-10)
    own = np.linalg.norm(a[:, None] - a[None], axis=-1)[np.triu_indices(4, 1)]
    np.testing.assert_allclose(pdist(ddpflow.from_numpy(a)).numpy(), own, rtol=1e-10)
    with pytest.raises(RuntimeError, match=r"\(4, 3\).*\(5, 2\)"):
        cdist(ddpflow.from_numpy(a), ddpflow.zeros(5, 2))
    with pytest.raises(RuntimeError, match="1D"):
        pdist(ddpflow.zeros(3))


def test_pairs_of_equal_vectors_have_a_finite_gradient():
    """The distance is not 0 but eps for each element, so that its slope exists."""
    x = ddpflow.tensor([[1.0, 2.0]], requires_grad=True)
    pairwise_distance(x, ddpflow.tensor([[1.0, 2.0]])).sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_zero_vectors_have_similarity_0_and_stay_0():
    """Lengths count as at least eps."""
    zero, one = ddpflow.zeros(1, 3), ddpflow.ones(1, 3)
    assert cosine_similarity(zero, one).tolist() == [0.0]
    assert cosine_similarity(one, one * 5).tolist() == pytest.approx([1.0])
    assert normalize(zero).tolist() == [[0.0, 0.0, 0.0]]
    np.testing.assert_allclose(normalize(one, p=1.0).numpy(), 1 / 3, rtol=1e-6)
