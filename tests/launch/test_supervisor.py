"""A whole job under ddprun: how it ends, whatever happens to a rank or to the launcher."""

import re
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.launch.conftest import PROGRAM, Starter, all_gone, is_alive


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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_signal_to_the_launcher_ends_the_ranks(ddprun: Starter, number):
    """The ranks get the signal, end, and the launcher exits with 128 + its number."""
    launch = ddprun.start("-n", 2, ddprun.script("put(f'{RANK}.pid', os.getpid()); time.sleep(60)"))
    pids = launch.pids("0.pid", "1.pid")
    launch.kill(number)
    result = launch.result()
    assert result.code == 128 + number
    assert f"stopped by {signal.Signals(number).name}" in result.err
    assert "Traceback" not in result.err
    assert not any(map(is_alive, pids))


def test_interrupted_ranks_say_where_they_were(ddprun: Starter):
    """After Ctrl-C, one line from each rank tells where it stood."""
    launch = ddprun.start(
        "-n",
        2,
        ddprun.script("def train():\n    put(RANK, 1) if 0 else put(f'{RANK}.pid', 1)\n    time.sleep(60)\ntrain()"),
    )
    launch.wait_for_files("0.pid", "1.pid")
    launch.kill(signal.SIGINT)
    result = launch.result()
    assert result.code == 130
    for rank in (0, 1):
        assert re.search(rf"\[rank {rank}\] KeyboardInterrupt in train, .*script.py:\d+", result.err)


def test_ranks_get_time_to_save(ddprun: Starter):
    """With SIGTERM, handlers may work on within the grace period; a run whose ranks then end with 0 is no failure."""
    launch = ddprun.start(
        "-n",
        2,
        "--grace_period",
        30,
        ddprun.script(
            """
            def save(*_):
                time.sleep(1.5)
                put(f"{RANK}.saved", "weights")
                sys.exit(0)
            signal.signal(signal.SIGTERM, save)
            put(f"{RANK}.pid", os.getpid())
            while True:
                time.sleep(1)
            """
        ),
    )
    launch.pids("0.pid", "1.pid")
    launch.kill(signal.SIGTERM)
    assert launch.result().code == 0
    assert [(ddprun.folder / f"{rank}.saved").read_text() for rank in (0, 1)] == ["weights"] * 2


def test_ranks_that_will_not_end_are_killed(ddprun: Starter):
    """Ranks that ignore SIGTERM, or are stopped, are killed after the grace period."""
    launch = ddprun.start(
        "-n",
        2,
        "--grace-period",
        0.5,
        ddprun.script(
            """
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            put(f"{RANK}.pid", os.getpid())
            if RANK == 1:
                os.kill(os.getpid(), signal.SIGSTOP)
            while True:
                time.sleep(1)
            """
        ),
    )
    pids = launch.pids("0.pid", "1.pid")
    launch.kill(signal.SIGTERM)
    assert launch.result().code == 143
    all_gone(pids)


def test_second_interrupt_kills_at_once(ddprun: Starter):
    """Ranks that ignore Ctrl-C are killed by the second one, long before the grace period is over."""
    launch = ddprun.start(
        "-n",
        2,
        "--grace-period",
        1000,
        ddprun.script(
            """
            signal.signal(signal.SIGINT, lambda *_: put(f"{RANK}.asked", 1))
            put(f"{RANK}.pid", os.getpid())
            while True:
                time.sleep(1)
            """
        ),
    )
    pids = launch.pids("0.pid", "1.pid")
    launch.kill(signal.SIGINT)
    launch.wait_for_files("0.asked", "1.asked")
    launch.kill(signal.SIGINT)
    assert launch.result().code == 130
    all_gone(pids)


def test_other_signals_are_passed_on(ddprun: Starter):
    """SIGUSR1 reaches every rank and ends nothing."""
    launch = ddprun.start(
        "-n",
        2,
        ddprun.script(
            """
            signal.signal(signal.SIGUSR1, lambda *_: put(f"{RANK}.usr1", 1))
            put(f"{RANK}.pid", os.getpid())
            while not all(os.path.exists(f"{rank}.usr1") for rank in range(WORLD)):
                time.sleep(0.01)
            """
        ),
    )
    launch.pids("0.pid", "1.pid")
    launch.kill(signal.SIGUSR1)
    assert launch.result().code == 0


def test_launcher_killed(ddprun: Starter):
    """When the launcher is killed, ranks, their children and even daemons of theirs end, and the run directory goes."""
    launch = ddprun.start(
        "-n",
        2,
        ddprun.script(
            """
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
            if os.fork() == 0:
                if os.fork() == 0:
                    os.setsid()
                    put(f"{RANK}.daemon", os.getpid())
                    time.sleep(1000)
                os._exit(0)
            put(f"{RANK}.child", child.pid)
            put(f"{RANK}.pid", os.getpid())
            time.sleep(1000)
            """
        ),
    )
    pids = launch.pids(*(f"{rank}.{kind}" for rank in (0, 1) for kind in ("pid", "child", "daemon")))
    launch.kill(signal.SIGKILL)
    assert launch.result().code == -signal.SIGKILL
    all_gone(pids)


@pytest.mark.parametrize("ending", ["sys.exit(0)", "sys.exit(5)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_children_of_ranks_do_not_stay(ddprun: Starter, ending):
    """However a rank ends, what it started ends too, though it holds the rank's output open and has its own session."""
    launch = ddprun.start(
        "-n",
        2,
        ddprun.script(
            f"""
            child = subprocess.Popen(["sleep", "1000"], start_new_session=RANK == 1)
            put(f"{{RANK}}.child", child.pid)
            while not (os.path.exists("0.child") and os.path.exists("1.child")):
                time.sleep(0.01)
            print("last words")
            {ending}
            """
        ),
    )
    result = launch.result()
    assert result.code == {"sys.exit(0)": 0, "sys.exit(5)": 5}.get(ending, 137)
    assert sorted(result.out.splitlines()) == ["[rank 0] last words", "[rank 1] last words"]
    assert "ended what ranks had left running: pid" in result.err
    assert not any(is_alive(int((ddprun.folder / f"{rank}.child").read_text())) for rank in (0, 1))


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
