"""One door to the library under test: every benchmark is the same lines for ddpflow and for PyTorch.

A program asks `from_arguments(parser)` for the library that `--lib` names, builds its work from `lib.torch`, `lib.nn`,
`lib.functional` and `lib.dist`, times it with `lib.timed` and prints one JSON object per figure with `lib.say`.
"""

import argparse
import importlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

__all__ = ["NAMES", "Library", "add_arguments", "load", "say", "timed"]

# Library, its communication module, and the transport for CPU arrays.
NAMES = {"ddpflow": ("ddpflow.comm", "shm"), "torch": ("torch.distributed", "gloo")}


@dataclass(frozen=True)
class Library:
    """A tensor library with PyTorch's names, and this process's place in the world."""

    torch: ModuleType
    dist: ModuleType
    nn: ModuleType
    functional: ModuleType
    backend: str
    rank: int
    world: int

    @property
    def side(self) -> str:
        """The library's name, as it stands in the JSON lines."""
        return self.torch.__name__

    def start(self) -> None:
        """Joins the world that the launcher made, if any."""
        if self.world > 1:
            self.dist.init_process_group(self.backend)

    def finish(self) -> None:
        """Leaves the world."""
        if self.world > 1:
            self.dist.destroy_process_group()

    def timed(self, step: Callable[[], object], seconds: float, warmup: int = 5) -> list[float]:
        """Returns the sorted times in seconds of as many calls of `step` as fit, at least five."""
        return timed(step, seconds, self.agree, warmup)

    def agree(self, enough: bool) -> bool:
        """Returns whether any rank has had enough, so that all ranks stop at the same step."""
        done = self.torch.tensor(float(enough))
        if self.world > 1:
            self.dist.all_reduce(done, op=self.dist.ReduceOp.MAX)
        return bool(done.item())

    def say(self, name: str, times: list[float], **more: object) -> None:
        """Prints a figure as one JSON line, on rank 0 only; `times` is sorted and in seconds."""
        if self.rank == 0:
            say(self.side, name, self.world, times, **more)


def timed(step: Callable[[], object], seconds: float, agree: Callable[[bool], bool], warmup: int = 5) -> list[float]:
    """Returns the sorted times in seconds of as many calls of `step` as fit, at least five, until `agree` says stop."""
    for _ in range(warmup):
        step()
    times: list[float] = []
    start = time.perf_counter()
    while True:
        before = time.perf_counter()
        step()
        times.append(time.perf_counter() - before)
        if agree(time.perf_counter() - start > seconds and len(times) >= 5):
            return sorted(times)


def say(side: str, name: str, world: int, times: list[float], **more: object) -> None:
    """Prints a figure as one JSON line; `times` is sorted and in seconds."""
    figure = {
        "side": side,
        "name": name,
        "world": world,
        "n": len(times),
        "median_ms": round(times[len(times) // 2] * 1e3, 6),
        "min_ms": round(times[0] * 1e3, 6),
        "p99_ms": round(times[min(len(times) - 1, int(len(times) * 0.99))] * 1e3, 6),
        **more,
    }
    print(json.dumps(figure), flush=True)


def add_arguments(parser: argparse.ArgumentParser, extra: tuple[str, ...] = ()) -> None:
    """Adds the options that every program has; `extra` names what it can measure besides the libraries."""
    parser.add_argument("--lib", choices=[*sorted(NAMES), *extra], default="ddpflow", help="the library to measure")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each figure")


def load(name: str) -> Library:
    """Imports a library and reads this process's place from the launcher's variables."""
    comm, backend = NAMES[name]
    torch = importlib.import_module(name)
    if name == "torch":
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    return Library(
        torch=torch,
        dist=importlib.import_module(comm),
        nn=importlib.import_module(f"{name}.nn"),
        functional=importlib.import_module(f"{name}.nn.functional"),
        backend=backend,
        rank=int(os.environ.get("RANK", "0")),
        world=int(os.environ.get("WORLD_SIZE", "1")),
    )
