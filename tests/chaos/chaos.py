"""Kills ranks at random places of a training, again and again, and checks how each job ends.

    make chaos                                      a minute of it, after 200 faults of tests/comm/test_chaos.py
    python tests/chaos/chaos.py --seconds 600 --seed 7

Each job must end by itself within the limit, with the exit code of the rank that failed and with its name in the
output, and must leave neither a process nor a file in /dev/shm or in the temporary folder. The first job that does not
is printed with the command that repeats it, and ends the run with exit code 1.
"""

import argparse
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from worker import KINDS, POINTS, STEPS

WORKER = Path(__file__).with_name("worker.py")
LIMIT_S = 20
SHARED_MEMORY = Path("/dev/shm")
MARK = "DDPFLOW_CHAOS_JOB"
EXIT_CODES = {"raise": 1, "sys.exit": 7, "os._exit": 9, "kill": 137}


def draw(generator: random.Random) -> tuple[list[str], dict[str, str]]:
    """Returns a random job: the command's options, and what was chosen."""
    ranks = generator.randint(1, 4)
    fault = {
        "kind": generator.choice(KINDS),
        "victim": str(generator.randrange(ranks)),
        "point": generator.choice(POINTS),
        "step": str(generator.randrange(STEPS)),
    }
    options = [text for name, value in fault.items() for text in (f"--{name}", value)]
    return ["--nproc-per-node", str(ranks), str(WORKER), *options], fault


def problems_of(options: list[str], fault: dict[str, str]) -> list[str]:
    """Runs one job and returns what was wrong with its end; nothing if all was well."""
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory() as folder:
        files_before = set(SHARED_MEMORY.glob("ddpflow*"))
        environment = {**os.environ, MARK: mark, "TMPDIR": folder}
        command = [sys.executable, "-m", "ddpflow.launch", *options]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            output, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            output, _ = process.communicate()
            return [f"did not end within {LIMIT_S} s", output]
        problems = []
        if process.returncode != EXIT_CODES[fault["kind"]]:
            problems.append(f"exit code {process.returncode}, not {EXIT_CODES[fault['kind']]}")
        if f"rank {fault['victim']}" not in output:
            problems.append(f"the output does not name rank {fault['victim']}")
        if fault["kind"] == "raise" and "ChaosError: told to fail" not in output:
            problems.append("the output does not have the exception")
        if left := processes(mark):
            problems.append(f"processes left: {left}")
        if left := sorted(set(SHARED_MEMORY.glob("ddpflow*")) - files_before):
            problems.append(f"shared memory left: {left}")
        # The launcher keeps one folder for each user; what it makes in there for a run must be gone.
        if left := sorted(path for path in Path(folder).rglob("*") if path.name != f"ddprun-{os.getuid()}"):
            problems.append(f"temporary files left: {left}")
        return [*problems, output] if problems else []


def processes(mark: str) -> list[int]:
    """Returns the processes that inherited this job's mark; those that are just ending get a moment for it."""
    wanted = f"{MARK}={mark}".encode()
    deadline = time.monotonic() + 2
    while True:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:  # another user's process, or one that has just ended
                continue
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def main() -> None:
    """Runs random jobs until the time is up or one ends badly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--seed", type=int, default=None, help="repeats a run; by default a new one is drawn and printed"
    )
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    generator = random.Random(seed)
    start, jobs, slowest = time.monotonic(), 0, 0.0
    while time.monotonic() - start < arguments.seconds:
        options, fault = draw(generator)
        before = time.monotonic()
        problems = problems_of(options, fault)
        slowest = max(slowest, time.monotonic() - before)
        jobs += 1
        if problems:
            print(f"job {jobs} of seed {seed}: ddprun {shlex.join(options)}", *problems, sep="\n")
            raise SystemExit(1)
    print(f"{jobs} jobs failed as they were told to and ended cleanly, the slowest in {slowest:.1f} s")


if __name__ == "__main__":
    main()
