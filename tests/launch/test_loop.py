"""The event loop."""

import os
import signal

from ddpflow.launch.loop import Loop


def test_timers_run_in_order_of_time():
    """A later one runs later, a cancelled one never, and one that is added meanwhile in its turn."""
    loop, seen = Loop(), []
    loop.call_later(0.03, lambda: seen.append("c"))
    loop.call_later(0.01, lambda: (seen.append("a"), loop.call_later(0.01, lambda: seen.append("b"))))
    loop.call_later(0.0, lambda: seen.append("never")).cancel()
    loop.run_until(lambda: len(seen) == 3)
    assert seen == ["a", "b", "c"]


def test_readers_and_writers():
    """A reader is called when there is something, a writer when there is room, and none after it was removed."""
    loop, (reader, writer), seen = Loop(), os.pipe(), []
    loop.add_reader(reader, lambda: seen.append(os.read(reader, 10)))
    loop.run_once(0)
    assert seen == []
    loop.add_writer(writer, lambda: (os.write(writer, b"x"), loop.remove_writer(writer)))
    loop.run_once(1)
    loop.run_once(1)
    loop.run_once(0)
    assert seen == [b"x"]
    loop.remove_reader(reader)
    loop.remove_reader(reader)
    os.write(writer, b"y")
    loop.run_once(0)
    assert seen == [b"x"]
    os.close(reader)
    os.close(writer)


def test_signals_arrive_as_events():
    """A handled signal wakes the loop; ignored ones stay ignored; closing restores the handlers."""
    before = signal.getsignal(signal.SIGUSR1)
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    loop, seen = Loop(), []
    try:
        loop.handle_signals([signal.SIGUSR1, signal.SIGHUP], seen.append)
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGHUP)
        loop.run_until(lambda: bool(seen))
        loop.run_once(0)
        assert seen == [signal.SIGUSR1]
    finally:
        loop.close()
        signal.signal(signal.SIGHUP, previous)
    assert signal.getsignal(signal.SIGUSR1) == before


def test_waits_without_spinning():
    """A timer that is a little way off is slept for, not spun for."""
    loop, seen = Loop(), []
    loop.call_later(0.2, lambda: seen.append(1))
    rounds = 0
    while not seen:
        loop.run_once()
        rounds += 1
    assert rounds <= 3
