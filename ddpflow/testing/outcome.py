"""How one rank of a test world ended."""

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ddpflow.errors import PeerError

__all__ = ["Outcome", "note", "root_cause"]


@dataclass
class Outcome:
    """A rank's result, or its error.

    Attributes:
        rank: The rank.
        value: What the function returned.
        error: What it raised, or None.
        time: When it ended, on the clock of ``time.monotonic``.
    """

    rank: int
    value: Any = None
    error: BaseException | None = None
    time: float = field(default_factory=time.monotonic)


def note(error: BaseException, rank: int) -> BaseException:
    """Adds the rank and the traceback to the exception's notes, where pytest shows them."""
    text = "".join(traceback.format_exception(error))
    error.add_note(f"raised by rank {rank}:\n{text}")
    return error


def root_cause(outcomes: Sequence[Outcome]) -> BaseException | None:
    """Returns the earliest error that does not merely pass on another rank's, or None."""
    failed = [o for o in outcomes if o.error is not None]
    first = min(failed, key=lambda o: (isinstance(o.error, PeerError), o.time), default=None)
    return None if first is None else first.error
