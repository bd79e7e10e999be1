"""The watchdog of NCCL groups; what it finds is tested with the transport, in test_nccl.py."""

import threading

import ddpflow.comm as dist
from ddpflow.comm.backends.nccl_watchdog import own_connection
from ddpflow.comm.store import HashStore, PrefixStore
from ddpflow.comm.tcp_store import TCPStore
from ddpflow.errors import PeerError
from tests.doubles.worlds import run_gpu_ranks


def test_a_connection_of_its_own():
    """The watchdog's calls to the store do not wait for those of other threads; nothing else of the store changes."""
    root = TCPStore("127.0.0.1", 0, world_size=1, is_master=True, timeout=5, wait_for_workers=False)
    own, client = own_connection(PrefixStore("a", PrefixStore("b", root)))
    own.set("key", "value")
    assert root.get("b/a/key") == b"value" and client is not root
    client.close()
    root.close()
    plain = HashStore()
    assert own_connection(plain) == (plain, None)


def test_ends_with_its_group():
    """No watchdog outlives its group."""

    def body(rank):
        import cupy

        dist.all_reduce(cupy.zeros(1))
        return [t.name for t in threading.enumerate() if t.name.startswith("ddpflow-nccl")]

    assert all("ddpflow-nccl-world" in names for names in run_gpu_ranks(body, 2))
    assert not any(t.name.startswith("ddpflow-nccl") for t in threading.enumerate())


def test_ended_operations_let_go_of_their_arrays():
    """Also in a world of one, which has no watchdog thread, memory does not pile up."""

    def body(rank):
        import cupy

        group = dist.current_group()
        for _ in range(5):
            group.all_reduce(cupy.zeros(1), async_op=True)
        while not group.all_reduce(cupy.zeros(1), async_op=True).is_completed():
            pass
        group.all_reduce(cupy.zeros(1), async_op=True)
        return len(group._backend._watchdog.in_flight)

    assert run_gpu_ranks(body, 1, "nccl_threads") == [1]


def test_a_deadline_is_seen_without_wait():
    """The host need not wait for anything: the watchdog alone sees the deadline, and the next call tells."""

    def body(rank):
        import cupy

        x = cupy.zeros(1)
        dist.all_reduce(x)
        if rank == 1:
            threading.Event().wait(1.5)
            return None
        work = dist.all_reduce(x, async_op=True, timeout=0.2)
        while work.exception() is None:
            threading.Event().wait(0.01)
        try:
            dist.all_reduce(x)
        except Exception as error:
            return str(error)

    text, _ = run_gpu_ranks(body, 2)
    assert "broken by an earlier error" in text and "all_reduce #2 got no answer from rank 1 in 0.2 s" in text


def test_abort_ends_the_peers_waits():
    """abort() reaches peers that only wait for the GPU."""

    def body(rank):
        import cupy

        x = cupy.zeros(1)
        dist.all_reduce(x)
        if rank == 1:
            dist.current_group().abort("loss is nan")
            return
        work = dist.all_reduce(x, async_op=True)
        while work.exception() is None:
            threading.Event().wait(0.01)
        work.wait()

    error = run_gpu_ranks(body, 2, return_exceptions=True)[0]
    assert isinstance(error, PeerError) and "rank 1 aborted the group: loss is nan" in str(error)
