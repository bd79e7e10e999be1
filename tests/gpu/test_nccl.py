"""Real NCCL: a world of one, two ranks on one GPU where NCCL allows it, and one rank for each GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddpflow import cuda

pytestmark = [pytest.mark.gpu, pytest.mark.slow]
ROOT = Path(__file__).parents[2]


def launch(ranks: int, backend: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs tests/gpu/ranks.py on some ranks."""
    command = [sys.executable, "-m", "ddpflow.launch", "--nproc-per-node", str(ranks), "tests/gpu/ranks.py", backend]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize("backend", ["nccl", "cpu:shm,cuda:nccl"])
def test_world_of_one(backend):
    """Collectives and DDP over real NCCL on one GPU."""
    result = launch(1, backend)
    assert result.returncode == 0 and "OK 0 of 1" in result.stdout, result.stdout + result.stderr


def test_two_ranks_on_one_gpu():
    """NCCL's own mode for several ranks on a GPU, where this NCCL has it."""
    result = launch(2, "nccl", CUDA_VISIBLE_DEVICES="0", NCCL_MULTI_RANK_GPU_ENABLE="1")
    if "invalid usage (5)" in result.stdout + result.stderr:
        pytest.skip("this NCCL refuses two ranks on one GPU")
    assert result.returncode == 0 and result.stdout.count("OK") == 2, result.stdout + result.stderr


def test_two_ranks_on_one_gpu_are_refused_by_us():
    """Without that mode our own check speaks before NCCL can hang."""
    result = launch(2, "nccl", CUDA_VISIBLE_DEVICES="0")
    assert result.returncode != 0 and "rank 0 and rank 1 are both on GPU 0" in result.stdout + result.stderr


def test_one_rank_for_each_gpu():
    """All GPUs of this machine train as one process does."""
    if cuda.device_count() < 2:
        pytest.skip("this machine has one GPU")
    result = launch(cuda.device_count(), "nccl")
    assert result.returncode == 0 and result.stdout.count("OK") == cuda.device_count(), result.stdout + result.stderr
