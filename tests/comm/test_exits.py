"""How processes end: without destroy, with work in flight, by an exception, by sys.exit; never a hang, never noise."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

HEAD = """
import os, sys, threading, time
import numpy as np
import ddpflow.comm as dist
rank = int(os.environ["RANK"])
dist.init_process_group(BACKEND, timeout=20)
x = np.ones(1000) * rank
dist.all_reduce(x)
"""


def run_scripts(path: Path, body: str, n: int = 2, backend: str = "shm") -> list[tuple[int, str, str]]:
    """Runs one script as n ranks without any launcher; returns exit code, stdout and stderr of each."""
    script = path / "script.py"
    script.write_text(HEAD.replace("BACKEND", repr(backend)) + body)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(n):
        environ = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(n),
            "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, "-W", "error", str(script)],
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    results = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=40)
            results.append((process.returncode, out, err))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return results


@pytest.mark.parametrize(
    "body",
    [
        "",
        "dist.destroy_process_group()",
        "dist.destroy_process_group(); dist.destroy_process_group()",
        "work = dist.all_reduce(x, async_op=True)",
        "dist.all_reduce(x, async_op=True); sys.exit(0)",
        "group = dist.new_group([0, 1]); buffer = group.empty(1000, 'f4'); dist.all_reduce(buffer, group=group)",
        "t = threading.Thread(target=lambda: dist.current_group().all_reduce(x)); t.start()",
        "t = threading.Thread(target=sys.exit, args=(3,)); t.start(); t.join()",
    ],
)
def test_quiet_ends(tmp_path, body):
    """A script that just ends is fine: exit 0, nothing on stderr, nothing in /dev/shm."""
    before = set(os.listdir("/dev/shm"))
    for code, out, err in run_scripts(tmp_path, body):
        assert (code, out, err) == (0, "", "")
    assert {name for name in set(os.listdir("/dev/shm")) - before if "ddpflow" in name} == set()


def test_an_exit_code_is_kept(tmp_path):
    """sys.exit(n) gives n, while the peer ends by itself."""
    results = run_scripts(tmp_path, "sys.exit(5 if rank else 0)")
    assert [code for code, _, _ in results] == [0, 5]


def test_an_exception_ends_all(tmp_path):
    """Without a launcher too, an exception reaches the ranks that wait, by name, and soon."""
    start = time.monotonic()
    body = "if rank == 1: raise ValueError('bad batch')\ndist.all_reduce(x)"
    (code0, _, err0), (code1, _, err1), (code2, _, err2) = run_scripts(tmp_path, body, n=3)
    assert (code0, code1, code2) == (1, 1, 1)
    assert err1.count("ValueError: bad batch") == 1 and "PeerError" not in err1
    for err in (err0, err2):
        assert "rank 1 raised ValueError: bad batch" in err and "all_reduce #2" in err
    assert time.monotonic() - start < 30


def test_leaving_early_is_told(tmp_path):
    """A rank that ends in good order while others wait is named with both collective numbers."""
    (code0, _, err0), (code1, _, err1) = run_scripts(tmp_path, "if rank == 0: dist.all_reduce(x)")
    assert code0 == 1 and "rank 1 has finished: it left the group after collective #1" in err0
    assert (code1, err1) == (0, "")


def test_a_forked_child_is_not_a_rank(tmp_path):
    """A child that ends, well or by an exception, leaves the group of its parent alone."""
    body = """
group = dist.current_group()
for fail in (False, True):
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        for use in (group.barrier, dist.barrier):
            try:
                use()
            except RuntimeError:
                continue
            os._exit(9)
        if fail: raise KeyError
        sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == int(fail)
dist.all_reduce(x)
"""
    for code, _, err in run_scripts(tmp_path, body):
        assert (code, err) == (0, "")


def test_rank_0_leaves_first(tmp_path):
    """The others go on among themselves after rank 0, with its store, has ended."""
    body = """
part = dist.new_group([1, 2])
if rank:
    time.sleep(3.0 if rank == 1 else 0.0)
    for _ in range(50):
        dist.all_reduce(x, group=part)
"""
    for code, _, err in run_scripts(tmp_path, body, n=3):
        assert (code, err) == (0, "")
