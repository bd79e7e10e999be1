"""The shared-memory transport: the conformance checks, and what is its own."""

from typing import ClassVar

from tests.comm.conformance import Conformance


class TestShm(Conformance):
    """Ranks that are processes of one host."""

    backend: ClassVar[str] = "shm"
