"""Random programs with ranks that are put aside at any look at a shared word."""

import pytest

from ddpflow.errors import PeerError
from ddpflow.testing.faults import InjectedError
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


@pytest.mark.parametrize("change", [0.02, 0.5])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_rank_that_fails_in_any_interleaving(n, change):
    """All others end with its words, and whatever they had finished before was right."""
    for seed in range(8):
        victim = (seed % n, 1 + 3 * seed)
        results = run_in_turns(make_world(n, **SMALL), 1000 * n + seed, 30, change, victim)
        for rank, error in enumerate(results):
            if rank == victim[0]:
                assert isinstance(error, InjectedError), f"seed {seed}: {error}"
            else:
                assert isinstance(error, PeerError) and "told to fail" in str(error), f"seed {seed}: {error}"
