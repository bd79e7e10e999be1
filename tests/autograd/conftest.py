"""What the tests of operations share."""

import numpy as np
import pytest


@pytest.fixture
def rng():
    """A generator of random numbers with a fixed seed."""
    return np.random.default_rng(20240607)
