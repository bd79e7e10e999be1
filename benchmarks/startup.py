"""Times what a user waits for before anything happens: importing the library, and launching two ranks.

    python benchmarks/startup.py --lib ddpflow
    python benchmarks/startup.py --lib torch

Prints startup/numpy (`import numpy`), startup/import (`import` of the library) and startup/launch (two ranks started by
the library's own launcher, one all-reduce, exit), each the time of a whole process. Every round runs the three in turn.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from library import add_arguments, load, say

LAUNCHERS = {"ddpflow": "ddpflow.launch", "torch": "torch.distributed.run"}


def one_rank(name: str) -> None:
    """Joins the world, adds up the ranks and leaves; what each launched process does."""
    lib = load(name)
    lib.start()
    total = lib.torch.tensor(float(lib.rank))
    lib.dist.all_reduce(total)
    if total.item() != sum(range(lib.world)):
        raise SystemExit(f"all_reduce gave {total.item()}")
    lib.finish()


def seconds_of(command: list[str]) -> float:
    """Returns how long a command takes; it must succeed. Byte code is kept, as it is for installed packages."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, timeout=120, env=environment)
    return time.perf_counter() - before


def main() -> None:
    """Times the three in turn until the time is up, at least five times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        one_rank(arguments.lib)
        return
    python = sys.executable
    launcher = [python, "-m", LAUNCHERS[arguments.lib], "--nproc-per-node", "2"]
    if arguments.lib == "torch":
        launcher.append("--standalone")  # a free port; ddprun always takes one
    commands = {
        "startup/numpy": [python, "-c", "import numpy"],
        "startup/import": [python, "-c", f"import {arguments.lib}"],
        "startup/launch": [*launcher, str(Path(__file__).resolve()), "--lib", arguments.lib, "--rank"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        seconds_of(command)  # the first time fills the file cache and writes byte code
    start = time.perf_counter()
    while len(times["startup/launch"]) < 5 or time.perf_counter() - start < arguments.seconds:
        for name, command in commands.items():
            times[name].append(seconds_of(command))
    for name, values in times.items():
        say(arguments.lib, name, 2 if name == "startup/launch" else 1, sorted(values))


if __name__ == "__main__":
    main()
