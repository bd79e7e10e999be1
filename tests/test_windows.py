"""Window functions against NumPy's symmetric ones."""

import numpy as np
import pytest

import ddpflow
from ddpflow.errors import ShapeError

NUMPY = {
    "bartlett_window": np.bartlett,
    "blackman_window": np.blackman,
    "hamming_window": np.hamming,
    "hann_window": np.hanning,
    "kaiser_window": lambda n: np.kaiser(n, 12.0),
}


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_windows(name, length):
    """A symmetric window is NumPy's; a periodic one is the start of a longer symmetric one."""
    make, expected = getattr(ddpflow, name), NUMPY[name]
    symmetric = make(length, periodic=False, dtype=ddpflow.float64)
    np.testing.assert_allclose(symmetric.numpy(), expected(length), atol=1e-12)
    periodic = make(length, dtype=ddpflow.float64)
    np.testing.assert_allclose(
        periodic.numpy(), expected(length + 1)[:length] if length > 1 else expected(length), atol=1e-12
    )
    assert make(3).dtype == ddpflow.float32
    with pytest.raises(ShapeError):
        make(-1)
