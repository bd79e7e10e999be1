"""A whole job under ddprun: how it ends, whatever happens to a rank or to the launcher."""

import json
import re
import signal
import socket
import sys
from pathlib import Path

from tests.launch.conftest import PROGRAM, Starter, all_gone


def test_all_ranks_run_and_see_their_place(ddprun: Starter):
    """Each rank runs the script once, with torchrun's variables, its own arguments and rank 0's listening socket."""
    result = ddprun.run(
        """
        import socket
        names = "LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE MASTER_ADDR DDPFLOW_RESTART_COUNT".split()
        print(RANK, WORLD, *(os.environ[name] for name in names), sys.argv[1:])
        if RANK == 0:
            store = socket.socket(fileno=int(os.environ["DDPFLOW_STORE_FD"]))
            assert store.getsockname() == ("127.0.0.1", int(os.environ["MASTER_PORT"]))
            assert not os.get_inheritable(store.fileno())
            store.accept()[0].sendall(b"welcome")
        else:
            assert "DDPFLOW_STORE_FD" not in os.environ
            with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as client:
                print(client.recv(7).decode())
        assert len(os.environ["DDPFLOW_JOB_TOKEN"]) == 32
        assert os.stat(os.environ["DDPFLOW_RUN_DIR"]).st_mode & 0o777 == 0o700
        """,
        "--nproc-per-node=2",
        arguments=("--lr", "0.1"),
    )
    assert result.code == 0, result.err
    assert sorted(result.out.splitlines()) == [
        "[rank 0] 0 2 0 2 0 1 127.0.0.1 0 ['--lr', '0.1']",
        "[rank 1] 1 2 1 2 0 1 127.0.0.1 0 ['--lr', '0.1']",
        "[rank 1] welcome",
    ]


def test_first_failure_ends_the_others(ddprun: Starter):
    """Exit code 3 of rank 1 ends a sleeping rank 0, and is the launcher's."""
    result = ddprun.run("sys.exit(3) if RANK == 1 else time.sleep(60)", "-n", 2)
    assert result.code == 3
    assert "rank 1 failed first" in result.err
    assert "it exited with code 3" in result.err
    assert "then rank 0 was ended by ddprun" in result.err


def test_root_cause_comes_first_and_once(ddprun: Starter):
    """The first rank to raise is the root cause; its traceback appears once, and starts in user code."""
    result = ddprun.run(
        """
        def train():
            raise ValueError("bad batch")
        if RANK == 1:
            print("reading data", file=sys.stderr)
            train()
        while not os.path.exists(os.environ["DDPFLOW_RUN_DIR"] + "/failed.1.json"):
            time.sleep(0.01)
        raise RuntimeError("lost my peer")
        """,
        "-n",
        3,
    )
    assert result.code == 1
    block = result.err[result.err.index("ddprun: rank 1 failed first") :]
    assert re.match(
        r"ddprun: rank 1 failed first \(node 0, pid \d+, [\d:]+\): ValueError: bad batch\n  Traceback", block
    )
    assert result.err.count("Traceback") == 1
    assert "child.py" not in result.err and "supervisor" not in result.err
    assert 'script.py", line' in block and "in train" in block
    assert "last lines of rank 1's stderr:\n    reading data\n" in block
    assert "then ranks 0, 2 raised RuntimeError: lost my peer" in block


def test_message_of_sys_exit_is_reported(ddprun: Starter):
    """`sys.exit("text")` counts as a failure with exit code 1 and that text."""
    result = ddprun.run("sys.exit('no data here') if RANK == 0 else linger()", "-n", 2)
    assert result.code == 1
    assert "rank 0 failed first" in result.err and "SystemExit: no data here" in result.err


def test_signal_has_a_name_and_a_hint(ddprun: Starter):
    """A rank that is killed gives 128 + 9, the signal's name, and what may be behind it."""
    result = ddprun.run("os.kill(os.getpid(), signal.SIGKILL) if RANK == 1 else linger()", "-n", 2)
    assert result.code == 137
    assert "rank 1 failed first" in result.err and "it was killed by SIGKILL (out of memory, perhaps" in result.err


def test_crash_shows_the_python_stack(ddprun: Starter):
    """A crash in native code is reported with the Python stack that led there."""
    result = ddprun.run("import ctypes\nctypes.string_at(0)", "-n", 1)
    assert result.code == 139
    assert "SIGSEGV" in result.err and "string_at" in result.err


def test_failure_is_seen_though_the_rank_does_not_exit(ddprun: Starter):
    """A rank that raised but hangs on its way out still counts as failed, with its own exit code."""
    result = ddprun.run(
        """
        import threading
        if RANK == 0:
            threading.Thread(target=time.sleep, args=(60,)).start()
            raise KeyError("gone")
        time.sleep(60)
        """,
        "-n",
        2,
    )
    assert result.code == 1
    assert "rank 0 failed first" in result.err and "KeyError: 'gone'" in result.err


def test_port_zero_lets_jobs_share_a_host(ddprun: Starter):
    """Eight jobs started at once all meet at ports of their own."""
    script = ddprun.script(
        """
        import socket
        port = int(os.environ["MASTER_PORT"])
        if RANK == 0:
            with socket.socket(fileno=int(os.environ["DDPFLOW_STORE_FD"])) as store:
                store.accept()[0].sendall(os.environ["DDPFLOW_RUN_ID"].encode())
        else:
            with socket.create_connection(("127.0.0.1", port)) as client:
                assert client.recv(100).decode() == os.environ["DDPFLOW_RUN_ID"]
            print("met")
        """
    )
    for result in [launch.result() for launch in [ddprun.start("-n", 2, script) for _ in range(8)]]:
        assert (result.code, result.out) == (0, "[rank 1] met\n"), result.err


def test_taken_port(ddprun: Starter):
    """A master port that somebody else has is one clear line, and exit code 2."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = ddprun.run("put('started', 1)", "--master-port", port, "-n", 2)
    assert result.code == 2
    assert str(port) in result.err and "in use" in result.err and len(result.err.splitlines()) == 1
    assert not (ddprun.folder / "started").exists()


def test_restart_runs_the_whole_gang_again(ddprun: Starter):
    """After a failure every rank starts again, with a fresh run id, token and restart count, until it works."""
    result = ddprun.run(
        """
        count = int(os.environ["DDPFLOW_RESTART_COUNT"])
        print(count, os.environ["DDPFLOW_RUN_ID"])
        if count < 2:
            sys.exit(9) if RANK == count else linger()
        """,
        "-n",
        2,
        "--max-restarts",
        3,
        "--run-id",
        "gang",
    )
    assert result.code == 0, result.err
    expected = [f"[rank {rank}] {count} gang{f'.{count}' if count else ''}" for rank in (0, 1) for count in range(3)]
    assert sorted(result.out.splitlines()) == expected
    assert "rank 0 failed first" in result.err and "rank 1 failed first" in result.err
    assert "starting again, attempt 3" in result.err


def test_restarts_run_out(ddprun: Starter):
    """When the last attempt fails as well, its exit code stands."""
    result = ddprun.run("sys.exit(10 + int(os.environ['DDPFLOW_RESTART_COUNT']))", "-n", 1, "--max-restarts", 1)
    assert result.code == 11


def test_job_stops_when_nobody_reads_its_output(ddprun: Starter):
    """`ddprun ... | head -1` ends the job, as with any other program in a pipe."""
    launch = ddprun.start("-n", 2, ddprun.script("put(f'{RANK}.pid', os.getpid())\nwhile True:\n    print('y' * 1000)"))
    pids = launch.pids("0.pid", "1.pid")
    launch.process.stdout.readline()
    launch.stop_reading()
    assert launch.result().code == 128 + signal.SIGPIPE
    all_gone(pids)


def test_python_m_is_the_same_program(ddprun: Starter):
    """`python -m ddpflow.launch` does what ddprun does."""
    script = ddprun.script("print(RANK)")
    result = ddprun.start("-n", 2, script, program=(sys.executable, "-m", "ddpflow.launch")).result()
    assert result.code == 0, result.err
    assert sorted(result.out.splitlines()) == ["[rank 0] 0", "[rank 1] 1"]


def test_two_runs_of_one_name(ddprun: Starter):
    """A run id that a living run has is refused."""
    launch = ddprun.start("-n", 1, "--run-id", "twin", ddprun.script("put('pid', os.getpid()); time.sleep(60)"))
    launch.pids("pid")
    result = ddprun.start("-n", 1, "--run-id", "twin", ddprun.script("print(1)", "other.py")).result()
    assert (result.code, result.out) == (2, "")
    assert "'twin' is alive" in result.err
    launch.kill()
    launch.result()


def test_launcher_sleeps_between_events(ddprun: Starter):
    """While ranks work, the launcher wakes for what they print and a few times a second, and for nothing else."""
    launch = ddprun.start(
        "-n",
        2,
        ddprun.script(
            """
            for i in range(30):
                print(i)
                time.sleep(0.03)
            put(str(RANK), 1)
            time.sleep(60)
            """
        ),
    )
    launch.wait_for_files("0", "1")
    status = (Path("/proc") / str(launch.pid) / "status").read_text()
    launch.kill()
    launch.result()
    assert int(status.partition("voluntary_ctxt_switches:")[2].split()[0]) < 200


def test_lost_run_directory_hides_no_failure(ddprun: Starter):
    """A failure counts even where it cannot be written down: a full disk, an eager cleaner."""
    result = ddprun.run(
        """
        import shutil
        if RANK == 1:
            shutil.rmtree(os.environ["DDPFLOW_RUN_DIR"])
            sys.exit(3)
        time.sleep(60)
        """,
        "-n",
        2,
    )
    assert result.code == 3
    assert "rank 1 failed first" in result.err and "it exited with code 3" in result.err


def test_output_that_cannot_be_written(ddprun: Starter):
    """A full disk under the launcher's output ends the job with a line that says so."""
    with open("/dev/full", "wb") as full:
        launch = ddprun.start("-n", 2, ddprun.script("print('hello')\ntime.sleep(60)"), stdout=full)
        result = launch.result()
    assert result.code == 128 + signal.SIGPIPE
    assert "cannot write the output: No space left on device" in result.err


def test_closed_standard_streams(ddprun: Starter):
    """Without standard input and output the job runs all the same."""
    script = ddprun.script("print('hello')\nput(f'{RANK}.ran', 1)")
    launch = ddprun.start(script, program=("sh", "-c", 'exec "$@" <&- >&-', "sh", *PROGRAM, "-n", "2"))
    result = launch.result()
    assert (result.code, result.out) == (0, ""), result.err
    assert sorted(path.name for path in ddprun.folder.glob("*.ran")) == ["0.ran", "1.ran"]
    assert "Traceback" not in result.err


def test_log_files_that_cannot_be_written(ddprun: Starter):
    """A log directory that cannot be made is one line, and nothing starts."""
    (ddprun.folder / "logs").touch()
    result = ddprun.run("put('started', 1)", "-n", 2, "--log-dir", "logs")
    assert result.code == 2
    assert "cannot start rank 0: [Errno" in result.err and "Traceback" not in result.err
    assert not (ddprun.folder / "started").exists()


def test_failure_in_the_log_directory(ddprun: Starter):
    """The log directory has the report as JSON, and each rank's traceback at the end of its own file."""
    body = """
    if "fine" in sys.argv:
        sys.exit()
    print(f"rank {RANK} is here", file=sys.stderr)
    if RANK == 0:
        linger_for = os.environ["DDPFLOW_RUN_DIR"] + "/failed.1.json"
        while not os.path.exists(linger_for):
            time.sleep(0.01)
        raise RuntimeError("lost my peer")
    raise ValueError("bad batch")
    """
    result = ddprun.run(body, "-n", 2, "--log-dir", "logs", "--run-id", "r", "--report", "report.json")
    assert result.code == 1
    logs = ddprun.folder / "logs" / "r" / "attempt_0"
    assert f"full output: {logs.relative_to(ddprun.folder)}" in result.err
    report = json.loads((logs / "error.json").read_text())
    assert report == json.loads((ddprun.folder / "report.json").read_text())
    assert report["root_cause"]["rank"] == 1 and report["root_cause"]["type"] == "ValueError"
    assert report["root_cause"]["stderr"] == ["rank 1 is here"]
    for rank, error in ((0, "RuntimeError: lost my peer"), (1, "ValueError: bad batch")):
        lines = (logs / str(rank) / "stderr.log").read_text().splitlines()
        assert (lines[0], lines[1], lines[-1]) == (f"rank {rank} is here", "Traceback (most recent call last):", error)
    again = ddprun.run(body, "-n", 2, "--log-dir", "logs", "--run-id", "r", arguments=("fine",))
    assert again.code == 0
    assert {path.name: path.read_text() for path in logs.glob("*/*")} == {"stdout.log": "", "stderr.log": ""}
    assert not (logs / "error.json").exists()
