"""embedding_bag as a function; most of it is tested through the module."""

import numpy as np
import pytest

import ddpflow
import ddpflow.nn.functional as F

WEIGHT = ddpflow.randn(5, 2, dtype=ddpflow.float64)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_padding_row_does_not_take_part(mode):
    """Bags are reduced without the padding row; a bag of nothing else is zero."""
    index = ddpflow.tensor([[1, 4, 4], [4, 2, 3], [4, 4, 4]])
    out = F.embedding_bag(index, WEIGHT, mode=mode, padding_idx=-1).numpy()
    weight = WEIGHT.numpy()
    expected = [weight[1], getattr(np, mode)(weight[[2, 3]], 0), np.zeros(2)]
    np.testing.assert_allclose(out, expected, rtol=1e-12)


def test_empty_input():
    """No rows at all give bags of zeros."""
    out = F.embedding_bag(ddpflow.tensor([], dtype=ddpflow.int64), WEIGHT, ddpflow.tensor([0, 0]))
    assert out.tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_gradients(mode):
    """Gradients of the table agree with finite differences, with repeated rows."""
    weight = WEIGHT.clone().requires_grad_()
    index, offsets = ddpflow.tensor([0, 2, 2, 4, 1]), ddpflow.tensor([0, 3])
    assert ddpflow.autograd.gradcheck(lambda weight: F.embedding_bag(index, weight, offsets, mode=mode), weight)


@pytest.mark.parametrize(
    ("index", "options", "error", "message"),
    [
        ([0, 1], {"offsets": [1]}, ValueError, r"must rise from 0 to at most 2, not \[1\]"),
        ([0, 1], {"offsets": [0, 2, 1]}, ValueError, "must rise"),
        ([0, 1], {"offsets": [], "include_last_offset": True}, ValueError, "at least 1"),
        ([[[0]]], {}, ValueError, r"1D or 2D Tensor, but got shape \(1, 1, 1\)"),
        ([[0.5]], {}, TypeError, "integer row numbers"),
        ([[7]], {}, IndexError, "7"),
        ([[0]], {"mode": "max", "scale_grad_by_freq": True}, ValueError, "max mode"),
        ([[0]], {"per_sample_weights": [[1.0]]}, ValueError, "only supported for mode='sum'"),
        ([[0]], {"per_sample_weights": [1.0], "mode": "sum"}, ValueError, "same shape"),
    ],
)
def test_errors(index, options, error, message):
    """Row numbers, offsets and options that do not fit are errors that say so."""
    given = {k: ddpflow.tensor(v) if isinstance(v, list) else v for k, v in options.items()}
    if "offsets" in given:
        given["offsets"] = given["offsets"].long()
    with pytest.raises(error, match=message):
        F.embedding_bag(ddpflow.tensor(index), WEIGHT, **given)


def test_table_must_be_a_matrix():
    """A table of another rank is a ValueError with its shape."""
    with pytest.raises(ValueError, match=r"2D Tensor, but got shape \(5,\)"):
        F.embedding_bag(ddpflow.tensor([[0]]), ddpflow.ones(5))
