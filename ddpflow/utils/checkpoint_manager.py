"""Checkpoints of a run: saved whole or not at all, found again by all ranks alike, and not more of them than wanted."""

import contextlib
import io
import os
import random
import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase
from ddpflow.comm.objects import all_gather_object, broadcast_object
from ddpflow.comm.world import current_group
from ddpflow.errors import SerializationError, ValueRangeError
from ddpflow.random import default_generator
from ddpflow.serialization import load, save

__all__ = ["CheckpointManager", "Resumed"]

_NAME = re.compile(r"step-(\d{10,})\.ckpt")
_LEFTOVER = re.compile(r"\.step-\d{10,}\.ckpt\.\d+\.[0-9a-f]+")
_STALE_S = 3600.0  # a half-written file of this age has no writer any more


@dataclass(frozen=True)
class Resumed:
    """What a run goes on from.

    Attributes:
        step: The step that was saved.
        values: The plain values that were saved, by name.
    """

    step: int
    values: dict[str, Any]


class CheckpointManager:
    """Saves the state of a run in a folder, and goes on from the newest checkpoint that is whole.

        checkpoints = CheckpointManager("checkpoints", keep=3, per_rank=["loader"])
        found = checkpoints.resume(model=ddp, optimizer=optimizer, loader=loader)
        for step in range(0 if found is None else found.step + 1, steps):
            ...
            checkpoints.save(step, model=ddp, optimizer=optimizer, loader=loader, best=best)

    Every rank calls each method. The group's first rank alone writes and reads: one file for each step, which appears
    whole or not at all, and in which each tensor has a checksum. The others get its bytes from there, so ranks on hosts
    without a common file system work as well, and all ranks go on from the same step. Each rank's random state is in
    it too. Nothing is unpickled.

    Args:
        folder: Where checkpoints are; made when it is missing.
        keep: How many of the newest stay; older ones are removed after a save. None keeps all.
        per_rank: Names of objects and values of which each rank has its own, such as data loaders without a
            DistributedSampler; of all others the first rank's is saved.
        random_state: Save and restore the random streams (ddpflow's, NumPy's, Python's) of each rank.
        group: The ranks; the current group when None.

    Raises:
        ValueRangeError: When ``keep`` is below 1.

    Example:
        >>> import tempfile
        >>> from ddpflow.nn import Linear
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     CheckpointManager(folder).save(7, model=Linear(2, 2), best=0.5)
        ...     CheckpointManager(folder).resume(model=Linear(2, 2))
        Resumed(step=7, values={'best': 0.5})
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        keep: int | None = 3,
        per_rank: Sequence[str] = (),
        random_state: bool = True,
        group: Any = None,
    ) -> None:
        if keep is not None and keep < 1:
            raise ValueRangeError(f"keep must be at least 1, or None, not {keep}")
        self.folder = os.fspath(folder)
        self.keep = keep
        self.per_rank = frozenset(per_rank)
        self.random_state = random_state
        self._group = current_group() if group is None else group

    # --- saving -------------------------------------------------------------------------------------------------------

    def save(self, step: int, **state: Any) -> None:
        """Save objects with a ``state_dict``, and plain values (numbers, strings, tensors, lists and dicts of such).

        Args:
            step: Its number; a checkpoint of the same step is replaced.
            state: Objects and values by name.

        Raises:
            SerializationError: On all ranks, when one has a value that is not plain, or the file cannot be written.
            ValueRangeError: When the step is negative.
        """
        if step < 0:
            raise ValueRangeError(f"the step of a checkpoint must not be negative, not {step}")
        states = {name: v.state_dict() if _has_state(v) else v for name, v in state.items()}
        own = {name: states.pop(name) for name in list(states) if name in self.per_rank}
        problem = _problem(own)
        mine = (problem, own if problem is None else {}, _random_state() if self.random_state else None)
        everyone: list[Any] = [None] * self._group.size()
        all_gather_object(everyone, mine, self._group)
        self._raise_together([entry[0] for entry in everyone])
        problem = None
        if self._group.rank() == 0:
            kinds = {name: _has_state(v) for name, v in state.items()}
            parts = [{"own": own, "random": drawn} for _, own, drawn in everyone]
            try:
                os.makedirs(self.folder, exist_ok=True)
                whole = {"step": step, "kinds": kinds, "state": states, "ranks": parts}
                save(whole, self._path(step), plain_only=True)
                self._prune()
            except (SerializationError, OSError) as error:
                problem = f"checkpoint of step {step}: {_problem(states) or error}"
        self._raise_together([broadcast_object(problem, self._group.ranks[0], self._group)])

    def _raise_together(self, problems: Sequence[str | None]) -> None:
        """Raise on all ranks what one of them found."""
        for rank, text in zip(self._group.ranks, problems, strict=False):
            if text is not None:
                raise SerializationError(f"rank {rank}: {text}")

    def _path(self, step: int) -> str:
        return os.path.join(self.folder, f"step-{step:010d}.ckpt")

    def _prune(self) -> None:
        """Remove what is older than the newest few, and what interrupted saves have left."""
        old = self.steps()[self.keep :] if self.keep is not None else []
        for path in [self._path(step) for step in old] + self._leftovers():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _leftovers(self) -> list[str]:
        found = []
        for entry in os.scandir(self.folder):
            with contextlib.suppress(FileNotFoundError):
                if _LEFTOVER.fullmatch(entry.name) and time.time() - entry.stat().st_mtime > _STALE_S:
                    found.append(entry.path)
        return found

    def steps(self) -> list[int]:
        """The steps of which there is a file here, the newest first, whether or not it is whole."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        return sorted((int(match[1]) for name in names if (match := _NAME.fullmatch(name))), reverse=True)

    # --- going on -----------------------------------------------------------------------------------------------------

    def resume(self, **objects: Any) -> Resumed | None:
        """Load the newest checkpoint that is whole into objects with ``load_state_dict``; None when there is none.

        A damaged one is passed over with a warning. Every rank loads the same one.

        Args:
            objects: What to load into, by the names they were saved under.

        Raises:
            SerializationError: When an object's name is not in the checkpoint, or when each rank's own part is asked
                for and the number of ranks is another than at the time of saving.
        """
        group = self._group
        first = group.ranks[0]
        step, data, whole = self._newest() if group.rank() == 0 else (None, b"", None)
        step, length = broadcast_object((step, len(data)), first, group)
        if step is None:
            return None
        received = np.frombuffer(data, np.uint8) if whole is not None else np.empty(length, np.uint8)
        group.broadcast(received, first, tag=f"checkpoint of step {step}")
        return self._load(load(io.BytesIO(received.data)) if whole is None else whole, objects)

    def _newest(self) -> tuple[int | None, bytes | bytearray, Any]:
        """The newest step whose file is whole, its bytes, and what they hold."""
        for step in self.steps():
            try:
                with open(self._path(step), "rb") as file:
                    data = bytearray(file.read())
                found = load(io.BytesIO(data))
                if not (isinstance(found, dict) and {"step", "kinds", "state", "ranks"} <= found.keys()):
                    raise SerializationError("it is not a checkpoint")
                return step, data, found
            except (SerializationError, OSError) as error:
                warnings.warn(f"passing over the checkpoint {self._path(step)}: {error}", stacklevel=3)
        return None, b"", None

    def _load(self, whole: dict[str, Any], objects: dict[str, Any]) -> Resumed:
        parts, kinds = whole["ranks"], whole["kinds"]
        same = len(parts) == self._group.size()
        part = parts[self._group.rank()] if same else {"own": {}, "random": None}
        states = {**whole["state"], **part["own"]}
        for name in objects:
            if name in states and kinds[name]:
                continue
            if name in kinds and not same and name not in whole["state"]:
                raise SerializationError(
                    f"{name!r} was saved by each of {len(parts)} ranks for itself, and cannot be loaded by "
                    f"{self._group.size()}"
                )
            have = ", ".join(sorted(n for n, has_state in kinds.items() if has_state)) or "none"
            raise SerializationError(f"the checkpoint of step {whole['step']} has no object {name!r}; it has {have}")
        for name, target in objects.items():
            target.load_state_dict(states[name])
        if self.random_state and part["random"] is not None:
            _set_random_state(part["random"])
        return Resumed(whole["step"], {n: v for n, v in states.items() if not kinds[n]})


def _has_state(value: Any) -> bool:
    return hasattr(value, "state_dict") and not isinstance(value, TensorBase)


def _problem(states: dict[str, Any]) -> str | None:
    """Which of some states cannot be saved, and why."""
    for name, value in states.items():
        try:
            save(value, io.BytesIO(), plain_only=True)
        except SerializationError as error:
            return f"{name}: {error}"
    return None


def _random_state() -> dict[str, Any]:
    """This rank's random streams, as plain values."""
    kind, keys, place, has_gauss, gauss = np.random.get_state(legacy=True)
    return {
        "ddpflow": default_generator().get_state(),
        "numpy": [str(kind), np.asarray(keys), int(place), int(has_gauss), float(gauss)],
        "python": random.getstate(),
    }


def _set_random_state(state: dict[str, Any]) -> None:
    default_generator().set_state(state["ddpflow"])
    np.random.set_state(tuple(state["numpy"]))
    random.setstate(state["python"])
