"""A transport that fills in nothing but what Backend demands, so that the derived operations are tested."""

from typing import ClassVar

from ddpflow.comm.backend import Backend
from ddpflow.comm.backends.thread import ThreadBackend


class PlainBackend(ThreadBackend):
    """Threads, with every derived operation as Backend has it."""

    name: ClassVar[str] = "plain"
    reduce = Backend.reduce
    gather = Backend.gather
    scatter = Backend.scatter
    all_to_all = Backend.all_to_all
    empty = Backend.empty
