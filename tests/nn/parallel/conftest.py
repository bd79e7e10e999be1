"""Worlds for the tests of data-parallel training."""

import pytest

from ddpflow.testing import run_ranks


@pytest.fixture(params=["thread", "shm"])
def world(request):
    """A function that runs a rank function on n ranks, as threads and as processes."""

    def run(fn, n=2, *args, **options):
        return run_ranks(fn, n, request.param, args=args, **options)

    return run
