"""Ranks in threads of which one runs at a time, and which hand over wherever one looks at or changes a shared word.

Between two looks at shared memory a rank may be put aside for as long as the others take to do anything at all. On a
busy machine that happens once in a million looks; here a seed decides it at every look, and the run can be repeated.
"""

import random
import threading
from typing import Any

import ddpflow.comm as dist
from ddpflow.comm.backends.shm import ShmBackend
from ddpflow.comm.backends.shm_wait import Waiter
from ddpflow.comm.group import ProcessGroup
from ddpflow.testing.faults import InjectedError
from tests.comm.backends.shm_programs import Program
from tests.comm.backends.shm_world import at_once

__all__ = ["run_in_turns"]


class _Turns:
    """Decides who runs.

    Args:
        n: Ranks.
        seed: Of the decisions.
        change: How likely the turn passes on at a look.
    """

    def __init__(self, n: int, seed: int, change: float) -> None:
        self._random, self._change = random.Random(seed), change
        self._running = list(range(n))
        self._may_go = [threading.Semaphore(0) for _ in range(n)]

    def start(self) -> None:
        """Lets the first rank run."""
        self._may_go[self._random.choice(self._running)].release()

    def join(self, rank: int) -> None:
        """Waits for this rank's first turn."""
        self._may_go[rank].acquire()

    def may_pass_on(self, rank: int) -> None:
        """Hands over to another rank, or not."""
        if self._random.random() < self._change:
            self.pass_on(rank)

    def pass_on(self, rank: int) -> None:
        """Hands over to any rank that still runs."""
        chosen = self._random.choice(self._running)
        if chosen != rank:
            self._may_go[chosen].release()
            self._may_go[rank].acquire()

    def leave(self, rank: int) -> None:
        """Hands over for good."""
        self._running.remove(rank)
        if self._running:
            self._may_go[self._random.choice(self._running)].release()


class _Words:
    """Shared words, at each use of which the turn may pass on."""

    def __init__(self, words: Any, turns: _Turns, rank: int) -> None:
        self._words, self._turns, self._rank = words, turns, rank

    def __getitem__(self, index: int) -> int:
        self._turns.may_pass_on(self._rank)
        value: int = self._words[index]
        return value

    def __setitem__(self, index: int, value: int) -> None:
        self._turns.may_pass_on(self._rank)
        self._words[index] = value


class _Waiter(Waiter):
    """Sleeps by letting others run."""

    def __init__(self, words: Any, turns: _Turns, rank: int) -> None:
        super().__init__(words, len(turns._may_go))
        self._turns, self._rank = turns, rank

    def spin(self, index: int, value: int) -> bool:
        """Looks once."""
        reached: bool = self._words[index] >= value
        return reached

    def sleep(self, waited_s: float) -> None:
        """Hands over."""
        self._turns.pass_on(self._rank)


def run_in_turns(
    backends: list[ShmBackend], seed: int, steps: int, change: float, victim: tuple[int, int] | None = None
) -> list[Any]:
    """Runs a random program on all ranks, one rank at a time; returns None or an exception for each.

    Args:
        backends: The ranks' transports.
        seed: Of the program and of the turns.
        steps: Of the program.
        change: How likely the turn passes on at a look at a shared word.
        victim: A rank and a step at which it raises and gives the group up.
    """
    turns = _Turns(len(backends), seed, change)

    def rank(index: int) -> None:
        backend = backends[index]
        engine = backend._engine
        words: Any = _Words(engine.words, turns, index)
        engine.words = engine.control.words = words
        engine.waiter = _Waiter(words, turns, index)
        turns.join(index)
        try:
            with dist.group_scope(ProcessGroup(backend.spec, backend)):
                program = Program(index, seed)
                if victim is not None and victim[0] == index:
                    program.run_until(victim[1])
                    backend.abort("told to fail")
                    raise InjectedError(f"step {victim[1]}")
                program.run(steps)
        finally:
            turns.leave(index)

    starter = threading.Timer(0.05, turns.start)
    starter.start()
    return at_once(*[lambda i=i: rank(i) for i in range(len(backends))])
