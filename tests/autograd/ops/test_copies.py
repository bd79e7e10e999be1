"""Copies under PyTorch's names."""

import numpy as np
import pytest

import ddpflow
from ddpflow.errors import ShapeError

FORMS = {
    "alias_copy": ((), lambda x: x),
    "diagonal_copy": ((1,), lambda x: x.diagonal(1)),
    "expand_copy": (((2, 2, 3),), lambda x: x.expand(2, 2, 3)),
    "permute_copy": (((1, 0),), lambda x: x.permute(1, 0)),
    "slice_copy": ((1, 0, None, 2), lambda x: x[:, ::2]),
    "squeeze_copy": ((), lambda x: x),
    "t_copy": ((), lambda x: x.t()),
    "transpose_copy": ((0, 1), lambda x: x.transpose(0, 1)),
    "unfold_copy": ((1, 2, 1), lambda x: x.unfold(1, 2, 1)),
    "unsqueeze_copy": ((0,), lambda x: x[None]),
    "view_copy": (((3, 2),), lambda x: x.view(3, 2)),
}


@pytest.mark.parametrize("name", FORMS)
def test_copies(name):
    """The values of the view, in memory of its own, with gradients."""
    args, view = FORMS[name]
    x = ddpflow.arange(6.0).reshape(2, 3).requires_grad_()
    made = getattr(ddpflow, name)(x, *args)
    np.testing.assert_array_equal(made.numpy(force=True), view(x).numpy(force=True))
    assert not np.shares_memory(made.array, x.array) and made.requires_grad


def test_pieces():
    """The same for functions with several results."""
    x = ddpflow.arange(6.0).reshape(2, 3)
    for made, expected in (
        (ddpflow.split_copy(x, 2, 1), x.split(2, 1)),
        (ddpflow.split_with_sizes_copy(x, [1, 2], 1), x.split([1, 2], 1)),
        (ddpflow.unbind_copy(x), x.unbind()),
    ):
        assert [m.tolist() for m in made] == [e.tolist() for e in expected]
        assert not any(np.shares_memory(m.array, x.array) for m in made)


def test_sum_to_size():
    """The sum that undoes broadcasting."""
    x = ddpflow.ones(2, 3, 4)
    assert x.sum_to_size(3, 1).tolist() == [[8.0]] * 3
    assert x.sum_to_size((2, 3, 4)).shape == (2, 3, 4)
    with pytest.raises(ShapeError):
        x.sum_to_size(2)
