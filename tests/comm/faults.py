"""What the ranks of the conformance tests do wrong: functions of the rank, so that they also run in processes."""

import time

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.comm import ReduceOp
from ddpflow.errors import PeerError


def mismatch(rank: int, what: str) -> None:
    """The last rank makes another call than the others."""
    odd = rank == dist.get_world_size() - 1
    x, out = np.zeros(4, np.float32), np.zeros(4 * dist.get_world_size(), np.float32)
    if what == "dtype":
        dist.all_reduce(x.astype(np.float64) if odd else x)
    elif what == "count":
        dist.all_reduce(np.zeros(5, np.float32) if odd else x)
    elif what == "operation":
        dist.barrier() if odd else dist.all_reduce(x)
    elif what == "copy":
        dist.broadcast(x, 0) if odd else dist.all_reduce(x)
    elif what == "reduce op":
        dist.all_reduce(x, ReduceOp.MAX if odd else ReduceOp.SUM)
    elif what == "root":
        dist.broadcast(x, 1 if odd else 0)
    elif what == "order":
        calls = [lambda: dist.all_reduce(x), lambda: dist.all_gather_into_tensor(out, x)]
        for call in reversed(calls) if odd else calls:
            call()
    elif what == "large count":
        dist.all_reduce(np.zeros(100_001 if odd else 100_000))
    elif what == "async":
        works = [dist.all_reduce(np.zeros(k + odd * (k == 3)), async_op=True) for k in range(1, 6)]
        for work in works:
            work.wait()


def broken_group(rank: int) -> list[str]:
    """Calls after a failure: the texts of three errors."""
    texts = []
    for _ in range(2):
        try:
            dist.all_reduce(np.zeros(4 + rank))
        except Exception as error:
            texts.append(f"{type(error).__name__}: {error}")
    try:
        dist.broadcast(np.zeros(1), 0)
    except Exception as error:
        texts.append(f"{type(error).__name__}: {error}")
    return texts


def absent(rank: int, missing: list[int], seconds: float) -> None:
    """Some ranks never come to the second collective; they stay alive until the others have given up."""
    dist.barrier()
    if rank in missing:
        time.sleep(seconds * 2.5)
    else:
        dist.all_reduce(np.zeros(3), timeout=seconds, tag="bucket 2: fc.weight")


def late(rank: int) -> list[str]:
    """Rank 1 comes after rank 0's deadline."""
    texts = []
    dist.barrier()
    if rank == 1:
        time.sleep(1.5)
    try:
        dist.all_reduce(np.zeros(3), timeout=0.4 if rank == 0 else 5.0)
    except Exception as error:
        texts.append(f"{type(error).__name__}: {error}")
    return texts


def raise_in_one(rank: int) -> None:
    """Rank 1 raises while the others wait."""
    dist.barrier()
    if rank == 1:
        raise ValueError("bad batch")
    dist.all_reduce(np.zeros(3))


def leave_early(rank: int) -> None:
    """Rank 1 makes two collectives, the others three."""
    dist.all_reduce(np.zeros(3))
    dist.all_reduce(np.zeros(3))
    if rank == 1:
        dist.destroy_process_group()
        return
    dist.all_reduce(np.zeros(3))


def abort_by_hand(rank: int) -> None:
    """Rank 1 aborts the group while the others wait."""
    dist.barrier()
    if rank == 1:
        dist.current_group().abort("loss is nan")
        return
    dist.all_reduce(np.zeros(3))


def wrong_message(rank: int) -> None:
    """Three elements sent, four expected."""
    if rank == 0:
        dist.send(np.zeros(3), 1)
        dist.barrier()
    else:
        dist.recv(np.zeros(4), 0)


def differing_groups(rank: int) -> None:
    """Rank 0 means other ranks than the rest."""
    dist.new_group([0, 1] if rank == 0 else [0, 2])


def new_group_without_one(rank: int) -> None:
    """Rank 2 never calls new_group."""
    if rank == 2:
        time.sleep(1.5)
    else:
        dist.new_group([0, 1], timeout=0.5)


def local_group(rank: int) -> None:
    """Only the members make the group; the others are elsewhere."""
    if rank != 1:
        group = dist.new_group([0, 2], use_local_synchronization=True)
        dist.all_reduce(x := np.array([rank + 1.0]), group=group)
        assert x[0] == 4.0
    dist.barrier()


def survivors(rank: int) -> float:
    """Rank 2 hangs; the others give up, leave the broken group and go on among themselves."""
    doomed = dist.new_group([0, 1, 2, 3])
    dist.barrier()
    if rank == 2:
        time.sleep(3)
        return 3.0
    with pytest.raises(Exception, match="rank 2"):
        dist.all_reduce(np.zeros(1), group=doomed, timeout=0.5)
    start = time.monotonic()
    dist.destroy_process_group(doomed)
    group = dist.new_group([0, 1, 3], use_local_synchronization=True)
    x = np.array([1.0])
    dist.all_reduce(x, group=group)
    assert time.monotonic() - start < 5
    return float(x[0])


def survivors_of_an_error(rank: int) -> float:
    """Rank 1 raises; the others see it, leave the broken world's group alone, and go on among themselves."""
    dist.barrier()
    if rank == 1:
        raise ValueError("bad batch")
    with pytest.raises(PeerError, match="rank 1 raised ValueError"):
        dist.all_reduce(np.zeros(1))
    group = dist.new_group([0, 2], use_local_synchronization=True)
    x = np.array([rank + 1.0])
    for _ in range(20):
        time.sleep(0.02)
        dist.all_reduce(x, dist.ReduceOp.AVG, group=group)
    return float(x[0])


def unwaited_send(rank: int) -> float:
    """Rank 0 sends and leaves at once; rank 1 asks later, and still gets the data."""
    x = np.array([5.0 + rank])
    if rank == 0:
        dist.isend(x, 1)
        return 0.0
    time.sleep(0.3)
    dist.recv(x, 0)
    return float(x[0])


def monitored(rank: int, missing: list[int]) -> None:
    """A barrier that all reach, then one that some do not."""
    dist.monitored_barrier()
    if rank in missing:
        time.sleep(2.5)
    else:
        dist.monitored_barrier(timeout=1.0)


def cheap_wait(rank: int) -> float:
    """Rank 1 comes two seconds late; returns the processor time that this rank's thread has used meanwhile."""
    dist.barrier()
    if rank == 1:
        time.sleep(2.0)
    start = time.thread_time()
    dist.all_reduce(np.ones(100_000))
    return time.thread_time() - start


def stalled(rank: int) -> list[tuple[str, list[int]]]:
    """Rank 1 comes after the others' first warning, and before any deadline; returns the warnings."""
    group = dist.current_group()
    dist.barrier()
    seen: list[tuple[str, list[int]]] = []
    object.__setattr__(group.spec, "stall_warning_s", 0.2)
    group._backend.warn_stall = lambda call, waited_s, missing: seen.append((str(call), list(missing)))
    if rank == 1:
        time.sleep(1.0)
    dist.all_reduce(np.ones(3), tag="bucket 2: fc.weight")
    return seen
