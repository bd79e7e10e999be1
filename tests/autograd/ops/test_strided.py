"""Views of memory at any sizes and strides."""

import numpy as np
import pytest

import ddpflow
from ddpflow.factories import arange, tensor


def test_elements_of_memory():
    """Element ``offset + sum(index * stride)``, as a view."""
    x = arange(24.0).reshape(4, 6)
    found = x.as_strided((2, 3), (7, 2), 4)
    assert found.tolist() == [[4, 6, 8], [11, 13, 15]]
    found[1, 2] = -1.0
    assert x[2, 3].item() == -1.0
    assert ddpflow.as_strided(x, (), (), 5).item() == 5.0
    assert ddpflow.as_strided(x, (2, 0), (9, 9)).shape == (2, 0)


def test_offset_counts_from_the_memory_as_in_pytorch():
    """Without an offset a view starts where its input does; a given one counts from the base's first element."""
    x = arange(10.0)
    assert x[4:].as_strided((2,), (2,)).tolist() == [4, 6]
    assert x[4:].as_strided((2,), (2,), 5).tolist() == [5, 7]
    with pytest.raises(IndexError, match="from element -1 to 1"):
        x[4:].as_strided((2,), (2,), 3)


def test_gradient_of_elements_seen_twice():
    """What is seen by several indices gets the sum of their gradients; a write changes what lies there."""
    x = tensor(np.arange(5.0), requires_grad=True)
    weights = tensor(np.arange(1.0, 10.0).reshape(3, 3))
    (x.as_strided((3, 3), (1, 1)) * weights).sum().backward()
    assert x.grad.tolist() == [1, 2 + 4, 3 + 5 + 7, 6 + 8, 9]
    y = tensor(np.arange(6.0), requires_grad=True)
    z = y * 1
    z.as_strided((2,), (3,), 1)[...] = tensor([10.0, 20.0], dtype=ddpflow.float64)
    (z * tensor(np.arange(1.0, 7.0))).sum().backward()
    assert z.tolist() == [0, 10, 2, 3, 20, 5] and y.grad.tolist() == [1, 0, 3, 4, 0, 6]


def test_refuses_what_lies_outside():
    """Beyond the end, negative strides, other memory orders, and writes to overlapping elements."""
    x = arange(6.0)
    with pytest.raises(IndexError, match="to 6 of a tensor of 6"):
        x.as_strided((3,), (3,))
    with pytest.raises(RuntimeError, match="negative"):
        x.as_strided((2,), (-1,), 3)
    with pytest.raises(RuntimeError, match="as many"):
        x.as_strided((2, 2), (1,))
    with pytest.raises(RuntimeError, match="contiguous"):
        x.reshape(2, 3).T.as_strided((2,), (1,))
    with pytest.raises(RuntimeError):
        x.as_strided((3, 3), (1, 1))[0, 0] = 1.0
