"""Nothing that ranks have started outlives the job, however it ends."""

import signal

import pytest

from tests.launch.conftest import Starter, all_gone, is_alive


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
