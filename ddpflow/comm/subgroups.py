"""Sub-groups: made by all ranks together, with proof that they mean the same ranks."""

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from ddpflow.comm.group import ProcessGroup
from ddpflow.comm.registry import parse_backend
from ddpflow.comm.rendezvous import agree
from ddpflow.comm.store import PrefixStore
from ddpflow.comm.work import seconds
from ddpflow.comm.world import NonMember, World, make_group, required_world
from ddpflow.errors import ConfigError, ValueRangeError

__all__ = ["new_group", "new_subgroups", "new_subgroups_by_enumeration", "split"]


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: float | timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> ProcessGroup | NonMember:
    """Makes a group of some ranks; all ranks of the world call it, in the same order, with the same list.

    Args:
        ranks: Global ranks in any order (the group sorts them); None for all.
        timeout: Deadline of the group's operations; the default group's for None.
        backend: Transport; the default group's for None.
        pg_options: Accepted for PyTorch's sake; must be None.
        use_local_synchronization: Only the members call it; for groups of survivors.
        group_desc: Name of the group in error messages.
        device_id: Accepted for PyTorch's sake.
        sort_ranks: Must be True: groups are in order of global ranks.

    Returns:
        The group, or a ``NonMember`` on ranks outside it.

    Raises:
        ValueRangeError: The list has duplicates, unknown ranks, or none.
        MismatchError: The ranks gave different lists; both are shown.
        CollectiveTimeout: Ranks did not call it; they are named.
    """
    world = required_world()
    size = world.context.world_size
    members = tuple(range(size)) if ranks is None else tuple(sorted(ranks))
    if not members:
        raise ValueRangeError("new_group needs at least one rank")
    if len(set(members)) != len(members):
        raise ValueRangeError(f"new_group got a rank more than once: {sorted(ranks or ())}")
    if members[0] < 0 or members[-1] >= size:
        raise ValueRangeError(f"new_group got ranks {list(members)}, but the world has ranks 0 to {size - 1}")
    if pg_options is not None or not sort_ranks:
        raise ConfigError("pg_options and sort_ranks=False are not supported; leave them out")
    chosen = world.backends if backend is None else parse_backend(backend)
    timeout_s = seconds(timeout, world.timeout_s)
    listed = ",".join(map(str, members))
    count = world.calls[listed] = world.calls.get(listed, 0) + 1
    name = group_desc or (f"[{listed}]" if count == 1 else f"[{listed}]#{count}")
    text = f"{list(members)}" + (f" with backend {backend!r}" if backend else "")
    run_dir = world.watch.run_dir
    unique = f"{listed}/{count}"
    unique = unique if group_desc is None else f"{group_desc} [{unique}]"
    if use_local_synchronization:
        if world.rank not in members:
            return NonMember(name, members)
        part = PrefixStore(f"members/{listed}/{count}", world.store)
        with _only_members_matter(world, members):
            agree(part, world.rank, members, text, f"new_group({list(members)})", timeout_s, "", run_dir)
            group = make_group(world, unique, members, chosen, timeout_s)
    else:
        world.n_new_groups += 1
        part = PrefixStore(f"new_group/{world.n_new_groups}", world.store)
        agree(part, world.rank, range(size), text, f"new_group (call {world.n_new_groups})", timeout_s, "", run_dir)
        if world.rank not in members:
            return NonMember(name, members)
        group = make_group(world, unique, members, chosen, timeout_s)
    world.groups.append(group)
    return group


@contextlib.contextmanager
def _only_members_matter(world: World, members: Sequence[int]) -> Iterator[None]:
    """Lets waits on the store go on although a rank outside the group has failed: survivors meet this way."""
    root = world.root_store
    before = root.on_idle
    if before is not None:
        root.on_idle = world.watch.for_ranks(members).check
    try:
        yield
    finally:
        root.on_idle = before


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: float | timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup | NonMember, list[ProcessGroup | NonMember]]:
    """Makes disjoint groups from lists of ranks.

    Returns:
        The group that this rank is in, and all groups.

    Raises:
        ValueRangeError: A rank is in two lists.
    """
    flat = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    if len(set(flat)) != len(flat) or not flat:
        raise ValueRangeError(f"every rank may be in one subgroup only, at least one: {ranks_per_subgroup_list}")
    groups = [
        new_group(ranks, timeout, backend, pg_options, group_desc=group_desc) for ranks in ranks_per_subgroup_list
    ]
    own = next((group for group in groups if isinstance(group, ProcessGroup)), groups[0])
    return own, groups


def new_subgroups(
    group_size: int | None = None,
    group: ProcessGroup | NonMember | None = None,
    timeout: float | timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup | NonMember, list[ProcessGroup | NonMember]]:
    """Cuts the world, or a group of it, into groups of ``group_size`` consecutive ranks (default: the ranks of a host).

    All ranks of the world call it, those outside ``group`` too.

    Raises:
        ValueRangeError: The number of ranks is not a multiple of it.
    """
    context = required_world().context
    ranks = range(context.world_size) if group is None else group.ranks
    n = group_size or context.local_world_size
    if n < 1 or len(ranks) % n:
        raise ValueRangeError(f"{len(ranks)} ranks cannot be cut into groups of {n}")
    lists = [ranks[start : start + n] for start in range(0, len(ranks), n)]
    return new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)


def split(
    color: int, key: int = 0, timeout: float | timedelta | None = None, backend: str | None = None
) -> ProcessGroup | None:
    """Cuts the world into one group per ``color``, as MPI's split does; all ranks call it.

    Args:
        color: Ranks that give the same number share a group; a negative one joins none.
        key: Accepted for MPI's sake; groups are always in order of global ranks, so it must not contradict that.
        timeout: Deadline of the group's operations.
        backend: Transport.

    Raises:
        ValueRangeError: The keys ask for another order than that of the ranks.
    """
    world = required_world()
    world.n_new_groups += 1
    part = PrefixStore(f"split/{world.n_new_groups}", world.store)
    size = world.context.world_size
    part.set(f"color/{world.rank}", f"{int(color)} {int(key)}")
    agree(
        part,
        world.rank,
        range(size),
        "split",
        f"split (call {world.n_new_groups})",
        world.timeout_s,
        "",
        world.watch.run_dir,
    )
    given = [tuple(map(int, part.get(f"color/{r}").split())) for r in range(size)]
    for wanted in {c for c, _ in given}:
        keys = [k for c, k in given if c == wanted]
        if wanted >= 0 and keys != sorted(keys):
            raise ValueRangeError(f"split: the keys of color {wanted} ask for another order than the ranks'")
    if color < 0:
        return None
    members = [r for r in range(size) if given[r][0] == color]
    group = new_group(members, timeout, backend, use_local_synchronization=True)
    assert isinstance(group, ProcessGroup)
    return group
