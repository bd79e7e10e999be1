"""Making batches of items."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import ddpflow as flow
from ddpflow.errors import DtypeError, ShapeError
from ddpflow.utils.data import default_collate

Pair = namedtuple("Pair", "x y")


def test_each_kind_of_item():
    """Tensors and arrays are stacked, numbers become tensors, strings a list; containers keep their type."""
    for make in (flow.tensor, np.array):
        batch = default_collate([make([1.0, 2.0]), make([3.0, 4.0])])
        assert batch.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert default_collate([1, 2]).dtype is flow.int64
    assert default_collate([1.5, 2.0]).dtype is flow.float64
    assert default_collate([True, False]).dtype is flow.bool
    assert default_collate([np.float32(1), np.float32(2)]).dtype is flow.float32
    assert default_collate(["a", "b"]) == ["a", "b"] and default_collate([b"a"]) == [b"a"]
    items = [{"a": (1, [2.0, "s"]), "p": Pair(3, 4)}, {"a": (5, [6.0, "t"]), "p": Pair(7, 8)}]
    batch = default_collate(items)
    assert type(batch) is dict and type(batch["a"]) is tuple and type(batch["p"]) is Pair
    assert batch["a"][0].tolist() == [1, 5] and batch["a"][1][1] == ["s", "t"] and batch["p"].y.tolist() == [4, 8]
    assert type(default_collate([OrderedDict(k=1), OrderedDict(k=2)])) is OrderedDict


def test_items_that_do_not_fit_are_refused():
    """Shapes, lengths and kinds."""
    with pytest.raises(ShapeError, match=r"\(2,\).*\(3,\)"):
        default_collate([flow.zeros(2), flow.zeros(3)])
    with pytest.raises(ShapeError, match="equally many"):
        default_collate([(1, 2), (1,)])
    with pytest.raises(DtypeError, match="object; pass your own"):
        default_collate([object()])
