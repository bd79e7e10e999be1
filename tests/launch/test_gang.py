"""Signals to a job: passed on, obeyed in time, or followed by worse."""

import re
import signal
from pathlib import Path

import pytest

from tests.launch.conftest import Starter, all_gone, is_alive, wait_until


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


def test_suspend_and_resume(ddprun: Starter):
    """Ctrl-Z stops launcher and ranks, and `fg` lets all go on."""

    def state(pid: int) -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    launch = ddprun.start("-n", 2, ddprun.script("put(f'{RANK}.pid', os.getpid())\nwhile True:\n    time.sleep(0.01)"))
    pids = [*launch.pids("0.pid", "1.pid"), launch.pid]
    launch.kill(signal.SIGTSTP)
    wait_until(lambda: [state(pid) for pid in pids] == ["T"] * 3)
    launch.kill(signal.SIGCONT)
    wait_until(lambda: "T" not in [state(pid) for pid in pids])
    launch.kill(signal.SIGTERM)
    assert launch.result().code == 143
