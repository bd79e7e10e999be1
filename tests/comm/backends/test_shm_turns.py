"""Random programs with ranks that are put aside at any look at a shared word."""

import pytest

from tests.comm.backends.shm_programs import SMALL
from tests.comm.backends.shm_turns import run_in_turns
from tests.comm.backends.shm_world import make_world


@pytest.mark.parametrize("change", [0.02, 0.5])
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_random_programs_in_any_interleaving(n, change):
    """Every result is right and no rank waits for ever, wherever ranks are interrupted."""
    for seed in range(8):
        backends = make_world(n, **SMALL)
        results = run_in_turns(backends, 100 * n + seed, 30, change)
        assert results == [None] * n, f"seed {seed}"
