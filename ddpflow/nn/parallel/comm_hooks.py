"""What is done with a full bucket: functions ``(group, bucket) -> Work`` that leave the result in ``bucket.flat``."""

from typing import Any

from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.work import Work

__all__ = ["average", "total"]


def average(group: Any, bucket: Any) -> Work:
    """All-reduce with the mean over the group: the default."""
    work: Work = group.all_reduce(bucket.flat, ReduceOp.AVG, async_op=True, tag=bucket.tag)
    return work


def total(group: Any, bucket: Any) -> Work:
    """All-reduce with the sum over the group."""
    work: Work = group.all_reduce(bucket.flat, ReduceOp.SUM, async_op=True, tag=bucket.tag)
    return work
