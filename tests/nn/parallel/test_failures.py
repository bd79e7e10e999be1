"""A rank that fails at any point of a training loop ends the whole job, by name, with its own exit code."""

import re
import signal
import subprocess
import sys
import textwrap

import pytest

SCRIPT = textwrap.dedent(
    """
    import os, signal, sys
    import ddpflow as flow
    import ddpflow.comm as dist
    from ddpflow import nn
    from ddpflow.nn.parallel import DistributedDataParallel

    stage, how = sys.argv[1:]
    rank = int(os.environ["RANK"])

    def fail(at):
        if rank == 1 and at == stage:
            if how == "raise":
                raise ValueError(f"this rank fails {at}")
            if how == "exit":
                sys.exit(7)
            os.kill(os.getpid(), signal.SIGKILL)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x, step):
            if step == 3:
                fail("during forward")
            return self.b(self.a(x))

    fail("before init")
    dist.init_process_group()
    ddp = DistributedDataParallel(Net(), bucket_cap_mb=1e-5)
    optimizer = flow.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(6):
        if step == 3:
            ddp.module.a.weight.register_hook(lambda g: fail("inside backward"))
        optimizer.zero_grad()
        ddp(flow.ones(2, 4), step).sum().backward()
        optimizer.step()
        if step == 3:
            fail("between steps")
    print("finished")
    """
)


def run(tmp_path, stage, how, ranks=2):
    """Runs the script under ddprun and returns the finished process."""
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    command = [sys.executable, "-m", "ddpflow.launch", "--nproc-per-node", str(ranks), str(path), stage, how]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


STAGES = ["before init", "during forward", "inside backward", "between steps"]


@pytest.mark.parametrize("stage", STAGES)
def test_an_exception_of_one_rank_ends_all_with_its_name_and_text(tmp_path, stage):
    """Rank 0's error names rank 1 and its exception; rank 1's traceback is shown once, as the root cause."""
    done = run(tmp_path, stage, "raise")
    assert done.returncode == 1
    assert "finished" not in done.stdout
    cause = f"ValueError: this rank fails {stage}"
    assert "ddprun: rank 1 failed first" in done.stderr and f"): {cause}" in done.stderr, done.stderr
    assert re.search(rf"rank 0 raised PeerError: .*rank 1 raised {cause}", done.stderr), done.stderr
    report = [line for line in done.stderr.splitlines() if not line.startswith("[rank")]
    assert sum("Traceback (most recent call last)" in line for line in report) == 1, done.stderr


@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_rank_ends_all_with_the_signals_name(tmp_path, stage):
    """After kill -9 of rank 1: exit code 137, SIGKILL by name, and rank 0 says that rank 1 is gone."""
    done = run(tmp_path, stage, "kill")
    assert done.returncode == 128 + signal.SIGKILL
    assert "SIGKILL" in done.stderr
    assert re.search(r"rank 0.*rank 1 (was killed by SIGKILL|.*SIGKILL)", done.stderr), done.stderr


def test_the_exit_code_is_the_root_causes(tmp_path):
    """Rank 1 of three leaves with code 7 in mid-training: that is the job's code."""
    done = run(tmp_path, "between steps", "exit", ranks=3)
    assert done.returncode == 7
    assert "finished" not in done.stdout
