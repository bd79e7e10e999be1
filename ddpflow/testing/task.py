"""What a test and its rank processes say to each other."""

from dataclasses import dataclass

__all__ = ["Report", "Task"]


@dataclass
class Task:
    """What a worker shall do.

    Attributes:
        rank: Its rank.
        environ: Launcher variables of the world.
        modules: Names and files of the modules that ``payload`` refers to, for those that cannot be imported by name.
        payload: The pickled function and its arguments.
        backend: Argument of ``init_process_group``.
        timeout_s: Its deadline.
        init: Whether to call it.
    """

    rank: int
    environ: dict[str, str]
    modules: list[tuple[str, str]]
    payload: bytes
    backend: str
    timeout_s: float
    init: bool


@dataclass
class Report:
    """How a task ended: pickled value or exception, and the traceback as text."""

    value: bytes | None = None
    error: bytes | None = None
    error_text: str = ""
