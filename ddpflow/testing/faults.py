"""Faults on purpose: kill, stop, delay or raise in a chosen rank at a chosen step."""

import os
import random
import signal
import time
from dataclasses import dataclass

from ddpflow.comm.failure import describe_exit
from ddpflow.errors import ValueRangeError

__all__ = ["FaultPlan", "InjectedError", "RankDied"]

_KINDS = ("kill", "stop", "exit", "raise", "delay")


class RankDied(RuntimeError):
    """A rank's process ended without a result.

    Attributes:
        rank: The rank.
        exitcode: Its exit code, or None where a signal ended it.
        signal: The signal's number, or None.
    """

    def __init__(self, rank: int, exitcode: int | None = None, signal: int | None = None, output: str = "") -> None:
        super().__init__(f"rank {rank} {describe_exit(exitcode, signal)}" + (f"\n{output}" if output else ""))
        self.rank, self.exitcode, self.signal = rank, exitcode, signal


class InjectedError(RuntimeError):
    """The exception of a planned ``raise``."""


@dataclass(frozen=True)
class FaultPlan:
    """What goes wrong, where and when; call ``at(rank, step)`` in the loop of a test.

    Attributes:
        kind: "kill" (SIGKILL), "stop" (SIGSTOP), "exit" (``os._exit(exitcode)``), "raise" (InjectedError) or "delay".
        rank: The rank that it happens to.
        step: The step at which it happens.
        delay_s: Seconds of a delay.
        exitcode: Code of an exit.
    """

    kind: str
    rank: int
    step: int
    delay_s: float = 0.2
    exitcode: int = 0

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueRangeError(f"a fault is one of {', '.join(_KINDS)}, not {self.kind!r}")

    @classmethod
    def seeded(cls, seed: int, n_ranks: int, n_steps: int, kinds: tuple[str, ...] = _KINDS) -> "FaultPlan":
        """Returns a plan drawn from a seed, the same every time."""
        draw = random.Random(seed)
        return cls(draw.choice(kinds), draw.randrange(n_ranks), draw.randrange(n_steps), draw.uniform(0.01, 0.3))

    def at(self, rank: int, step: int) -> None:
        """Lets the fault happen if this is its rank and step."""
        if (rank, step) != (self.rank, self.step):
            return
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self.kind == "exit":
            os._exit(self.exitcode)
        elif self.kind == "raise":
            raise InjectedError(f"planned for rank {rank} at step {step}")
        else:
            time.sleep(self.delay_s)
