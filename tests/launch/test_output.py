"""What ranks print arrives whole, in order, marked, at once, and complete."""

import errno
import os
import pty
import re

import pytest

from ddpflow.launch.loop import Loop
from ddpflow.launch.output import Console, Stream, rank_prefix
from tests.launch.conftest import Starter, wait_until


class Wire:
    """A stream of a rank that feeds a console, both on pipes."""

    def __init__(self, prefix: bytes = b"[rank 1] ", live: bool = False, console: Console | None = None) -> None:
        self.loop = Loop()
        self.shown, writer = os.pipe()
        os.set_blocking(self.shown, False)
        self.closed: list[OSError] = []
        self.console = console or Console(self.loop, writer, self.closed.append)
        self.writer = writer
        reader, self.rank = os.pipe()
        self.stream = Stream(self.loop, reader, self.console, prefix, live=live)

    def send(self, data: bytes) -> bytes:
        """Lets the rank write, and returns what is shown then."""
        os.write(self.rank, data)
        self.loop.run_once(1)
        return self.read()

    def end(self) -> bytes:
        """Lets the rank close its stream, and returns what is shown then."""
        os.close(self.rank)
        self.loop.run_once(1)
        self.console.finish()
        return self.read()

    def read(self) -> bytes:
        """Returns what is shown."""
        try:
            return os.read(self.shown, 1 << 20)
        except BlockingIOError:
            return b""


def test_lines_are_held_until_whole():
    """Pieces become lines; each line gets the rank's mark; the last one gets its end."""
    wire = Wire()
    assert wire.send(b"one\ntwo\nthr") == b"[rank 1] one\n[rank 1] two\n"
    assert wire.send(b"ee\n") == b"[rank 1] three\n"
    assert wire.send(b"\n\xff\x00 binary\r\n") == b"[rank 1] \n[rank 1] \xff\x00 binary\r\n"
    assert wire.send(b"no end") == b""
    assert wire.end() == b"[rank 1] no end\n"
    assert wire.stream.recent.endswith(b"no end")


def test_progress_bar_lives_on_the_last_line():
    """A bar's states are shown as they come, over each other; a line of another rank goes on a line of its own."""
    wire = Wire(b"[rank 0] ", live=True)
    assert wire.send(b"\r 10%") == b"[rank 0]  10%"
    assert wire.send(b"\r 20%") == b"\r[rank 0]  20%"
    wire.console.write(b"[rank 1] epoch 1\n")
    assert wire.read() == b"\n[rank 1] epoch 1\n"
    assert wire.send(b"\r 30%") == b"[rank 0]  30%"
    assert wire.send(b"\r100%\nnext\n") == b"\r[rank 0] 100%\n[rank 0] next\n"
    assert wire.end() == b""


def test_a_bar_that_was_wiped_out_leaves_nothing():
    """Blanks over the bar, and back to the start: no prefix stays, no empty line follows, and a new bar may begin."""
    wire = Wire(b"[rank 0] ", live=True)
    wire.send(b"\r 90%")
    assert wire.send(b"\r    \r") == b"\r" + b" " * len(b"[rank 0]  90%") + b"\r"
    wire.console.write(b"[rank 0] epoch 1\n")
    assert wire.read() == b"[rank 0] epoch 1\n"
    assert wire.send(b"\r 10%") == b"[rank 0]  10%"
    wire.send(b"\r    \r")
    assert wire.end() == b""


def test_progress_bar_on_a_terminal():
    """On a terminal, another rank's line takes the bar's place and the bar is drawn again below it."""
    controller, terminal = pty.openpty()
    loop = Loop()
    console = Console(loop, terminal, print)
    assert console.is_terminal
    console.write_bar(b"[rank 0] 40%")
    console.write(b"[rank 1] hello\n")
    console.finish_bar(b"[rank 0] 100%\n")
    expected = b"[rank 0] 40%\x1b[K\r\x1b[K[rank 1] hello\r\n[rank 0] 40%\r[rank 0] 100%\r\n"
    seen = b""
    while len(seen) < len(expected):
        seen += os.read(controller, 1000)
    assert seen == expected
    os.close(controller)
    os.close(terminal)


def test_prompt_appears_on_a_terminal():
    """An unfinished line of the live rank that stays unfinished is shown: somebody may have to answer it."""
    controller, terminal = pty.openpty()
    loop = Loop()
    reader, rank = os.pipe()
    stream = Stream(loop, reader, Console(loop, terminal, print), b"[rank 0] ", live=True)
    os.write(rank, b"(Pdb) ")
    loop.run_once(1)
    loop.run_once(1)
    assert os.read(controller, 1000) == b"[rank 0] (Pdb) \x1b[K"
    os.write(rank, b"done\n")
    loop.run_once(1)
    assert os.read(controller, 1000) == b"\r[rank 0] (Pdb) done\r\n"
    stream.drain()
    for fd in (rank, controller, terminal):
        os.close(fd)


def test_bars_of_other_ranks_wait_for_their_end():
    """Only one rank's bar is live; another's appears when its line is whole."""
    wire = Wire(live=False)
    assert wire.send(b"\r 10%\r 20%") == b""
    assert wire.send(b"\r100%\n") == b"[rank 1] \r 10%\r 20%\r100%\n"


def test_endless_line_is_cut():
    """A line without end is shown in pieces of some megabytes instead of being kept for ever."""
    loop, (reader, rank) = Loop(), os.pipe()
    shown: list[bytes] = []
    console = Console(loop, os.open(os.devnull, os.O_WRONLY), print)
    console.write = shown.append  # type: ignore[method-assign]
    stream = Stream(loop, reader, console, b"[rank 1] ")
    sent = 0
    while not shown:
        sent += os.write(rank, b"x" * 65536)
        loop.run_once(1)
    assert shown == [b"[rank 1] " + b"x" * sent + b"\n"]
    assert 8 << 20 < sent < 9 << 20
    stream.drain()
    os.close(rank)
    os.close(console.fd)


def test_slow_reader_slows_the_ranks_and_loses_nothing():
    """Beyond a megabyte that nobody reads, ranks wait; all arrives once somebody does."""
    wire = Wire(b"")
    sent, received = 0, b""
    os.set_blocking(wire.rank, False)
    while not wire.console.is_full:
        sent += os.write(wire.rank, b"x" * 999 + b"\n")
        wire.loop.run_once(0)
    with pytest.raises(BlockingIOError):
        while True:
            sent += os.write(wire.rank, b"x" * 999 + b"\n")
            wire.loop.run_once(0)
    while len(received) < sent:
        received += wire.read()
        wire.loop.run_once(0.01)
    assert set(received.split(b"\n")[:-1]) == {b"x" * 999}
    assert not wire.console.is_full


def test_lost_reader_is_told_once():
    """Writing to a pipe that nobody reads any more calls on_closed, and later output is dropped."""
    wire = Wire()
    os.close(wire.shown)
    for _ in range(3):
        wire.console.write(b"line\n")
    assert [error.errno for error in wire.closed] == [errno.EPIPE]


def test_colour_only_where_asked_for():
    """The mark names the rank, with a colour of its own on a terminal."""
    assert rank_prefix(3, colour=False) == b"[rank 3] "
    assert re.fullmatch(rb"\x1b\[\d\dm\[rank 3\]\x1b\[0m ", rank_prefix(3, colour=True))


def test_many_ranks_many_lines(ddprun: Starter):
    """64 ranks print 2,000 long lines each: every line is whole, and each rank's lines are in order."""
    ranks, lines = 64, 2000
    script = ddprun.script(
        """
        for i in range(int(sys.argv[1])):
            print(f"{RANK}:{i}:" + "x" * (200 + i % 300) + f":{i}:{RANK}")
        """
    )
    result = ddprun.start("-n", ranks, script, lines).result()
    assert result.code == 0, result.err
    following = [0] * ranks
    pattern = re.compile(r"\[rank (\d+)\] (\d+):(\d+):x{200,500}:(\d+):(\d+)")
    for line in result.out.splitlines():
        match = pattern.fullmatch(line)
        assert match, line
        rank = int(match[1])
        assert match[1] == match[2] == match[5] and match[3] == match[4] == str(following[rank])
        following[rank] += 1
    assert following == [lines] * ranks


def test_lines_appear_at_once(ddprun: Starter):
    """A line is shown while its rank runs on, though the rank writes into a pipe."""
    launch = ddprun.start(
        "-n", 2, ddprun.script("print('working')\nwhile not os.path.exists('seen'):\n    time.sleep(0.01)")
    )
    assert launch.process.stdout.readline().endswith(b"working\n")
    (ddprun.folder / "seen").touch()
    assert launch.result().code == 0


def test_one_rank_is_left_alone(ddprun: Starter):
    """A single rank writes to our own output, byte for byte."""
    result = ddprun.run("os.write(1, bytes(range(256)))\nos.write(2, b'no end')", "-n", 1)
    assert result.out.encode(errors="surrogateescape") == bytes(range(256))
    assert result.err == "no end"


def test_show_ranks(ddprun: Starter):
    """Only the ranks asked for are shown, but the failure of another one is."""
    result = ddprun.run(
        """
        print("hello from", RANK)
        print("trouble ahead", file=sys.stderr)
        if RANK == 2:
            raise ValueError("bad batch")
        linger()
        """,
        "-n",
        3,
        "--local_ranks_filter",
        "0",
    )
    assert result.code == 1
    assert set(result.out.splitlines()) <= {"[rank 0] hello from 0"}
    assert "ValueError: bad batch" in result.err
    assert "last lines of rank 2's stderr:\n    trouble ahead" in result.err
    assert "[rank 2]" not in result.err and "[rank 1]" not in result.err


def test_log_dir_keeps_everything(ddprun: Starter):
    """With --log-dir each stream has a file with every byte, and the console stays as it is."""
    result = ddprun.run(
        "os.write(1, b'out %d \\xff' % RANK)\nos.write(2, b'err')", "-n", 2, "--log-dir", "logs", "--run-id", "r"
    )
    assert result.code == 0, result.err
    assert sorted(result.out.splitlines()) == ["[rank 0] out 0 \udcff", "[rank 1] out 1 \udcff"]
    logs = ddprun.folder / "logs" / "r" / "attempt_0"
    assert [(logs / rank / "stdout.log").read_bytes() for rank in "01"] == [b"out 0 \xff", b"out 1 \xff"]
    assert [(logs / rank / "stderr.log").read_bytes() for rank in "01"] == [b"err", b"err"]


def test_redirects_and_tee(ddprun: Starter):
    """--redirects sends a rank's streams to files only, --tee to both, each for the ranks named."""
    flags = ("--log-dir", "logs", "--run-id", "r", "--redirects", "0:3", "--tee", "1:1")
    result = ddprun.run("print('out', RANK)\nprint('err', RANK, file=sys.stderr)", "-n", 2, *flags)
    assert result.out == "[rank 1] out 1\n"
    assert "[rank 1] err 1" in result.err and "rank 0" not in result.err
    logs = ddprun.folder / "logs" / "r" / "attempt_0"
    files = {str(path.relative_to(logs)): path.read_text() for path in logs.glob("*/*")}
    assert files == {"0/stdout.log": "out 0\n", "0/stderr.log": "err 0\n", "1/stdout.log": "out 1\n"}


def test_bar_of_rank_0_under_ddprun(ddprun: Starter):
    """On a terminal, rank 0's progress bar moves while it runs, and lines of other ranks do not break it."""
    controller, terminal = pty.openpty()
    launch = ddprun.start(
        "-n",
        2,
        ddprun.script(
            """
            if RANK == 0:
                for percent in (10, 50, 100):
                    sys.stderr.write(f"\\r{percent}%")
                    sys.stderr.flush()
                    while not os.path.exists(f"seen.{percent}"):
                        time.sleep(0.01)
                sys.stderr.write("\\n")
            """
        ),
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    seen = b""
    for percent in (10, 50, 100):
        while f"{percent}%".encode() not in seen:
            seen += os.read(controller, 1000)
        (ddprun.folder / f"seen.{percent}").touch()
    assert launch.result().code == 0
    wait_until(lambda: launch.process.poll() is not None)
    os.close(controller)
    assert b"\x1b[36m[rank 0]\x1b[0m 10%" in seen
