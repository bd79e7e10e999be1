"""The world of one: every collective is an identity, and messages have nobody to go to."""

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.errors import BackendUnavailable, PeerError
from ddpflow.testing import run_ranks
from tests.comm import bodies


@pytest.fixture
def world():
    """Joins a world of one for the test."""
    dist.init_process_group()
    yield dist.current_group()
    dist.destroy_process_group()


@pytest.mark.parametrize(
    "body",
    [
        bodies.reductions,
        bodies.copies,
        bodies.uneven_exchange,
        bodies.layouts,
        bodies.refusals,
        bodies.asynchronous,
        bodies.progress_ends_works,
        bodies.registered,
        bodies.coalesced,
        bodies.objects,
        bodies.agreement,
        bodies.from_a_second_thread,
    ],
)
def test_conformance(world, body):
    """The bodies of the conformance checks that make sense with one rank."""
    assert world.backend_name == "solo"
    body(0)


def test_messages_have_no_peer(world):
    """A receive from anybody cannot end, so it is refused at once."""
    with pytest.raises(PeerError, match="no peer to receive from"):
        dist.recv(np.zeros(1))


def test_no_second_rank():
    """With more ranks it is refused, with what to use instead."""
    errors = run_ranks(bodies.agreement, 2, "solo", return_exceptions=True)
    assert all(isinstance(e, BackendUnavailable) and "use 'shm'" in str(e) for e in errors)
