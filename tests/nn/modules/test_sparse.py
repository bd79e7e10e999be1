"""Embedding tables."""

import numpy as np
import pytest

import ddpflow
from ddpflow import nn


def test_embedding_looks_rows_up():
    """Rows come in the shape of the index; repeated rows add their gradients up."""
    table = nn.Embedding(5, 3)
    index = ddpflow.tensor([[0, 2], [2, 4]])
    y = table(index)
    np.testing.assert_array_equal(y.detach().numpy(), table.weight.detach().numpy()[index.numpy()])
    (y * ddpflow.arange(1.0, 5.0).reshape(2, 2, 1)).sum().backward()
    assert table.weight.grad[:, 0].tolist() == [1.0, 0.0, 5.0, 0.0, 4.0]


def test_padding_row():
    """The padding row starts at zero and gets no gradient; negative numbers count from the end."""
    table = nn.Embedding(4, 2, padding_idx=-1)
    assert table.padding_idx == 3
    assert table.weight[3].tolist() == [0.0, 0.0]
    table(ddpflow.tensor([3, 1, 3])).sum().backward()
    assert table.weight.grad[:, 0].tolist() == [0.0, 1.0, 0.0, 0.0]


def test_max_norm_scales_rows_in_place():
    """Rows that are looked up are scaled down to max_norm; others stay."""
    table = nn.Embedding(3, 2, max_norm=1.0)
    with ddpflow.no_grad():
        table.weight.copy_(ddpflow.tensor([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]]))
    table(ddpflow.tensor([0, 1]))
    np.testing.assert_allclose(table.weight.detach().numpy(), [[0.6, 0.8], [0.3, 0.4], [6.0, 8.0]], rtol=1e-5)


def test_scale_grad_by_freq():
    """A row's gradient is divided by how often it occurs."""
    table = nn.Embedding(3, 1, scale_grad_by_freq=True)
    table(ddpflow.tensor([1, 1, 1, 2])).sum().backward()
    assert table.weight.grad.flatten().tolist() == [0.0, 1.0, 1.0]


def test_from_pretrained():
    """A given table is frozen, unless freeze=False."""
    values = ddpflow.arange(6.0).reshape(3, 2)
    table = nn.Embedding.from_pretrained(values)
    assert not table.weight.requires_grad
    assert table(ddpflow.tensor(2)).tolist() == [4.0, 5.0]
    assert nn.Embedding.from_pretrained(values, freeze=False).weight.requires_grad
    with pytest.raises(ValueError, match="2-dimensional"):
        nn.Embedding.from_pretrained(ddpflow.ones(3))


def test_errors():
    """Rows out of range are IndexErrors; floating indices and padding rows that do not exist are refused."""
    table = nn.Embedding(3, 2)
    with pytest.raises(IndexError, match="3"):
        table(ddpflow.tensor([0, 3]))
    with pytest.raises((TypeError, RuntimeError)):
        table(ddpflow.tensor([0.5]))
    with pytest.raises(ValueError, match="7 is no row of 3"):
        nn.Embedding(3, 2, padding_idx=7)
    with pytest.raises(ValueError, match=r"weight of shape \(2, 2\)"):
        nn.Embedding(3, 2, _weight=ddpflow.ones(2, 2))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags(mode):
    """Bags as rows of a matrix, or one after another with offsets, are reduced; an empty bag is zero."""
    bag = nn.EmbeddingBag(6, 3, mode=mode).double()
    weight = bag.weight.detach().numpy()
    reduce = getattr(np, mode)
    rows = np.array([[0, 2, 4], [5, 5, 1]])
    expected = np.stack([reduce(weight[row], 0) for row in rows])
    np.testing.assert_allclose(bag(ddpflow.tensor(rows)).detach().numpy(), expected, rtol=1e-12)
    flat, offsets = [0, 2, 4, 5, 5], [0, 3, 3]
    out = bag(ddpflow.tensor(flat), ddpflow.tensor(offsets)).detach().numpy()
    np.testing.assert_allclose(out[0], reduce(weight[[0, 2, 4]], 0), rtol=1e-12)
    np.testing.assert_allclose(out[1], np.zeros(3))
    np.testing.assert_allclose(out[2], reduce(weight[[5, 5]], 0), rtol=1e-12)
    assert ddpflow.autograd.gradcheck(
        lambda weight: nn.functional.embedding_bag(ddpflow.tensor(rows), weight, mode=mode), bag.weight
    )


def test_bag_options():
    """Weights per sample, a padding row and the last offset work together."""
    bag = nn.EmbeddingBag(5, 2, mode="sum", padding_idx=0, include_last_offset=True).double()
    weight = bag.weight.detach().numpy()
    scale = ddpflow.tensor([2.0, 3.0, 5.0, 7.0], dtype=ddpflow.float64, requires_grad=True)
    out = bag(ddpflow.tensor([1, 0, 3, 4]), ddpflow.tensor([0, 2, 4]), scale)
    expected = [2 * weight[1], 5 * weight[3] + 7 * weight[4]]
    np.testing.assert_allclose(out.detach().numpy(), expected, rtol=1e-12)
    out.sum().backward()
    np.testing.assert_allclose(scale.grad.numpy()[[0, 2, 3]], weight[[1, 3, 4]].sum(1), rtol=1e-12)
    assert bag.weight.grad[0].tolist() == [0.0, 0.0]


def test_bag_errors():
    """Offsets with a matrix, missing offsets and unknown modes are ValueErrors."""
    bag = nn.EmbeddingBag(5, 2)
    with pytest.raises(ValueError, match="offsets"):
        bag(ddpflow.tensor([[1, 2]]), ddpflow.tensor([0]))
    with pytest.raises(ValueError, match="offsets"):
        bag(ddpflow.tensor([1, 2]))
    with pytest.raises(ValueError, match="mode"):
        nn.EmbeddingBag(5, 2, mode="median")(ddpflow.tensor([[1, 2]]))


def test_repr():
    """Only what is not the default is printed."""
    assert repr(nn.Embedding(5, 3, padding_idx=0)) == "Embedding(5, 3, padding_idx=0)"
    assert repr(nn.EmbeddingBag(5, 3, max_norm=1.5)) == "EmbeddingBag(5, 3, max_norm=1.5, mode='mean')"
