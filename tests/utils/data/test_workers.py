"""The worker processes are tested through the loader; here, how batches travel."""

import socket

import numpy as np
import pytest

import ddpflow as flow
from ddpflow.utils.data import workers


@pytest.mark.parametrize("size", [3, 5000])
def test_batches_travel_whole(size):
    """Tensors and arrays of every dtype, small and in shared memory, in nested containers."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        arrays = [np.arange(size).astype(d) for d in ("float32", "float64", "int64", "uint8", "bool", "complex64")]
        batch = {"a": [flow.from_numpy(a) for a in arrays], "b": (arrays, "text", None, 3), "e": np.zeros((0, 4))}
        workers._send(ours, batch)
        got = workers._receive(theirs)
    for a, t, b in zip(arrays, got["a"], got["b"][0], strict=True):
        assert type(t) is flow.Tensor and type(b) is np.ndarray and t.dtype.dtype == b.dtype == a.dtype
        np.testing.assert_array_equal(t.numpy(), a)
        np.testing.assert_array_equal(b, a)
        b[...] = 0  # what arrives is the receiver's own
    assert got["b"][1:] == ("text", None, 3) and got["e"].shape == (0, 4)


def test_a_closed_channel_is_the_end():
    """The receiver sees EOFError, also in the middle of a message."""
    for cut in (0, 5):
        ours, theirs = socket.socketpair()
        with theirs:
            ours.sendall((100).to_bytes(8, "little")[:cut])
            ours.close()
            with pytest.raises(EOFError):
                workers._receive(theirs)
