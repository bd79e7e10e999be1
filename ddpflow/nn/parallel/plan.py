"""Which parameters share a gradient bucket: a pure function of their sizes."""

from collections.abc import Hashable, Sequence

from ddpflow.errors import ValueRangeError

__all__ = ["default_cap", "plan_buckets"]


def plan_buckets(
    sizes: Sequence[int], cap: float, first_cap: float | None = None, kinds: Sequence[Hashable] | None = None
) -> list[list[int]]:
    """Share parameters out among buckets: in reverse order of registration, which is nearly the order of backward.

    A bucket is closed before the parameter that would make it larger than the cap; a larger parameter has its own.

    Args:
        sizes: Bytes of each parameter.
        cap: Most bytes in a bucket.
        first_cap: Another cap for the first bucket of each kind, the one that is ready first.
        kinds: For each parameter what must not mix with others in one bucket (dtype, device).

    Returns:
        For each bucket the indices of its parameters, in the order in which the buckets are launched.

    Raises:
        ValueRangeError: When a cap is not positive.

    Example:
        >>> plan_buckets([4, 4, 4, 4], cap=8)
        [[3, 2], [1, 0]]
    """
    for name, value in (("cap", cap), ("first_cap", first_cap)):
        if value is not None and not value > 0:
            raise ValueRangeError(f"the {name} of a gradient bucket must be positive, not {value}")
    plan: list[list[int]] = []
    open_of: dict[Hashable, list[int]] = {}
    filled: dict[Hashable, int] = {}
    closed: dict[Hashable, int] = {}
    for i in reversed(range(len(sizes))):
        kind = None if kinds is None else kinds[i]
        limit = first_cap if first_cap is not None and not closed.get(kind) else cap
        if kind in open_of and filled[kind] + sizes[i] > limit:
            del open_of[kind]
            closed[kind] = closed.get(kind, 0) + 1
        if kind not in open_of:
            open_of[kind] = []
            filled[kind] = 0
            plan.append(open_of[kind])
        open_of[kind].append(i)
        filled[kind] += sizes[i]
    # A bucket is ready when its last parameter is: launch in that order, whatever bucket was opened first.
    return sorted(plan, key=lambda indices: -min(indices))


def default_cap(total: int) -> int:
    """The cap when none is given: equal buckets, few enough that their fixed cost does not count.

    Args:
        total: Bytes of all gradients.
    """
    smallest, most = 1 << 20, 8
    count = max(1, min(most, total // smallest))
    return -(-total // count)
