"""The MPI engine's decisions, with packets made by hand instead of peers."""

import importlib.util

import numpy as np
import pytest

if importlib.util.find_spec("mpi4py") is None:
    pytest.skip("mpi4py is not installed (pip install 'ddpflow[mpi]')", allow_module_level=True)

from mpi4py import MPI

from ddpflow.comm.backend import GroupSpec
from ddpflow.comm.backends.mpi_engine import (
    ABORTED,
    COLLECTIVE,
    GAVE_UP,
    LEFT,
    MESSAGE,
    PACKET_HEAD,
    Engine,
    MpiWork,
    ReceiveWork,
    Transfer,
    free_closed,
)
from ddpflow.comm.backends.solo import SoloBackend
from ddpflow.comm.env import ProcessContext
from ddpflow.comm.failure import FailureWatch
from ddpflow.comm.signature import Call, Kind, Signature, dtype_code
from ddpflow.comm.store import HashStore
from ddpflow.errors import CollectiveTimeout, CommError, MismatchError, PeerError

F8 = dtype_code(np.dtype("f8"))


@pytest.fixture
def engine(monkeypatch):
    """Rank 5 of a group of 4, 5 and 7; what it sends is only noted."""
    spec = GroupSpec(
        "world", (4, 5, 7), 1, HashStore(), ProcessContext(rank=5, world_size=8), FailureWatch(5), 1.0, 60.0
    )
    found = Engine(MPI.COMM_SELF, SoloBackend(spec), 1 << 20)
    sent = []
    monkeypatch.setattr(found, "post", lambda *packet: sent.append(packet))
    found.sent = sent
    return found


def packet(engine: Engine, source: int, kind: int, *fields: int, payload: bytes = b"") -> None:
    """Lets a packet arrive."""
    engine._take(source, memoryview(PACKET_HEAD.pack(kind, *fields, *([0] * (6 - len(fields)))) + payload))


def signature(seq: int = 3, length: int = 4) -> Signature:
    """An all_reduce of doubles."""
    return Signature(Kind.ALL_REDUCE, seq, F8, length, 0, -1)


def collective(engine: Engine, seq: int = 3) -> tuple[MpiWork, list[dict[int, bytes]]]:
    """Launches a collective that only notes the packets it begins with."""
    started: list[dict[int, bytes]] = []

    def phases(packets):
        started.append({source: bytes(data) for source, data in packets.items()})
        yield []

    call = Call(Kind.ALL_REDUCE, seq, "bucket", 0.05)
    return engine.launch(MpiWork(engine, call, signature(seq), phases, None)), started


def test_it_starts_when_all_are_there(engine):
    """An operation begins when the last packet comes, whether before or after its own launch."""
    packet(engine, 0, COLLECTIVE, *signature(), payload=b"zero")
    work, started = collective(engine)
    assert not work.progress() and work.missing() == [2] and started == []
    packet(engine, 2, COLLECTIVE, *signature(), payload=b"two")
    assert work.progress() and work.is_success() and started == [{0: b"zero", 2: b"two"}]
    assert engine.arrived == {} and engine.works == []


def test_packets_of_later_calls_wait(engine):
    """A peer that is ahead does not disturb."""
    packet(engine, 0, COLLECTIVE, *signature(seq=4))
    work, _ = collective(engine)
    assert work.missing() == [0, 2]


def test_mismatch(engine):
    """Another call of one peer is enough, and later operations end with the same error."""
    packet(engine, 2, COLLECTIVE, *signature(length=5))
    work, _ = collective(engine)
    error = work.exception()
    assert isinstance(error, MismatchError) and "float64[5]" in str(error) and "rank 7" in str(error)
    later, _ = collective(engine, seq=4)
    assert later.exception() is error


@pytest.mark.parametrize(
    ("event", "kind", "text"),
    [
        ((0, ABORTED), PeerError, "rank 4 raised ValueError: x"),
        ((2, LEFT, 2), PeerError, "rank 7 has finished: it left the group after collective #2"),
        ((0, GAVE_UP, 3), PeerError, "rank 4 had given up waiting for rank 5, which came too late"),
    ],
)
def test_what_ends_a_wait(engine, event, kind, text):
    """A peer that aborts, leaves or gives up ends the wait with its reason."""
    payloads = {ABORTED: b"rank 4 raised ValueError: x", GAVE_UP: np.array([1], np.int32).tobytes()}
    work, _ = collective(engine)
    packet(engine, *event, payload=payloads.get(event[1], b""))
    with pytest.raises(kind, match=text):
        work.wait(30)


def test_leaving_of_a_rank_that_has_arrived(engine):
    """It does not end the wait for another."""
    packet(engine, 0, COLLECTIVE, *signature())
    packet(engine, 0, LEFT, 3)
    work, _ = collective(engine)
    with pytest.raises(CollectiveTimeout, match="no answer from rank 7"):
        work.wait()


def test_giving_up(engine):
    """The deadline names who is missing, and tells the peers."""
    packet(engine, 0, COLLECTIVE, *signature())
    work, _ = collective(engine)
    with pytest.raises(CollectiveTimeout, match=r"got no answer from rank 7 in 0.05 s; rank 4 had arrived"):
        work.wait()
    assert engine.sent == [([0, 2], GAVE_UP, [3], np.array([2], np.int32).tobytes())]


def test_a_peer_gave_up_with_us(engine):
    """When a peer gives up on a third rank, this rank reports the same rank, at once."""
    work, _ = collective(engine)
    packet(engine, 0, COLLECTIVE, *signature())
    packet(engine, 0, GAVE_UP, 3, payload=np.array([2], np.int32).tobytes())
    with pytest.raises(CollectiveTimeout, match=r"no answer from rank 7.*rank 4 arrived, then gave up"):
        work.wait(30)


def receive(engine: Engine, peer: int | None, tag: int = 0, length: int = 2) -> ReceiveWork:
    """Posts a receive of doubles."""
    work = ReceiveWork(engine, Call(Kind.RECV, 0, "", 0.05), np.zeros(length), peer, tag)
    engine.receives.append(work)
    engine.launch(work)
    return work


def message(engine: Engine, source: int, tag: int, values: list[float]) -> None:
    """Lets a small message arrive."""
    data = np.array(values).tobytes()
    packet(engine, source, MESSAGE, tag, 1, F8, len(values), payload=data)


def test_messages_and_receives_match_in_order(engine):
    """Messages wait for receives and the other way round; tags and peers choose, order decides among equals."""
    message(engine, 0, 7, [1.0, 1.0])
    message(engine, 2, 0, [2.0, 2.0])
    message(engine, 0, 0, [3.0, 3.0])
    works = [receive(engine, None), receive(engine, 0), receive(engine, 0, tag=7), receive(engine, None)]
    assert [w.progress() for w in works] == [True, True, True, False]
    assert [w.result()[0] for w in works] == [2.0, 3.0, 1.0, 0.0]
    assert [w.source_rank() for w in works] == [7, 4, 4, -1]
    message(engine, 2, 0, [4.0, 4.0])
    assert works[3].progress() and works[3].result().tolist() == [4.0, 4.0] and engine.mail == []


def test_a_message_of_other_length(engine):
    """It is told with both shapes and the sender."""
    work = receive(engine, 0)
    message(engine, 0, 0, [1.0, 2.0, 3.0])
    assert work.progress()
    assert str(work.exception()) == "rank 5: recv expects float64[2] but was sent float64[3] by rank 4"


def test_a_receive_without_a_sender(engine):
    """A peer that has left will send nothing more; from anybody, the deadline decides."""
    work = receive(engine, 2)
    packet(engine, 2, LEFT, 2)
    with pytest.raises(PeerError, match="rank 7 has finished"):
        work.wait(30)
    engine.backend.failure = None
    with pytest.raises(CollectiveTimeout, match="ranks 4, 7"):
        receive(engine, None).wait()


def test_pieces():
    """Messages are cut at the limit, and empty ones are not sent."""
    transfer = Transfer(MPI.COMM_SELF, 24)
    for count, pieces in ((0, 0), (3, 1), (4, 2), (7, 3)):
        source, target = np.arange(count * 1.0), np.zeros(count)
        requests = transfer.receive(target, 0, 5) + transfer.send(source, 0, 5)
        assert len(requests) == 2 * pieces
        MPI.Request.Waitall(requests)
        assert target.tolist() == source.tolist()


def test_the_communicator_goes_when_all_have_left(engine):
    """Not before the last rank has said goodbye, and without waiting for it; a later look at it does no harm."""
    engine.comm = MPI.COMM_SELF.Dup()
    engine.free_when_left()
    packet(engine, 0, LEFT, 2)
    free_closed()
    assert engine.comm != MPI.COMM_NULL
    packet(engine, 2, LEFT, 2)
    free_closed()
    assert engine.comm == MPI.COMM_NULL
    engine.progress()
    free_closed()


@pytest.mark.parametrize("why", ["own failure", "a peer's", "work under way"])
def test_the_communicator_of_a_broken_group_stays(engine, why):
    """After a failure on either side, or with work under way, freeing could be waited for in vain."""
    engine.comm = comm = MPI.COMM_SELF.Dup()
    if why == "own failure":
        engine.backend.fail(CommError("on purpose"))
    elif why == "a peer's":
        packet(engine, 0, ABORTED, payload=b"on purpose")
    else:
        collective(engine)
    packet(engine, 0, LEFT, 2)
    packet(engine, 2, LEFT, 2)
    for _ in range(2):
        engine.free_when_left()
        assert engine.comm != MPI.COMM_NULL
    comm.Free()
