"""An NCCL operation in flight, on the CuPy stand-in."""

import ddpflow.comm as dist
from tests.doubles.timeline import StreamOrderError
from tests.doubles.worlds import run_gpu_ranks


def test_wait_orders_the_current_stream():
    """Before wait() the result must not be used; wait() on a stream makes that stream wait, not the others."""

    def body(rank):
        import cupy

        x = cupy.full(2, rank + 1.0)
        side = cupy.cuda.Stream(non_blocking=True)
        work = dist.current_group().all_reduce(x, async_op=True)
        try:
            x + 1
        except StreamOrderError:
            refused = True
        with side:
            work.wait()
            y = x + 1
        work.wait()
        cupy.cuda.get_current_stream().wait_event(side.record())
        return refused, (x + y).get().tolist(), work.result() is x or work.result().size, work.source_rank()

    for refused, values, _, source in run_gpu_ranks(body, 2):
        assert refused and values == [7.0, 7.0] and source == -1


def test_progress_and_completion():
    """is_completed() tells whether the GPU has come to the end; a finished operation lets go of its arrays."""

    def body(rank):
        import cupy

        x = cupy.full(2, rank + 1.0)
        work = dist.current_group().all_reduce(x, async_op=True)
        while not work.is_completed():
            pass
        work.wait(timeout=3.0)
        return work.is_success(), work.exception(), work._arrays, work.limit_s

    assert run_gpu_ranks(body, 2) == [(True, None, (), 3.0)] * 2


def test_numpy_arrays_block_the_host():
    """The result of a NumPy array is there when wait() returns."""

    def body(rank):
        import numpy as np

        from tests.doubles.worlds import ThreadedNccl

        assert ThreadedNccl.devices == ("cuda", "cpu")
        x = np.array([rank + 1.0])
        dist.all_reduce(x)
        return x.tolist()

    assert run_gpu_ranks(body, 2, "nccl_threads") == [[3.0], [3.0]]
