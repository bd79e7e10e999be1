"""MPI between two hosts, which are two network namespaces."""

import importlib.util
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

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
import importlib.util
import sys

import ddpflow.comm as dist

spec = importlib.util.spec_from_file_location("train_digits", EXAMPLE)
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
compare = example.same_weights_everywhere

def show(model):
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode() + value.numpy().tobytes())
    if dist.get_rank() == 0:
        print("digest", digest.hexdigest(), "over", dist.get_backend())
    return compare(model)

example.same_weights_everywhere = show
sys.argv[1:] = ["--epochs", "1", "--batch-size", "128"]
example.main()
"""
EXAMPLE = Path(__file__).parents[3] / "examples" / "train_digits.py"


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
    """The digits model, trained on two hosts, gets the bits that it gets on one, with shared memory there."""
    pytest.importorskip("sklearn", reason="the example needs scikit-learn and tqdm")
    program = TRAINING.replace("EXAMPLE", repr(str(EXAMPLE)))
    (found,) = re.findall(r"digest (\w{64}) over mpi", run(hosts, tmp_path, program))
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
    assert re.findall(r"digest (\w{64}) over shm", output) == [found]
