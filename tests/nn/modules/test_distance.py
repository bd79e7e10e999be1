"""Distances and similarities by hand."""

import numpy as np
import pytest

import ddpflow
from ddpflow import nn

A = np.random.default_rng(1).standard_normal((4, 3))
B = np.random.default_rng(2).standard_normal((4, 3))


@pytest.mark.parametrize("p", [1, 2, 3, np.inf])
def test_pairwise_distance(p):
    """The p-norm of the difference plus eps over the last dimension."""
    expected = np.linalg.norm(A - B + 1e-6, p, 1)
    np.testing.assert_allclose(
        nn.PairwiseDistance(p)(ddpflow.tensor(A), ddpflow.tensor(B)).numpy(), expected, rtol=1e-10
    )
    assert nn.PairwiseDistance(p, keepdim=True)(ddpflow.tensor(A), ddpflow.tensor(B)).shape == (4, 1)


def test_distance_of_equal_vectors_has_a_finite_gradient():
    """Eps keeps the gradient finite where the vectors are equal."""
    x = ddpflow.tensor(A, requires_grad=True)
    nn.PairwiseDistance()(x, ddpflow.tensor(A)).sum().backward()
    assert np.isfinite(x.grad.numpy()).all()


def test_cosine_similarity():
    """The cosine of the angle, along any dimension, 0 for a zero vector."""
    for dim in (0, 1):
        expected = (A * B).sum(dim) / (np.linalg.norm(A, axis=dim) * np.linalg.norm(B, axis=dim))
        found = nn.CosineSimilarity(dim)(ddpflow.tensor(A), ddpflow.tensor(B)).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert nn.CosineSimilarity(0)(ddpflow.zeros(3), ddpflow.ones(3)).item() == 0.0


@pytest.mark.parametrize("module", [nn.PairwiseDistance(), nn.PairwiseDistance(3), nn.CosineSimilarity()])
def test_gradients(module):
    """Gradients agree with finite differences."""
    inputs = [ddpflow.tensor(x, requires_grad=True) for x in (A, B)]
    assert ddpflow.autograd.gradcheck(module, inputs)
