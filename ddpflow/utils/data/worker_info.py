"""What a worker process of the DataLoader knows of itself."""

from dataclasses import dataclass
from typing import Any

__all__ = ["WorkerInfo", "get_worker_info", "set_worker_info"]


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker process knows of itself.

    Attributes:
        id: Its number, from 0.
        num_workers: How many there are.
        seed: What its random streams were seeded with in this pass.
        dataset: Its copy of the dataset.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """In a worker process what it knows of itself, elsewhere None."""
    return _info


def set_worker_info(info: WorkerInfo | None) -> None:
    """Make this process a worker; for the worker itself."""
    global _info
    _info = info
