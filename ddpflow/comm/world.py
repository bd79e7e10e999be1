"""The state behind the default group: which world this process or thread is in, and the current group of a thread."""

import contextlib
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ddpflow.comm.backend import Backend, GroupSpec
from ddpflow.comm.env import CommSettings, ProcessContext
from ddpflow.comm.failure import FailureWatch
from ddpflow.comm.group import ProcessGroup
from ddpflow.comm.progress import Progress
from ddpflow.comm.registry import load_backend
from ddpflow.comm.store import HashStore, PrefixStore, Store
from ddpflow.errors import CommError, ValueRangeError

__all__ = [
    "NonMember",
    "World",
    "current_group",
    "forget_world",
    "get_backend",
    "get_global_rank",
    "get_group_rank",
    "get_local_rank",
    "get_node_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group_scope",
    "install_world",
    "installed_world",
    "is_initialized",
    "main_backend",
    "make_group",
    "process_context",
    "required_world",
    "resolve",
]


class NonMember:
    """What ``new_group`` returns on ranks outside the group: rank -1, and collectives on it warn and do nothing."""

    def __init__(self, name: str, ranks: tuple[int, ...]) -> None:
        self.name, self.ranks = name, ranks

    def rank(self) -> int:
        """Returns -1."""
        return -1

    def size(self) -> int:
        """Returns -1."""
        return -1

    def __eq__(self, other: object) -> bool:
        # As PyTorch's GroupMember.NON_GROUP_MEMBER, which is the same for all groups.
        return isinstance(other, NonMember)

    def __hash__(self) -> int:
        return hash(NonMember)

    def __repr__(self) -> str:
        return f"NonMember({self.name!r}, ranks {list(self.ranks)})"


@dataclass
class World:
    """Everything of one init_process_group."""

    context: ProcessContext
    settings: CommSettings
    store: Store
    root_store: Store
    owns_store: bool
    watch: FailureWatch
    backends: dict[str, str]
    timeout_s: float
    progress: Progress
    group: ProcessGroup | None = None
    groups: list[ProcessGroup] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)  # how often each list of ranks was made a group
    n_new_groups: int = 0

    @property
    def rank(self) -> int:
        """Own global rank."""
        return self.context.rank


class _ThreadState(threading.local):
    """What each thread has of its own; class attributes, because an attribute that is missing takes long to look up."""

    world: World | None = None  # of a rank that is a thread; otherwise the process has one
    scopes: tuple[ProcessGroup, ...] = ()  # the groups of the ``group_scope`` blocks, the innermost last


_thread = _ThreadState()
_process_world: World | None = None
_fork_guarded = False
_solo: ProcessGroup | None = None


def installed_world() -> World | None:
    """Returns the world of this thread or process, or None."""
    return _thread.world or _process_world


def required_world() -> World:
    """Returns the world, or raises CommError where there is none."""
    world = installed_world()
    if world is None:
        raise CommError("init_process_group has not been called in this process")
    return world


def install_world(world: World, in_thread: bool) -> None:
    """Makes ``world`` the world of this process, or of this thread."""
    global _process_world, _fork_guarded
    if in_thread:
        _thread.world = world
        return
    _process_world = world
    if not _fork_guarded:
        _fork_guarded = True
        os.register_at_fork(after_in_child=_disown_world)


def _disown_world() -> None:
    """In a forked child: it is no rank, and must not touch its parent's transports."""
    if _process_world is not None:
        for group in _process_world.groups:
            group.disown()
        forget_world(_process_world)


def forget_world(world: World) -> None:
    """Undoes ``install_world``."""
    global _process_world
    if _thread.world is world:
        _thread.world = None
    elif _process_world is world:
        _process_world = None


def main_backend(backends: Mapping[str, str]) -> type[Backend]:
    """Returns the transport class of CPU arrays, or of the only device."""
    return load_backend(backends.get("cpu") or next(iter(backends.values())))


def make_group(
    world: World, name: str, ranks: tuple[int, ...], backends: Mapping[str, str], timeout_s: float
) -> ProcessGroup:
    """Makes the group ``ranks`` with its main transport; all of them call it at the same time."""
    chosen = main_backend(backends)
    if len(ranks) == 1 and world.context.world_size > 1 and chosen.name in ("shm", "thread"):
        chosen = load_backend("solo")
    spec = GroupSpec(
        name=name,
        ranks=ranks,
        group_rank=ranks.index(world.rank),
        store=PrefixStore(f"group/{name}", world.store),
        context=world.context,
        watch=world.watch if len(ranks) == world.context.world_size else world.watch.for_ranks(ranks),
        timeout_s=timeout_s,
        stall_warning_s=world.settings.stall_warning_s,
        progress=world.progress if len(ranks) == world.context.world_size else Progress(None, world.rank),
    )
    others = {device: used for device, used in backends.items() if device not in chosen.devices}
    return ProcessGroup(spec, chosen.create(spec), others)


def is_initialized() -> bool:
    """Whether ``init_process_group`` has been called (in this thread, where ranks are threads)."""
    return installed_world() is not None


def process_context() -> ProcessContext:
    """Returns this process's place in its job, also before ``init_process_group``."""
    world = installed_world()
    return world.context if world is not None else ProcessContext.from_env()


def current_group() -> ProcessGroup:
    """Returns the group that calls without ``group=`` use: the innermost ``group_scope``'s, else all ranks.

    Without ``init_process_group`` and without a launcher it is a group of this process alone.

    Raises:
        CommError: A launcher has started this process, but ``init_process_group`` was not called.
    """
    global _solo
    scopes = _thread.scopes
    if scopes:
        return scopes[-1]
    world = _thread.world or _process_world
    if world is not None and world.group is not None:
        return world.group
    context = ProcessContext.from_env()
    if context.world_size > 1:
        raise CommError(
            f"this is rank {context.rank} of {context.world_size}, but init_process_group has not been called"
        )
    if _solo is None:
        settings = CommSettings.from_env()
        watch = FailureWatch(0)
        single = ProcessContext()
        spec = GroupSpec("world", (0,), 0, HashStore(), single, watch, settings.timeout_s, settings.stall_warning_s)
        _solo = ProcessGroup(spec, load_backend("solo").create(spec))
    return _solo


@contextlib.contextmanager
def group_scope(group: ProcessGroup) -> Iterator[ProcessGroup]:
    """Makes ``group`` the current group of this thread inside a ``with`` block; blocks nest strictly.

    Raises:
        CommError: Scopes were left in another order than they were entered.
    """
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"group_scope takes a group that this rank is a member of, not {group!r}")
    outer = _thread.scopes
    _thread.scopes = inner = (*outer, group)
    try:
        yield group
    finally:
        current = _thread.scopes
        _thread.scopes = outer if current is inner else current[: len(outer)]
        if current is not inner:
            raise CommError("group scopes were left in another order than they were entered")


def resolve(group: ProcessGroup | NonMember | None, what: str) -> ProcessGroup | None:
    """Returns the group to use, or None, with a warning, on a rank outside it."""
    if group is None:
        return current_group()
    if isinstance(group, NonMember):
        warnings.warn(f"{what}: this rank is not in group {group.name}; nothing was done", stacklevel=3)
        return None
    return group


def get_rank(group: ProcessGroup | NonMember | None = None) -> int:
    """Returns this process's rank: the global one, or its index in ``group``; -1 outside it."""
    if group is not None:
        return group.rank()
    world = installed_world()
    return world.rank if world is not None else current_group().rank()


def get_world_size(group: ProcessGroup | NonMember | None = None) -> int:
    """Returns the number of ranks, of all or of ``group``; -1 outside it."""
    if group is not None:
        return group.size()
    world = installed_world()
    return world.context.world_size if world is not None else current_group().size()


def get_local_rank() -> int:
    """Returns this process's number on its host."""
    return process_context().local_rank


def get_node_rank() -> int:
    """Returns the number of this host."""
    return process_context().node_rank


def get_backend(group: ProcessGroup | None = None) -> str:
    """Returns the name of the transport."""
    return (group or current_group()).backend_name


def get_process_group_ranks(group: ProcessGroup | NonMember | None = None) -> list[int]:
    """Returns the global ranks of a group, sorted."""
    return list((group or current_group()).ranks)


def get_group_rank(group: ProcessGroup | NonMember, global_rank: int) -> int:
    """Returns the index in the group of a global rank.

    Raises:
        ValueRangeError: It is not in the group.
    """
    if global_rank not in group.ranks:
        raise ValueRangeError(f"global rank {global_rank} is not in group {group.name} (ranks {list(group.ranks)})")
    return group.ranks.index(global_rank)


def get_global_rank(group: ProcessGroup | NonMember, group_rank: int) -> int:
    """Returns the global rank of an index in the group.

    Raises:
        ValueRangeError: The group has no such index.
    """
    if not 0 <= group_rank < len(group.ranks):
        raise ValueRangeError(f"group {group.name} has no rank {group_rank}: it has {len(group.ranks)} ranks")
    return group.ranks[group_rank]
