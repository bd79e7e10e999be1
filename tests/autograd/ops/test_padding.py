"""Padding in every mode."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import gradcheck
from ddpflow.autograd.ops.padding import constant_pad_nd, pad
from ddpflow.errors import ShapeError, ValueRangeError

NUMPY_MODE = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.parametrize("mode", NUMPY_MODE)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_modes_follow_numpy(mode, count):
    """Padding one to three last dimensions, with and without a batch dimension."""
    shape = (2, 3, 4, 3, 5)[: count + 2]
    x = ddpflow.arange(float(np.prod(shape))).reshape(shape)
    widths = [(1, 2), (2, 0), (1, 1)][:count]
    flat = [n for pair in widths for n in pair]
    expected = np.pad(x.numpy(), [(0, 0), (0, 0), *widths[::-1]], NUMPY_MODE[mode])
    np.testing.assert_array_equal(pad(x, flat, mode).numpy(), expected)
    np.testing.assert_array_equal(pad(x[0], flat, mode).numpy(), expected[0])
    leaf = ddpflow.rand(*shape[1:], dtype=ddpflow.float64, requires_grad=True)
    gradcheck(lambda a: pad(a, flat, mode), [leaf])


def test_constants_and_cuts():
    """The last dimension comes first; negative widths cut off; the value is the tensor's dtype."""
    x = ddpflow.arange(6).reshape(2, 3)
    assert pad(x, (1, 0)).tolist() == [[0, 0, 1, 2], [0, 3, 4, 5]]
    assert pad(x, (-1, 1, 1, 0), value=7).tolist() == [[7, 7, 7], [1, 2, 7], [4, 5, 7]]
    assert pad(x, (0, 0)).tolist() == x.tolist()
    assert constant_pad_nd(x, (0, -3)).shape == (2, 0)


def test_circular_padding_of_a_cut_tensor():
    """What is cut off at one end does not come back at the other, as in PyTorch."""
    x = ddpflow.arange(4.0).reshape(1, 4)
    assert pad(x, (-1, 2), "circular").tolist() == [[1, 2, 3, 1, 2]]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: pad(x, (1,)), ShapeError),
        (lambda x: pad(x, (1, 1, 1, 1, 1, 1)), ShapeError),
        (lambda x: pad(x, (-2, -2)), ShapeError),
        (lambda x: pad(x, (3, 0), "reflect"), ShapeError),
        (lambda x: pad(x, (4, 0), "circular"), ShapeError),
        (lambda x: pad(x, (1, 1, 1, 1), "reflect"), ShapeError),
        (lambda x: pad(x, (1, 1), "mirror"), ValueRangeError),
        (lambda x: pad(x, (1, 1), "reflect", 2.0), ValueRangeError),
    ],
)
def test_bad_input(call, error):
    """Widths that do not fit are refused with the sizes."""
    with pytest.raises(error):
        call(ddpflow.arange(6.0).reshape(2, 3))
