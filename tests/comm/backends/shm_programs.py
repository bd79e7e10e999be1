"""Random programs of collectives and messages, the same on all ranks, whose every result is known beforehand."""

import random
import time
from typing import Any

import numpy as np

import ddpflow.comm as dist
from ddpflow.comm.reduce import ReduceOp
from tests.comm.backends.shm_world import small_layout

SMALL = {"chunk_bytes": 4096, "n_chunks": 3, "inline_bytes": 256, "ring": 4, "mail_bytes": 512}
KINDS = ("all_reduce",) * 3 + (
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "reduce",
    "scatter",
    "all_to_all",
    "barrier",
    "message",
)
COMBINE = {
    ReduceOp.SUM: np.add,
    ReduceOp.PRODUCT: np.multiply,
    ReduceOp.MAX: np.maximum,
    ReduceOp.BXOR: np.bitwise_xor,
}


class Program:
    """One rank's run of the program of a seed: operations in flight, waited for in any order, checked one by one."""

    def __init__(self, rank: int, seed: int) -> None:
        self.group = dist.current_group()
        self.rank, self.n = rank, self.group.size()
        self.plan = random.Random(seed)  # the same on all ranks
        self.own = random.Random(seed * 1000 + rank)  # this rank's own whims: memory, order of waits, pauses
        self.pending: list[tuple[Any, np.ndarray, np.ndarray, str]] = []

    def data(self, step: int, rank: int, n: int, dtype: str) -> np.ndarray:
        """Returns what a rank brings to a step."""
        return ((np.arange(n) * (rank + 3) + step * 7) % 41).astype(dtype)

    def place(self, values: np.ndarray) -> np.ndarray:
        """Returns the values in registered or in other memory."""
        if self.own.random() < 0.4:
            return values.copy()
        array = self.group.empty(values.size, values.dtype)
        array[:] = values
        return array

    def reduced(self, step: int, n: int, dtype: str, op: ReduceOp) -> np.ndarray:
        """Returns the reduction of all ranks' data."""
        total = self.data(step, 0, n, dtype)
        for rank in range(1, self.n):
            total = COMBINE[op](total, self.data(step, rank, n, dtype))
        return total

    def launch(self, step: int) -> None:
        """Starts one random operation."""
        plan, group, own, n = self.plan, self.group, self.rank, self.n
        kind, dtype = plan.choice(KINDS), plan.choice(["float32", "float64", "int32", "uint8", "complex64"])
        count = plan.choice([0, 1, 3, 17, 60, 64, 65, 500, 1000, 3000, plan.randrange(20000)])
        root, integer = plan.randrange(n), dtype in ("int32", "uint8")
        op = plan.choice([ReduceOp.SUM, ReduceOp.MAX, ReduceOp.BXOR] if integer else [ReduceOp.SUM, ReduceOp.PRODUCT])
        mine, what = self.data(step, own, count, dtype), f"step {step}: {kind} of {dtype}[{count}], {op!r}, root {root}"
        options: dict[str, Any] = {"async_op": True, "tag": what}
        if kind == "all_reduce":
            x, expected = self.place(mine), self.reduced(step, count, dtype, op)
            work = group.all_reduce(x, op, **options)
        elif kind == "broadcast":
            x, expected = self.place(mine), self.data(step, root, count, dtype)
            work = group.broadcast(x, root, **options)
        elif kind == "all_gather":
            x = self.place(np.zeros(count * n, dtype))
            expected = np.concatenate([self.data(step, r, count, dtype) for r in range(n)])
            work = group.all_gather_into_tensor(x, self.place(mine), **options)
        elif kind == "reduce_scatter":
            x, whole = self.place(np.zeros(count, dtype)), self.data(step, own, count * n, dtype)
            expected = self.reduced(step, count * n, dtype, op)[own * count : (own + 1) * count]
            work = group.reduce_scatter_tensor(x, self.place(whole), op, **options)
        elif kind == "reduce":
            x, expected = self.place(mine), self.reduced(step, count, dtype, op) if own == root else mine
            work = group.reduce(x, root, op, **options)
        elif kind == "scatter":
            parts = [self.data(step, r, count, dtype) for r in range(n)]
            x, expected = self.place(np.zeros(count, dtype)), mine
            work = group.scatter(x, parts if own == root else None, root, **options)
        elif kind == "all_to_all":
            counts = [[plan.randrange(count // n + 2) for _ in range(n)] for _ in range(n)]
            taken = [counts[r][own] for r in range(n)]
            x = np.zeros(sum(taken), dtype)
            sent = [self.data(step, r, sum(counts[r]), dtype) for r in range(n)]
            expected = np.concatenate([np.split(sent[r], np.cumsum(counts[r]))[own] for r in range(n)])
            work = group.all_to_all_single(x, sent[own], taken, counts[own], **options)
        elif kind == "message" and n > 1:
            sending = group.send(mine, (own + 1) % n, tag=step % 3, async_op=True)
            self.pending.append((sending, mine, mine, what))
            x, expected = np.zeros(count, dtype), self.data(step, (own - 1) % n, count, dtype)
            work = group.recv(x, (own - 1) % n, tag=step % 3, async_op=True)
        else:
            x = expected = np.zeros(0)
            work = group.barrier(**options)
        self.pending.append((work, x, expected, what))

    def finish_one(self) -> None:
        """Waits for some operation and checks its result."""
        work, x, expected, what = self.pending.pop(self.own.randrange(len(self.pending)))
        work.wait()
        assert np.array_equal(x, expected), what

    def run(self, steps: int) -> None:
        """Runs all steps and waits for everything."""
        self.run_until(steps)
        while self.pending:
            self.finish_one()
        self.group.barrier()

    def run_until(self, steps: int) -> None:
        """Runs steps, and leaves operations in flight."""
        for step in range(steps):
            self.launch(step)
            if self.own.random() < 0.05:
                time.sleep(self.own.random() * 0.003)
            if self.own.random() < 0.3:
                self.group.progress()
            limit = self.plan.randrange(1, 14)
            while len(self.pending) > limit:
                self.finish_one()


def run_program(rank: int, seed: int, steps: int, small: bool) -> str:
    """Joins a group, with small rings and chunks or with the usual ones, and runs a program."""
    with small_layout(**(SMALL if small else {})):
        dist.init_process_group("shm", timeout=30)
    Program(rank, seed).run(steps)
    return "done"
