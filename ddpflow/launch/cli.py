"""The program ddprun."""

import os
import sys
from collections.abc import Sequence

from ddpflow.errors import ConfigError, LaunchError
from ddpflow.launch.helptext import HELP
from ddpflow.launch.nodes import place_host, read_token
from ddpflow.launch.options import Options, parse
from ddpflow.launch.status import show_stacks, show_status
from ddpflow.launch.supervisor import Supervisor
from ddpflow.launch.target import check_target

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ddprun.

    Args:
        argv: Arguments without the program's name; by default those of this process.

    Returns:
        The exit code: 0 where every rank ended with 0, 2 where nothing was started, else the root cause's.
    """
    _open_standard_streams()
    try:
        return _run(parse(sys.argv[1:] if argv is None else argv))
    except (ConfigError, LaunchError) as error:
        print(f"ddprun: {error}", file=sys.stderr)
        return 2


def _open_standard_streams() -> None:
    """Makes sure that descriptors 0 to 2 are open: the pipes of a rank must not get their numbers."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


def _run(options: Options) -> int:
    if options.action == "help":
        print(HELP, end="")
        return 0
    if options.action == "status":
        print(show_status(options.target, os.environ), end="")
        return 0
    if options.action == "stacks":
        return show_stacks(options.target, os.environ, lambda text: print(text, end=""))
    check_target(options.kind, options.target)
    options = place_host(options, os.environ)
    token = read_token(options, os.environ) if options.nnodes > 1 else None
    return Supervisor(options, os.environ, token).run()
