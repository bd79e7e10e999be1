"""Whole jobs under ddprun that communicate: what a user sees when ranks fail, stop, restart, or share a host."""

import os
import re
import signal
import sys

import numpy as np
import pytest

from tests.launch.conftest import Starter, all_gone

SUM = """
import numpy as np
import ddpflow.comm as dist
dist.init_process_group()
x = np.arange(1000.0) * (RANK + 1)
dist.all_reduce(x)
assert x[999] == 999.0 * WORLD * (WORLD + 1) / 2, x[999]
"""


def test_eight_jobs_at_once(ddprun: Starter):
    """Eight jobs of two ranks, started at once on one host: all succeed with the right sums."""
    script = ddprun.script(SUM)
    results = [launch.result() for launch in [ddprun.start("-n", 2, script) for _ in range(8)]]
    assert [result.code for result in results] == [0] * 8, results


def test_exception_of_one_rank_reaches_all(ddprun: Starter):
    """When a rank raises, every other rank's wait ends with an error that names it and its exception."""
    result = ddprun.run(
        SUM
        + """
if RANK == 2:
    raise ValueError("bad batch")
dist.all_reduce(x)
""",
        "-n",
        3,
    )
    assert result.code == 1
    assert re.search(r"ddprun: rank 2 failed first \(node 0, pid \d+, [\d:]+\): ValueError: bad batch", result.err)
    assert re.search(r"then ranks 0-1 raised PeerError: .*rank 2 raised ValueError: bad batch", result.err)
    assert result.err.count("Traceback") == 1


def test_killed_rank_is_named(ddprun: Starter):
    """Killing -9 of a rank in mid-loop: code 137, and the others' errors name the rank and the signal."""
    launch = ddprun.start(
        "-n",
        3,
        ddprun.script(SUM + "put(f'{RANK}.pid', os.getpid())\nwhile True:\n    dist.all_reduce(x)\n    x[:] = 1\n"),
    )
    pids = launch.pids("0.pid", "1.pid", "2.pid")
    os.kill(pids[1], signal.SIGKILL)
    result = launch.result()
    assert result.code == 137
    assert "rank 1 failed first" in result.err and "it was killed by SIGKILL" in result.err
    assert re.search(r"then ranks 0, 2 raised PeerError: .*rank 1 was killed by SIGKILL", result.err)
    all_gone(pids)


def test_stopped_rank_ends_with_the_job(ddprun: Starter):
    """A rank that is stopped makes the others' collective time out; the launcher then ends the stopped one, too."""
    launch = ddprun.start(
        "-n",
        2,
        "--grace-period",
        1,
        ddprun.script(
            SUM
            + """
put(f"{RANK}.pid", os.getpid())
if RANK == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
dist.all_reduce(x, timeout=1)
"""
        ),
    )
    pids = launch.pids("0.pid", "1.pid")
    result = launch.result()
    assert result.code == 1
    assert "rank 0 failed first" in result.err and "CollectiveTimeout" in result.err and "rank 1" in result.err
    all_gone(pids)


def test_missing_variables_are_all_named(ddprun: Starter):
    """With a part of the variables only, the error names all that are missing, and the command to use."""
    script = ddprun.folder / "alone.py"
    script.write_text(
        "import ddpflow.comm as dist\ndist.init_process_group()\nprint(dist.get_rank(), dist.get_world_size())\n"
    )
    python = (sys.executable, str(script))
    result = ddprun.start(program=python, env={"RANK": "0"}).result()
    assert result.code == 1
    for text in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "ddprun --nproc-per-node"):
        assert text in result.err
    result = ddprun.start(program=python).result()
    assert (result.code, result.out) == (0, "0 1\n"), result.err


TRAIN = """
import numpy as np
import ddpflow.comm as dist
dist.init_process_group()
attempt = int(os.environ["DDPFLOW_RESTART_COUNT"])
weights, start = np.linspace(-1, 1, 50), 0
if os.path.exists("checkpoint.npz"):
    with np.load("checkpoint.npz") as saved:
        weights, start = saved["weights"], int(saved["step"])
for step in range(start, 8):
    if RANK == 1 and os.environ.get("DIE") and (attempt, step) in ((0, 3), (1, 5)):
        os.kill(os.getpid(), signal.SIGKILL)
    data = np.random.default_rng([step, RANK]).standard_normal(50)
    gradient = np.tanh(weights * data)
    dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
    weights = weights - 0.1 * gradient
    if RANK == 0:
        np.savez("new.npz", weights=weights, step=step + 1)
        os.rename("new.npz", "checkpoint.npz")
    dist.barrier()
"""


def test_restarted_run_ends_with_the_same_weights(ddprun: Starter):
    """A run whose rank dies twice, restarted from checkpoints, ends with an undisturbed run's weights, bit for bit."""
    finals = []
    for environment in ({}, {"DIE": "1"}):
        result = ddprun.run(TRAIN, "-n", 2, "--max-restarts", 2, env=environment)
        assert result.code == 0, result.err
        with np.load(ddprun.folder / "checkpoint.npz") as saved:
            finals.append(saved["weights"].tobytes())
        (ddprun.folder / "checkpoint.npz").unlink()
    assert result.err.count("it was killed by SIGKILL") == 2 and "starting again, attempt 3" in result.err
    assert finals[0] == finals[1]


def test_ranks_agree_where_to_stop(ddprun: Starter):
    """After SIGTERM, ranks that share the wish to stop all stop at the same step, and the run is no failure."""
    launch = ddprun.start(
        "-n",
        2,
        ddprun.script(
            SUM
            + """
stop = np.zeros(1)
signal.signal(signal.SIGTERM, lambda *_: stop.fill(1))
for step in range(10**9):
    put(f"{RANK}.pid", os.getpid())
    agreed = stop.copy()
    dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
    if agreed[0]:
        break
    time.sleep(0.001 * RANK)
print(step)
"""
        ),
    )
    launch.pids("0.pid", "1.pid")
    launch.kill(signal.SIGTERM)
    result = launch.result()
    assert result.code == 0, result.err
    assert len({line.split()[2] for line in result.out.splitlines()}) == 1 and len(result.out.splitlines()) == 2


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("", 0),
        ("import threading\nthreading.Thread(target=sys.exit).start()", 0),
        ("sys.exit(3)", 3),
        ("raise OSError('disk')", 1),
    ],
)
def test_exit_without_goodbye(ddprun: Starter, ending, code):
    """A script that ends right after an asynchronous collective, well or not, leaves no warning and no process."""
    environment = {"PYTHONWARNINGS": ""}
    result = ddprun.run(SUM + "dist.all_reduce(x, async_op=True)\n" + ending, "-n", 2, env=environment)
    assert result.code == code, result.err
    noise = [line for line in result.err.splitlines() if line.startswith("[rank")]
    assert noise == []


def test_status_of_a_training_run(ddprun: Starter):
    """--status shows the steps of a model in training, and whom a stuck rank waits for; --stacks shows where."""
    launch = ddprun.start(
        "-n",
        2,
        ddprun.script(
            """
            import ddpflow as torch
            import ddpflow.comm as dist
            from ddpflow.nn.parallel import DistributedDataParallel
            dist.init_process_group()
            net = DistributedDataParallel(torch.nn.Linear(4, 2))
            for step in range(3):
                net(torch.randn(8, 4)).sum().backward()
            if RANK == 1:
                put("1.pid", 1)
                time.sleep(60)
            put("0.pid", 1)
            dist.barrier(tag="after training")
            """
        ),
        env={"DDPFLOW_STALL_WARNING_S": "0.2"},
    )
    launch.wait_for_files("0.pid", "1.pid")
    while b"has waited" not in launch.process.stderr.readline():
        pass
    status = ddprun.start("--status").result().out
    assert re.search(
        r"rank 0 .* step 3, waiting for [\d.]+ s in barrier #\d+ \(after training\).* by rank 1", status
    ), status
    assert re.search(r"rank 1 .* step 3, 0 collectives/s", status), status
    stacks = ddprun.start("--stacks").result().out
    assert stacks.count("script.py") == 2 and "in barrier" in stacks
    launch.kill()
    assert launch.result().code == 143
