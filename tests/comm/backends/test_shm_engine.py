"""Progress, waiting and failure: whoever dies, stops, leaves or raises at whichever moment, the others are told."""

import gc
import os
import threading
import time

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.comm.backends import shm_moves, shm_small
from ddpflow.comm.backends.shm import ShmBackend
from ddpflow.comm.failure import FailureRecord, FailureWatch
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.signature import Kind
from ddpflow.comm.store import HashStore
from ddpflow.errors import CollectiveTimeout, CommError, MismatchError, PeerError
from ddpflow.testing import run_ranks
from tests.comm.backends.shm_world import at_once, call, make_spec, make_world, small_layout, strike, strike_in

SMALL = {"chunk_bytes": 4096, "n_chunks": 2, "inline_bytes": 256, "ring": 4}
# Where a rank is struck: what the loop does, the function that it is struck in, before or after its work.
POINTS = {
    "between calls": ("small", None, "", False),
    "small, data there, result not taken": ("small", None, "drain", False),
    "small, result taken": ("small", None, "drain", True),
    "registered, before the shard": ("registered", shm_moves.AllReduce, "direct", False),
    "registered, shard done, not told": ("registered", shm_moves.AllReduce, "direct", True),
    "staged, before a piece": ("staged", shm_moves.AllReduce, "offer_shards", False),
    "staged, piece filled, not told": ("staged", shm_moves.AllReduce, "offer_shards", True),
    "staged, before the shard": ("staged", shm_moves.AllReduce, "reduce_shard", False),
    "staged, shard done, not told": ("staged", shm_moves.AllReduce, "reduce_shard", True),
    "staged, before taking shards": ("staged", shm_moves.AllReduce, "collect_shards", False),
    "broadcast": ("broadcast", shm_moves.Broadcast, "drain", False),
    "all_gather": ("all_gather", shm_moves.AllGather, "drain", True),
    "in a message": ("send", None, "", False),
}


def loop(rank, point, kind, victim, steps=40):
    """Communicates in a loop until something happens; the victim is struck in its third step."""
    how, owner, name, after = POINTS[point]
    with small_layout(**SMALL):
        dist.init_process_group("shm", timeout=20)
    group = dist.current_group()
    n = 10 if how == "small" else 3000
    array = group.empty(n, float) if how == "registered" else np.empty(n)
    size, limit = group.size(), 1.5 if kind == "stop" else None
    for step in range(steps):
        if rank == victim and step == 2:
            if owner is not None:
                strike_in(owner, name, kind, after, 2 if how == "staged" else 1)
            elif name:  # a small one takes the short or the long way
                strike_in(shm_small, "combine_in_rank_order", kind, after, 1)
                strike_in(shm_moves.AllReduce, name, kind, after, 1)
            elif how != "send":
                strike(kind)
        array[:] = np.arange(n) + rank
        if how == "broadcast":
            dist.broadcast(array, 0)
        elif how == "all_gather":
            dist.all_gather_into_tensor(np.empty(n * size), array)
        elif how == "send":
            work = group.send(array, (rank + 1) % size, async_op=True)
            if rank == victim and step == 2:
                strike(kind)
            group.recv(np.empty(n), (rank - 1) % size)
            work.wait()
        else:
            dist.all_reduce(array, timeout=limit)
            assert np.array_equal(array, np.arange(n) * size + sum(range(size))), step
    return "went on"


def struck(point, kind, n=3, victim=1, **options):
    """Runs the loop and returns what the ranks ended with."""
    args = (point, kind, victim)
    return run_ranks(loop, n, "shm", args=args, init=False, return_exceptions=True, **options), victim


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_rank_is_named_by_all_others(point):
    """SIGKILL at any moment: every other rank ends with a PeerError that names the rank and the signal."""
    results, victim = struck(point, "kill")
    for rank, result in enumerate(results):
        if rank != victim:
            assert isinstance(result, PeerError), (rank, result)
            assert f"rank {victim} was killed by SIGKILL" in str(result), (rank, result)


@pytest.mark.parametrize("kind", ["exit", "raise"])
@pytest.mark.parametrize(
    "point",
    ["between calls", "small, data there, result not taken", "registered, shard done, not told", "in a message"],
)
def test_a_rank_that_ends_otherwise(point, kind):
    """Exit code 0 without a word, and an exception: the others name the rank and what it did."""
    results, victim = struck(point, kind)
    expected = "exited with code 0" if kind == "exit" else "InjectedError: on purpose"
    for rank, result in enumerate(results):
        if rank != victim:
            assert isinstance(result, PeerError), (rank, result)
            assert f"rank {victim}" in str(result), (rank, result)
            assert expected in str(result), (rank, result)


@pytest.mark.parametrize("point", ["between calls", "registered, before the shard", "staged, piece filled, not told"])
def test_a_stopped_rank_is_found_by_the_deadline(point):
    """SIGSTOP: the others give up at the deadline and blame that rank alone."""
    results, victim = struck(point, "stop", timeout_s=6.0)
    for rank, result in enumerate(results):
        if rank != victim:
            assert isinstance(result, CollectiveTimeout), (rank, result)
            assert f"no answer from rank {victim} in 1.5 s" in str(result), (rank, result)
    assert any(f"stopped by a signal or a debugger: rank {victim}" in str(result) for result in results)


def sixteen(rank):
    """Reduces small, large, registered and unregistered arrays."""
    group = dist.current_group()
    for n in (1, 5000, 40_000):
        for array in (np.empty(n), group.empty(n, float)):
            array[:] = np.arange(n) * (rank + 1)
            group.all_reduce(array)
            assert np.array_equal(array, np.arange(n) * 136.0)
    group.barrier()
    out = np.empty(16)
    group.all_to_all_single(out, np.arange(16.0) + 100 * rank)
    return out.tolist()


def test_sixteen_ranks():
    """Sixteen ranks on however few cores work together."""
    results = run_ranks(sixteen, 16, "shm", timeout_s=60)
    assert results == [[100.0 * sender + rank for sender in range(16)] for rank in range(16)]


def waits_for_a_late_rank(rank):
    """Rank 1 comes two seconds late; returns the CPU time that the wait cost."""
    dist.barrier()
    if rank == 1:
        time.sleep(2)
        dist.barrier()
        return 0.0
    before = time.process_time()
    dist.barrier()
    return time.process_time() - before


def test_waiting_is_cheap():
    """A rank that waits two seconds for another uses less than a tenth of them."""
    assert run_ranks(waits_for_a_late_rank, 3, "shm")[0] < 0.2


# One process, several ranks.


def test_causes_are_passed_on():
    """A rank that gives the group up makes all others end with its reason, not with one of their own."""
    first, second, third = make_world(3)
    first.all_reduce(np.ones(3), ReduceOp.SUM, call(1))
    work = third.all_reduce(np.ones(3), ReduceOp.SUM, call(1))
    second.abort("rank 1 raised ValueError: bad batch")
    with pytest.raises(PeerError, match=r"rank 2: all_reduce #1 cannot finish: rank 1 raised ValueError: bad batch"):
        work.wait()
    with pytest.raises(PeerError, match="bad batch"):
        first.barrier(call(2, Kind.BARRIER)).wait()
    assert "given up: rank 1 raised ValueError" in str(second.failure)


def test_a_timeout_is_one_story():
    """All ranks that arrived blame the same missing ranks, whoever's deadline passed first."""
    world = make_world(4)
    works = {r: world[r].barrier(call(1, Kind.BARRIER, timeout_s=0.1 if r == 0 else 9)) for r in (0, 2)}
    errors = at_once(*[work.wait for work in works.values()])
    for error in errors:
        assert isinstance(error, CollectiveTimeout)
        assert "no answer from ranks 1, 3" in str(error)
    assert "rank 0 arrived, then gave up" in str(errors[1])
    for late in (1, 3):
        with pytest.raises(PeerError, match=f"had given up waiting for rank {late}, which came too late"):
            world[late].barrier(call(1, Kind.BARRIER)).wait()


def test_what_was_finished_stays_finished():
    """A rank that left, or failed, after its part was done does not spoil the others' result."""
    world = make_world(3)
    arrays = [np.full(4, r + 1.0) for r in range(3)]
    works = [b.all_reduce(a, ReduceOp.SUM, call(1)) for b, a in zip(world, arrays, strict=True)]
    assert works[2].is_completed()
    world[2].close(1)
    assert works[0].wait()
    world[0].abort("enough")
    assert works[1].wait()
    assert [a.tolist() for a in arrays] == [[6.0] * 4] * 3


def test_leaving_early_is_told():
    """A rank that has left is named, with the number of its last collective and of the one it is missed in."""
    first, second = make_world(2)
    for seq in (1, 2):
        works = [b.barrier(call(seq, Kind.BARRIER)) for b in (first, second)]
        at_once(*[work.wait for work in works])
    second.close(1)
    with pytest.raises(
        PeerError, match=r"rank 1 has finished: it left the group after collective #2 .* is at #3.*join"
    ):
        first.barrier(call(3, Kind.BARRIER)).wait()


def test_records_of_the_run_directory_end_a_wait(tmp_path):
    """A failure published by another process of the job ends a wait, though its transport says nothing."""
    store = HashStore()
    specs = [make_spec(r, 2, store, watch=FailureWatch(r, str(tmp_path))) for r in range(2)]
    first, _ = at_once(*[lambda s=s: ShmBackend.create(s) for s in specs])
    work = first.barrier(call(1, Kind.BARRIER))
    FailureRecord(7, type="KeyError", message="'label'").write(str(tmp_path))
    with pytest.raises(PeerError, match="rank 7 raised KeyError: 'label'"):
        work.wait()


def test_polling_finds_failures_too():
    """A caller that polls instead of waiting sees that the operation can never end."""
    first, second = make_world(2)
    work = first.barrier(call(1, Kind.BARRIER))
    second.close(1)
    while not work.is_completed():
        time.sleep(0.001)
    assert isinstance(work.exception(), PeerError)
    assert not work.is_success()


def test_errors_of_ones_own(monkeypatch):
    """An error while reducing, such as a full memory, breaks the group; the peer is told what happened."""
    first, second = make_world(2, inline_bytes=64)
    n = 1000
    work = first.all_reduce(np.ones(n), ReduceOp.SUM, call(1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", lambda *args: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(CommError, match="rank 1: a collective failed with OSError.*No space left"):
            second.all_reduce(np.ones(n), ReduceOp.SUM, call(1)).wait()
    with pytest.raises(PeerError, match="rank 1 raised OSError"):
        work.wait()


def test_everything_in_flight_ends_with_the_first_error():
    """A mismatch ends all operations in flight, earlier waits included, with one error."""
    first, second = make_world(2)
    works = [first.all_reduce(np.ones(k), ReduceOp.SUM, call(k)) for k in (1, 2, 3)]
    second.all_reduce(np.ones(5), ReduceOp.SUM, call(1))
    for work in works:
        with pytest.raises(MismatchError, match=r"float64\[1\].*float64\[5\]"):
            work.wait()
    assert len({id(work.exception()) for work in works}) == 1


def test_several_threads_wait():
    """Waits of several threads of a rank do not disturb each other."""
    first, second = make_world(2)
    works = [first.all_reduce(np.full(3, k), ReduceOp.SUM, call(k)) for k in (1, 2, 3)]
    ended = []
    threads = [threading.Thread(target=lambda w=w: ended.append(w.wait())) for w in works]
    for thread in threads:
        thread.start()
    for k in (1, 2, 3):
        second.all_reduce(np.full(3, k), ReduceOp.SUM, call(k)).wait()
    for thread in threads:
        thread.join(10)
    assert ended == [True] * 3


def test_a_long_wait_is_announced(capsys):
    """A wait that takes long prints one line that names the operation and who is missing."""
    store = HashStore()
    specs = [make_spec(r, 2, store, stall_warning_s=0.02) for r in range(2)]
    first, _ = at_once(*[lambda s=s: ShmBackend.create(s) for s in specs])
    with pytest.raises(CollectiveTimeout):
        first.barrier(call(1, Kind.BARRIER, timeout_s=0.2, tag="after the checkpoint")).wait()
    lines = [line for line in capsys.readouterr().err.splitlines() if "has waited" in line]
    assert len(lines) == 1
    assert "barrier #1 (after the checkpoint)" in lines[0]
    assert "rank 1" in lines[0]


def test_closing():
    """Close finishes what is in flight, may be called twice, and does not wait for ranks that are not there."""
    first, second = make_world(2)
    array = np.ones(3)
    first.all_reduce(array, ReduceOp.SUM, call(1))
    at_once(
        lambda: first.close(10),
        lambda: second.all_reduce(np.ones(3), ReduceOp.SUM, call(1)).wait(),
    )
    assert array.tolist() == [2.0] * 3
    first.close(10)
    second.barrier(call(2, Kind.BARRIER))
    second.close(0.05)


def forks(rank):
    """Rank 0 forks a child that drops registered memory, tries to communicate, and exits."""
    group = dist.current_group()
    array = group.empty(1 << 18, np.float32)
    array[:] = np.arange(1 << 18)
    group.barrier()
    if rank == 0:
        child = os.fork()
        if child == 0:
            try:
                group.barrier()
            except CommError as error:
                text = str(error)
            del array, group
            gc.collect()
            os._exit(42 if "forked child" in text else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 42
        assert np.array_equal(array, np.arange(1 << 18))
    group.barrier()
    group.all_reduce(array)
    return float(array[1000])


def test_a_forked_child_does_no_harm():
    """A child made by fork cannot communicate, and dropping the group's memory there leaves the parent's as it is."""
    assert run_ranks(forks, 2, "shm") == [2000.0, 2000.0]


def test_abort_from_another_thread():
    """Abort ends a wait of another thread of the same rank, at once and with its reason."""
    first, _ = make_world(2)
    work = first.barrier(call(1, Kind.BARRIER))
    waiting = threading.Thread(target=lambda: ended.append(at_once(work.wait)[0]))
    ended: list[object] = []
    waiting.start()
    first.abort("the user has had enough")
    waiting.join(10)
    assert "the user has had enough" in str(ended[0])


def test_polling_looks_at_every_message():
    """While several receives are polled, the death of any sender is found, not only that of the first."""
    world = make_world(3)
    works = [world[0].recv(np.empty(1), peer, 0, call(0, Kind.RECV)) for peer in (1, 2)]
    world[2].close(1)
    while not works[1].is_completed():
        time.sleep(0.001)
    assert "rank 2 has finished" in str(works[1].exception())
