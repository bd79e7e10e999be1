"""What a thread knows of the capture that it is in."""

import threading

from ddpflow.capture import Capture, capturing, set_capture


def test_each_thread_has_its_own():
    """A capture is its thread's alone."""
    capture, seen = Capture(), []
    assert capturing() is None
    set_capture(capture)
    try:
        thread = threading.Thread(target=lambda: seen.append(capturing()))
        thread.start()
        thread.join()
        assert capturing() is capture and seen == [None]
    finally:
        set_capture(None)
    assert capturing() is None


def test_what_is_kept():
    """Values are kept in order, and each party is told of replays once."""
    capture, party = Capture(), object()
    capture.keep("a", party)
    capture.keep("b", party)
    capture.keep("c")
    assert capture.kept == ["a", "b", "c"] and capture.parties == [party]
