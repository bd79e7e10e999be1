"""The MPI transport, in worlds that mpiexec starts."""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.errors import BackendUnavailable
from ddpflow.testing import run_ranks
from tests.comm import bodies
from tests.comm.conformance import Conformance
from tests.comm.reference import reduced, same

if importlib.util.find_spec("mpi4py") is None:
    pytest.skip("mpi4py is not installed (pip install 'ddpflow[mpi]')", allow_module_level=True)

MPIEXEC = str(Path(sys.executable).parent / "mpiexec")


class TestMpi(Conformance):
    """Ranks of one mpiexec."""

    backend: ClassVar[str] = "mpi"


def in_chunks(rank: int, chunk_bytes: int) -> None:
    """Collectives and messages of every size around the chunk's."""
    os.environ["DDPFLOW_CHUNK_BYTES"] = str(chunk_bytes)
    dist.init_process_group("mpi", timeout=20)
    del os.environ["DDPFLOW_CHUNK_BYTES"]
    n = dist.get_world_size()
    for count in (0, 1, 9, 10, 11, 1003):
        everyone = [np.arange(count) * 1.5 + r for r in range(n)]
        x = everyone[rank].copy()
        dist.all_reduce(x)
        same(x, reduced(everyone, dist.ReduceOp.SUM))
        x = everyone[rank].copy()
        dist.broadcast(x, n - 1)
        same(x, everyone[n - 1])
        out = np.empty((n, count))
        dist.all_gather_into_tensor(out, everyone[rank])
        same(out, np.stack(everyone))
        part = np.empty(count)
        dist.reduce_scatter_tensor(part, np.concatenate(everyone))
        same(part, reduced([everyone[rank]] * n, dist.ReduceOp.SUM))
        received = dist.irecv(out[0], (rank - 1) % n)
        sent = dist.isend(everyone[rank], (rank + 1) % n)
        received.wait()
        sent.wait()
        same(out[0], everyone[(rank - 1) % n])
        dist.reduce(x := everyone[rank].copy(), 1)
        same(x, reduced(everyone, dist.ReduceOp.SUM) if rank == 1 else everyone[rank])
    dist.destroy_process_group()


@pytest.mark.parametrize("n", [2, 3])
def test_chunks(n):
    """Messages beyond a settable size go in pieces, so that no count is too large for MPI."""
    run_ranks(in_chunks, n, "mpi", args=(80,), init=False)


def test_large_arrays():
    """Arrays of many megabytes, in pieces of the default size."""
    run_ranks(bodies.large_messages, 2, "mpi", args=(3_000_001,))


def overlap(rank: int) -> int:
    """Rank 0 comes late while rank 1's second thread communicates and its main thread computes."""
    if rank == 0:
        time.sleep(0.5)
    bodies.from_a_second_thread(rank)
    return dist.current_group().seq


def test_a_second_thread_and_a_late_rank():
    """Neither holds the interpreter while it waits."""
    assert run_ranks(overlap, 2, "mpi") == [5, 5]


def many_groups(rank: int) -> None:
    """Makes and leaves more groups than MPICH has communicators (2048), one rank sooner than the other."""
    for number in range(2100):
        group = dist.new_group([0, 1])
        if number % 500 == rank:
            time.sleep(0.01)
        dist.all_reduce(x := np.array([rank + 1.0]), group=group)
        assert x[0] == 3.0
        dist.destroy_process_group(group)


def test_communicators_are_freed():
    """A job may make and leave groups as often as it likes."""
    run_ranks(many_groups, 2, "mpi", timeout_s=200)


HEAD = """
import sys, time
import numpy as np
import ddpflow.comm as dist
dist.init_process_group(timeout=20)
rank = dist.get_rank()
x = np.ones(1000) * rank
dist.all_reduce(x)
"""


def run_script(path: Path, body: str, n: int = 2, head: str = HEAD) -> tuple[int, str, float]:
    """Runs a script under mpiexec, without any launcher of ours; returns exit code, all output and seconds."""
    (path / "script.py").write_text(head + body)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    start = time.monotonic()
    done = subprocess.run(
        [MPIEXEC, "-n", str(n), sys.executable, "-W", "error", "script.py"],
        cwd=path,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, time.monotonic() - start


@pytest.mark.parametrize(
    "body",
    [
        "",
        "dist.destroy_process_group()",
        "dist.all_reduce(x, async_op=True)",
        "dist.new_group([0, 1]); sys.exit()",
    ],
)
def test_a_script_under_mpiexec(tmp_path, body):
    """A plain script joins mpiexec's world by itself and ends quietly."""
    code, output, _ = run_script(tmp_path, "assert dist.get_backend() == 'mpi' and x[0] == 1.0\n" + body)
    assert (code, output) == (0, "")


def test_an_exception_ends_the_job(tmp_path):
    """An uncaught exception ends all ranks with an error that names it, and mpiexec with a failure."""
    body = "if rank == 1: raise ValueError('bad batch')\ndist.all_reduce(x)"
    code, output, seconds = run_script(tmp_path, body, n=3)
    assert code != 0 and seconds < 30
    assert "ValueError: bad batch" in output
    assert output.count("all_reduce #2 cannot finish: rank 1 raised ValueError: bad batch") == 2


def test_leaving_early_is_told(tmp_path):
    """A rank that ends in good order while another waits is named."""
    code, output, _ = run_script(tmp_path, "if rank == 0: dist.all_reduce(x)")
    assert code != 0 and "rank 1 has finished: it left the group after collective #1 while rank 0 is at #2" in output


def not_under_mpiexec(rank: int) -> str:
    """Asks for MPI in processes that mpiexec did not start."""
    with pytest.raises(BackendUnavailable) as caught:
        dist.init_process_group("mpi", timeout=10)
    return str(caught.value)


def test_without_mpiexec():
    """Ranks that another launcher started are told how to start them."""
    for rank, text in enumerate(run_ranks(not_under_mpiexec, 2, "shm", init=False)):
        assert f"MPI sees rank 0 of 1, the job has rank {rank} of 2" in text and "mpiexec -n N" in text
