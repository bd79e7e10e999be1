"""MPI between two hosts, which are two network namespaces."""

import importlib.util
import os
import re
import socket
import subprocess
import sys

import pytest

if importlib.util.find_spec("mpi4py") is None:
    pytest.skip("mpi4py is not installed (pip install 'ddpflow[mpi]')", allow_module_level=True)

from tests.comm.two_hosts import run_on_two_hosts, two_hosts


@pytest.fixture(scope="module")
def hosts():
    """Returns the two hosts, or skips with what forbids them."""
    try:
        with two_hosts() as found:
            yield found
    except OSError as error:
        pytest.skip(str(error))


COLLECTIVES = """
import ddpflow.comm as dist
from tests.comm import bodies

dist.init_process_group(timeout=30)
rank = dist.get_rank()
bodies.reductions(rank, ("float32", "bfloat16", "int64"))
bodies.copies(rank, ("float64", "uint8"))
bodies.uneven_exchange(rank)
bodies.messages(rank)
bodies.large_messages(rank, 300_001)
bodies.asynchronous(rank)
bodies.objects(rank)
context = dist.process_context()
print(f"rank {rank} backend {dist.get_backend()} host {context.node_rank} of {context.n_nodes}\\n", end="", flush=True)
"""

TRAINING = """
import hashlib
import numpy as np
import ddpflow.comm as dist
from ddpflow.comm import ReduceOp

dist.init_process_group(timeout=30)
rank, size = dist.get_rank(), dist.get_world_size()
draw = np.random.default_rng(0)
inputs, targets = draw.standard_normal((64, 30)).astype("f4"), draw.standard_normal((64, 5)).astype("f4")
weights = np.zeros((30, 5), "f4")
dist.broadcast(weights, 0)
for step in range(50):
    x, y = inputs[rank::size], targets[rank::size]
    gradient = x.T @ (x @ weights - y) / len(x)
    dist.all_reduce(gradient, ReduceOp.AVG)
    weights -= 0.05 * gradient
digests = [None] * size
dist.all_gather_object(digests, hashlib.sha256(weights.tobytes()).hexdigest())
assert len(set(digests)) == 1
if rank == 0:
    print("digest", digests[0], "loss", float(((inputs @ weights - targets) ** 2).mean()))
"""


def run(hosts, tmp_path, program: str) -> str:
    """Runs a program as 2 x 2 ranks and returns its output."""
    (tmp_path / "program.py").write_text(program)
    code, output = run_on_two_hosts(hosts, 2, [sys.executable, "-W", "error", "program.py"], tmp_path)
    assert code == 0, output
    return output


@pytest.mark.slow
def test_collectives(hosts, tmp_path):
    """All kinds of collectives and messages between four ranks on two hosts, chosen without being asked for."""
    output = run(hosts, tmp_path, COLLECTIVES)
    assert sorted(re.findall(r"rank \d backend mpi host (\d) of 2", output)) == ["0", "0", "1", "1"]


@pytest.mark.slow
def test_same_weights_as_on_one_host(hosts, tmp_path):
    """Training on two hosts gives the bits that one host gives, with shared memory there."""
    (found,) = re.findall(r"digest (\w{64})", run(hosts, tmp_path, TRAINING))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    base = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    base |= {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [
        subprocess.Popen(
            [sys.executable, "program.py"],
            cwd=tmp_path,
            env={**base, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(4)
    ]
    output = "".join(rank.communicate(timeout=60)[0] for rank in ranks)
    assert re.findall(r"digest (\w{64})", output) == [found]
