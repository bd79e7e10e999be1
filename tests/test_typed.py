"""PyTorch's old constructors."""

import numpy as np
import pytest

import ddpflow
from ddpflow import typed

NAMES = [name for name in typed.__all__ if name not in ("TensorType", "BFloat16Tensor")]


@pytest.mark.parametrize("name", NAMES)
def test_constructors(name):
    """Of data, of an array, of sizes, of nothing; isinstance tells the dtype."""
    make = getattr(ddpflow, name)
    made = make([[1, 0], [1, 1]])
    assert made.tolist() == [[1, 0], [1, 1]] and made.dtype == make.tensor_dtype
    array = np.array([1.0, 0.0])
    copied = make(array)
    array[0] = 0
    assert copied.tolist() == [1, 0]
    assert make(2, 3).shape == make((0, 0)).shape[:0] + (2, 3) and make().shape == (0,) and make(3).shape == (3,)
    assert isinstance(made, make) and not isinstance([1], make)
    assert not isinstance(made, ddpflow.IntTensor if name != "IntTensor" else ddpflow.LongTensor)
    assert repr(make) == f"ddpflow.{name}"


def test_data_is_cast():
    """Numbers become the type's, as a cast does."""
    assert ddpflow.LongTensor([1.9]).tolist() == [1] and ddpflow.BoolTensor([2, 0]).tolist() == [True, False]
    assert ddpflow.FloatTensor(ddpflow.tensor([1, 2])).dtype == ddpflow.float32
