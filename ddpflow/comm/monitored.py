"""A barrier through the store, which tells exactly who is missing, whatever the transport."""

import time
from datetime import timedelta

from ddpflow.comm.backend import rank_list
from ddpflow.comm.group import ProcessGroup
from ddpflow.comm.store import PrefixStore
from ddpflow.comm.work import seconds
from ddpflow.comm.world import NonMember, resolve
from ddpflow.errors import CollectiveTimeout

__all__ = ["monitored_barrier"]


def monitored_barrier(
    group: ProcessGroup | NonMember | None = None,
    timeout: float | timedelta | None = None,
    wait_all_ranks: bool = True,
) -> None:
    """Returns once every rank of the group has called it; otherwise every waiting rank names *all* missing ones.

    Arrivals are recorded in the store, so a rank that gave up still counts as arrived. The group stays usable: ranks
    may try again.

    Args:
        group: The group; the current one for None.
        timeout: Deadline in seconds or as a timedelta; the group's for None.
        wait_all_ranks: Accepted for PyTorch's sake; all missing ranks are named in any case.

    Raises:
        CollectiveTimeout: Ranks did not come in time.
    """
    pg = resolve(group, "monitored_barrier")
    if pg is None or pg.size() == 1:
        return
    limit = seconds(timeout, pg.timeout_s)
    number = pg.next_monitored()
    store = PrefixStore(f"monitored/{number}", pg.spec.store)
    store.set(f"here/{pg.rank()}", b"1")
    keys = [f"here/{r}" for r in range(pg.size())]
    deadline = time.monotonic() + limit
    try:
        store.wait(keys, limit)
    except CollectiveTimeout:
        missing = [pg.ranks[r] for r, key in enumerate(keys) if not store.check([key])]
        if not missing and time.monotonic() < deadline + 1.0:
            return
        raise CollectiveTimeout(
            f"rank {pg.spec.rank}: monitored_barrier (call {number}) of group {pg.name}: {rank_list(missing)} "
            f"did not arrive in {limit:g} s"
        ) from None
