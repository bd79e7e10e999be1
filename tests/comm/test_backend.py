"""What Backend gives to all transports: derived operations and error texts."""

from typing import Any, ClassVar

import numpy as np

import ddpflow.comm as dist
from ddpflow.comm.backend import GroupSpec, rank_list
from ddpflow.comm.backends.solo import SoloBackend
from ddpflow.comm.env import ProcessContext
from ddpflow.comm.failure import FailureWatch
from ddpflow.comm.registry import register_backend
from ddpflow.comm.signature import Call, Kind
from ddpflow.comm.store import HashStore
from ddpflow.errors import CollectiveTimeout, MismatchError, PeerError
from ddpflow.testing import run_ranks
from tests.comm.conformance import Conformance

register_backend("plain", "tests.comm.plain:PlainBackend")


class TestDerived(Conformance):
    """The conformance checks on a transport that has nothing of its own but the necessary."""

    backend: ClassVar[str] = "plain"


def uneven_counts(rank: int) -> None:
    """Rank 0 expects more from itself than it sends."""
    dist.all_to_all_single(np.zeros(4), np.zeros(4), [3, 1] if rank == 0 else None, None)


def test_exchange_with_itself():
    """A rank whose own parts differ is told so."""
    errors = run_ranks(uneven_counts, 2, "plain", return_exceptions=True)
    assert isinstance(errors[0], MismatchError) and "to itself" in str(errors[0])


def backend_of(name: str = "world") -> Any:
    """Returns a transport to ask for texts: rank 5 in a group of 4, 5 and 7."""
    context = ProcessContext(rank=5, world_size=8)
    return SoloBackend(GroupSpec(name, (4, 5, 7), 1, HashStore(), context, FailureWatch(5), 1.0, 1.0))


CALL = Call(Kind.ALL_REDUCE, 41, "bucket 2: fc.weight, fc.bias", 30.0)


def test_time_out_text():
    """It names the call, the missing by global rank, the arrived, and those that gave up."""
    error = backend_of().timeout_error(CALL, 30.0, [2])
    assert isinstance(error, CollectiveTimeout)
    assert str(error) == (
        "rank 5: all_reduce #41 (bucket 2: fc.weight, fc.bias) got no answer from rank 7 in 30 s; rank 4 had arrived"
    )
    assert "arrived, then gave up" in str(backend_of().timeout_error(CALL, 30.0, [2], [0]))
    assert "was not finished" in str(backend_of().timeout_error(CALL, 30.0, []))


def test_peer_and_mismatch_texts():
    """Other errors name ranks and calls too, and the group where it is not the world."""
    backend = backend_of("4,5,7/1")
    assert str(backend.peer_error(CALL, "rank 7 raised ValueError: x")).endswith(
        "cannot finish: rank 7 raised ValueError: x"
    )
    assert "in group 4,5,7/1" in str(backend.peer_error(None, "x"))
    text = backend.left_text(2, 40, CALL)
    assert "rank 7 has finished" in text and "#40 while rank 5 is at #41" in text
    a, b = backend.signature(CALL, np.zeros(3), 0), backend.signature(CALL, np.zeros(4), 0)
    error = backend.mismatch_error(CALL, a, 0, b)
    assert isinstance(error, MismatchError) and "rank 4 called" in str(error) and "float64[4]" in str(error)


def test_the_first_failure_stays():
    """Later errors do not hide the first."""
    backend = backend_of()
    first = backend.peer_error(CALL, "first")
    backend.timeout_error(CALL, 1.0, [0])
    assert backend.failure is first and isinstance(first, PeerError)


def test_stall_warning(capfd):
    """A long wait prints one line that says what and for whom."""
    backend_of().warn_stall(CALL, 10.2, [0, 2])
    assert capfd.readouterr().err == (
        "ddpflow: rank 5: all_reduce #41 (bucket 2: fc.weight, fc.bias) has waited 10 s for ranks 4, 7\n"
    )


def test_rank_list():
    """One rank, several, none."""
    assert [rank_list(r) for r in ([3], [2, 1], [])] == ["rank 3", "ranks 1, 2", "ranks "]
