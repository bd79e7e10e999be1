"""Messages: order, tags, any source, sizes around the ring's, and what a sender's end means."""

import random

import numpy as np
import pytest

from ddpflow.comm.signature import Kind
from ddpflow.errors import CollectiveTimeout, MismatchError, PeerError
from tests.comm.backends.shm_world import at_once, call, make_world

SMALL = {"mail_bytes": 64}


def send(backend, array, peer, tag=0, **options):
    """Sends as a group would."""
    return backend.send(array, peer, tag, call(0, Kind.SEND, **options))


def recv(backend, array, peer, tag=0, **options):
    """Receives as a group would."""
    return backend.recv(array, peer, tag, call(0, Kind.RECV, **options))


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 31, 32, 33, 1000])
def test_sizes(n):
    """Messages shorter and longer than a chunk and than the whole ring arrive as they were sent."""
    first, second = make_world(2, **SMALL)
    for seed in range(5):
        data, target = np.arange(n) + 0.5 + seed, np.empty(n)
        at_once(lambda d=data: send(first, d, 1).wait(), lambda t=target: recv(second, t, 0).wait())
        assert np.array_equal(target, data)


def test_the_input_may_change_after_the_send():
    """A send that has ended holds no reference to the caller's memory, though nobody has received yet."""
    first, second = make_world(2)
    data, target = np.arange(5.0), np.empty(5)
    work = send(first, data, 1)
    assert work.is_completed()
    data[:] = -1
    recv(second, target, 0).wait()
    assert target.tolist() == [0, 1, 2, 3, 4]


def test_tags_and_order():
    """Messages of one tag arrive in order; different tags may be received in any order."""
    first, second = make_world(2, **SMALL)
    plan = [(tag, i) for i in range(20) for tag in (5, 6, 7)]
    random.Random(4).shuffle(plan)
    sent: dict[int, list[int]] = {5: [], 6: [], 7: []}
    for tag, i in plan:
        sent[tag].append(i)

    def send_all():
        for work in [send(first, np.full(11, i, np.int32), 1, tag) for tag, i in plan]:
            work.wait()

    def receive_all():
        got = {}
        for tag in (7, 5, 6):
            arrays = [np.empty(11, np.int32) for _ in sent[tag]]
            for array in arrays:
                recv(second, array, 0, tag).wait()
            got[tag] = [int(a[10]) for a in arrays]
        return got

    _, got = at_once(send_all, receive_all)
    assert got == sent


def test_any_source():
    """A receive from anybody takes whichever message comes, and says from whom."""
    world = make_world(4)
    for rank in (3, 1, 2):
        send(world[rank], np.array([rank * 10]), 0)
    sources = {}
    for _ in range(3):
        target = np.zeros(1, int)
        work = recv(world[0], target, None)
        work.wait()
        sources[work.source_rank()] = int(target[0])
    assert sources == {1: 10, 2: 20, 3: 30}


def test_receives_posted_before_and_after():
    """A receive may be posted first, in the middle of a message, or when all of it has come."""
    first, second = make_world(2, **SMALL)
    early, middle, late = np.empty(100), np.empty(100), np.empty(3)
    one = recv(second, early, 0, 1)
    sending = [send(first, np.arange(100.0) + k, 1, k) for k in (1, 2)]
    last = send(first, np.arange(3.0), 1, 3)
    for _ in range(300):
        one.progress()
        last.progress()
        if one.is_completed():
            break
    two, three = recv(second, middle, 0, 2), recv(second, late, 0, 3)
    for work in (*sending, last):
        for _ in range(300):
            three.progress()
            if work.progress():
                break
    two.wait()
    assert np.array_equal(early, np.arange(100) + 1)
    assert np.array_equal(middle, np.arange(100) + 2)
    assert np.array_equal(late, np.arange(3))


def test_both_send_first():
    """Two ranks that send more than the rings hold before they receive do not block each other."""
    world = make_world(2, **SMALL)

    def run(backend, peer):
        target = np.empty(5000)
        send(backend, np.arange(5000.0) * (peer + 1), peer).wait()
        recv(backend, target, peer).wait()
        return target

    one, two = at_once(lambda: run(world[0], 1), lambda: run(world[1], 0))
    assert np.array_equal(one, np.arange(5000.0))
    assert np.array_equal(two, np.arange(5000.0) * 2)


@pytest.mark.parametrize(("dtype", "n"), [("float64", 5), ("float32", 4), ("int32", 4)])
def test_another_message_than_expected(dtype, n):
    """Another length or dtype is an error on the receiver that shows both, and the sender learns of it."""
    first, second = make_world(2)
    send(first, np.arange(4.0), 1)
    work = recv(second, np.empty(n, dtype), 0)
    if (dtype, n) == ("float64", 4):
        return
    with pytest.raises(MismatchError, match=rf"expects {dtype}\[{n}\] but was sent float64\[4\] by rank 0"):
        work.wait()
    with pytest.raises(MismatchError, match=r"was sent float64\[4\]"):
        recv(first, np.empty(1), 1).wait()


def test_deadlines():
    """A message that does not come, or is not taken, ends in an error with the peer's name."""
    first, second = make_world(2, **SMALL)
    with pytest.raises(CollectiveTimeout, match="no answer from rank 1"):
        recv(first, np.empty(3), 1, timeout_s=0.05).wait()
    with pytest.raises(PeerError, match="rank 0 had given up"):
        send(second, np.arange(1000.0), 0, timeout_s=5).wait()


def test_a_sender_may_leave():
    """What was sent before a rank left can still be received; what was not ends in an error that says it has left."""
    first, second = make_world(2)
    send(first, np.arange(3.0), 1)
    first.close(0.05)
    target = np.empty(3)
    recv(second, target, 0).wait()
    assert target.tolist() == [0, 1, 2]
    with pytest.raises(PeerError, match=r"rank 0 has finished: it left the group"):
        recv(second, target, 0).wait()


def test_leaving_waits_for_delivery():
    """Close lets what was sent arrive, within its time."""
    first, second = make_world(2, **SMALL)
    data, target = np.arange(500.0), np.empty(500)
    send(first, data, 1)
    at_once(lambda: first.close(20), lambda: recv(second, target, 0).wait())
    assert np.array_equal(target, data)


def test_a_receiver_that_has_left():
    """Sending to a rank that has left is an error, not a wait."""
    first, second = make_world(2)
    second.close(1)
    with pytest.raises(PeerError, match="rank 1 has finished"):
        send(first, np.ones(2), 1).wait()


def test_any_source_ends_when_nobody_is_left():
    """A receive from anybody gives up when all others have left."""
    world = make_world(3)
    for backend in world[1:]:
        backend.close(1)
    with pytest.raises(PeerError, match="has finished"):
        recv(world[0], np.empty(1), None).wait()
