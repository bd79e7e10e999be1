"""What the parts of a training step must know while this thread captures it into a CUDA graph.

A capture notes what streams are given, to be done at each replay. Nothing that the host does is repeated, events of
captured work must not be asked, and what the graph uses must live as long as the graph.
"""

import threading
from typing import Any

__all__ = ["Capture", "capturing", "set_capture"]


class Capture:
    """One capture.

    Attributes:
        kept: What must live as long as the graph.
        parties: Who took part and is to be told of replays, by its methods ``before_replay`` and ``after_replay``.
    """

    __slots__ = ("kept", "parties")

    def __init__(self) -> None:
        self.kept: list[Any] = []
        self.parties: list[Any] = []

    def keep(self, value: Any, party: Any = None) -> None:
        """Keep something for the graph, and note who gave it."""
        self.kept.append(value)
        if party is not None and party not in self.parties:
            self.parties.append(party)


class _Current(threading.local):
    """This thread's capture under way."""

    capture: Capture | None = None


_current = _Current()


def capturing() -> Capture | None:
    """The capture that this thread is in, or None."""
    return _current.capture


def set_capture(capture: Capture | None) -> None:
    """Begin a capture in this thread, or end it with None."""
    _current.capture = capture
