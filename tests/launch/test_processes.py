"""Finding and ending what ranks leave behind."""

import os
import signal
import subprocess
import sys
import textwrap

from ddpflow.launch.processes import describe_process, processes_of_run
from tests.launch.conftest import ROOT, wait_until


def start(run_id: str, *command: str) -> subprocess.Popen[bytes]:
    """Starts a process that belongs to a run."""
    return subprocess.Popen(command, env=os.environ | {"DDPFLOW_RUN_ID": run_id}, stdout=subprocess.PIPE)


def test_processes_are_found_by_their_run():
    """Those that were started in a run are found, in whatever session; others, and namesakes, are not."""
    run_id = f"test-{os.getpid()}"
    shell = start(run_id, "sh", "-c", "setsid sleep 100 & echo $!; wait")
    other = start(run_id + "0", "sleep", "100")
    try:
        inner = int(shell.stdout.readline())
        # A process that is just changing its program has no environment and no command to read for a moment.
        wait_until(lambda: set(processes_of_run(run_id)) == {shell.pid, inner})
        wait_until(lambda: describe_process(inner) == f"pid {inner} (sleep 100)")
    finally:
        for process in (shell, other):
            process.kill()
        os.kill(inner, signal.SIGKILL)
        for process in (shell, other):
            process.communicate()
    assert describe_process(2**22 + 1) == f"pid {2**22 + 1}"


def test_strays_are_asked_then_killed():
    """What is left gets time to end by itself, then SIGTERM, then SIGKILL, stopped or not; what was ended is told."""
    code = f"""
    import os, subprocess, sys
    sys.path.insert(0, {str(ROOT)!r})
    from ddpflow.launch.processes import become_subreaper, end_strays, orphans
    become_subreaper()
    known = subprocess.Popen(["sleep", "100"])
    # Each of them loses its parent at once and so becomes ours.
    for command in ("sleep 0.2001", "sleep 100", "trap '' TERM; while :; do sleep 0.1; done", "kill -STOP $$"):
        environment = os.environ | {{"DDPFLOW_RUN_ID": "strays"}}
        subprocess.run(["sh", "-c", "setsid sh -c \\"$0\\" &", command], env=environment)
    assert len(orphans({{known.pid}})) == 4
    left = end_strays("strays", {{known.pid}}, 0.5)
    print(len(left), orphans({{known.pid}}), known.poll())
    print(*left, sep="\\n")
    known.kill()
    known.wait()
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    first, *left = result.stdout.splitlines()
    assert first.endswith(" [] None")
    # The short sleep was over before; the others were told of, each with its shell or without.
    told = "\n".join(left)
    assert "sleep 100" in told and "trap" in told and "kill -STOP" in told and "0.2001" not in told
