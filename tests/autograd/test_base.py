"""The part of a tensor that the graph knows."""

import numpy as np
import pytest

from ddpflow.autograd.base import (
    RemovableHandle,
    TensorBase,
    Version,
    View,
    alias,
    check_leaf_write,
    meta_of,
    version_of,
    wrap,
)
from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import AutogradError
from ddpflow.factories import tensor


def test_wrap_copies_nothing():
    """The tensor holds the very array, is a leaf and wants nothing unless told."""
    array = np.array([1.0, 2.0])
    t = wrap(array)
    assert type(t) is Tensor is TensorBase.cls
    assert t.array is array and t.node is None and not t.needs_grad and t.meta is None
    assert wrap(array, True).needs_grad


def test_versions_are_shared_with_aliases():
    """A write to an alias counts for the tensor, and the other way round."""
    x = tensor([1.0])
    assert version_of(x) == 0 and x.meta is None
    y = alias(x)
    y.bump_version()
    x.bump_version()
    assert version_of(x) == version_of(y) == 2
    assert y.array is x.array and meta_of(x).version is meta_of(y).version
    assert Version().value == 0


def test_handles():
    """A handle takes exactly its own hook out, once, also as a context manager."""
    hooks = {}
    first, second = RemovableHandle(hooks, "a"), RemovableHandle(hooks, "b")
    assert list(hooks.values()) == ["a", "b"] and first.id != second.id
    first.remove()
    first.remove()
    with second:
        assert list(hooks.values()) == ["b"]
    assert hooks == {}


def test_check_leaf_write():
    """A leaf that requires grad, and a view of one, must not be written while recording."""
    x = tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(AutogradError, match="leaf"):
        check_leaf_write(x)
    view = x[0:1]
    with pytest.raises(AutogradError, match="view of a leaf"):
        check_leaf_write(view)
    check_leaf_write(x * 1)
    check_leaf_write(tensor([1.0]))


def test_view_holds_where_it_comes_from():
    """A view knows its base and the version of the memory it was made at."""
    x = tensor([1.0, 2.0])
    view = View(x, ("op", -1), (1,), {}, 3)
    assert (view.base, view.args, view.version) == (x, (1,), 3)


def test_hash_is_identity():
    """Tensors are keys by identity: two with equal values are two keys."""
    a, b = tensor([1.0]), tensor([1.0])
    assert len({a: 1, b: 2}) == 2
