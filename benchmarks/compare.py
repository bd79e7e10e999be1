"""Measures ddpflow beside PyTorch, in turn (A B A B ...), and prints the ratios next to what the project promises.

    python benchmarks/compare.py                               PyTorch in an environment of its own, made in .venv-peer
    python benchmarks/compare.py --peer-python PATH            an interpreter that already has PyTorch
    python benchmarks/compare.py --only train --rounds 7 --json figures.json

Every rank has one thread, on both sides. A figure is the median of a run, a ratio is ddpflow's figure over the other's
of the same round, and the table shows the median of the rounds' ratios with their range: machines are shared and drift,
so only figures taken side by side say anything. All-reduces also show their 99th percentile. With mpi4py and an mpiexec
installed beside this interpreter, all-reduce is also compared with MPI.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import budgets

HERE = Path(__file__).resolve().parent
PEER = HERE.parent / ".venv-peer"
TORCH = "torch==2.13.0"
KINDS = ("train", "all_reduce", "op", "optim", "memory", "startup")
MODELS = ("mlp", "deep", "gpt", "cnn")


@dataclass(frozen=True)
class Run:
    """One program to run on each side, in a world of that many processes."""

    program: str
    world: int
    options: tuple[str, ...] = ()
    # A program that launches its own ranks is started as it is.
    launches: bool = False


# A JSON line as a program printed it, and the lines of one side by name and number of ranks.
Figure = dict[str, float]
Figures = dict[tuple[str, int], Figure]


@dataclass(frozen=True)
class Row:
    """One line of the table: medians of both sides, the rounds' ratios, and the largest ratio that was promised.

    Figures are milliseconds, or MB where the name begins with "memory".
    """

    name: str
    world: int
    beside: str
    ours: float
    ours_p99: float
    its: float
    its_p99: float
    ratio: float
    low: float
    high: float
    rounds: int
    budget: float | None


def plan(kinds: list[str], worlds: list[int], seconds: float) -> Iterator[Run]:
    """Yields the runs of one round."""
    limit = ("--seconds", str(seconds))
    for world in worlds:
        if "train" in kinds:
            for model in MODELS:
                yield Run("train_step.py", world, ("--only", model, *limit))
        if "all_reduce" in kinds and world > 1:
            yield Run("all_reduce.py", world, ("--seconds", str(seconds / 4)))
    if "op" in kinds:
        yield Run("op_overhead.py", 1, limit)
    if "optim" in kinds:
        yield Run("optimizer_step.py", 1, limit)
    if "memory" in kinds:
        yield Run("step_memory.py", 1)
    if "startup" in kinds:
        yield Run("startup.py", 2, ("--seconds", "0"), launches=True)


def command(run: Run, side: str, python: str) -> list[str]:
    """Returns the command line of a run on one side."""
    program = [str(HERE / run.program), "--lib", side, *run.options]
    if run.launches or run.world == 1:
        return [python, *program]
    if side == "mpi":
        return [str(mpiexec()), "-n", str(run.world), python, *program]
    launcher = {"ddpflow": ["ddpflow.launch"], "torch": ["torch.distributed.run", "--standalone"]}[side]
    return [python, "-m", launcher[0], *launcher[1:], "--nproc-per-node", str(run.world), *program]


def measure(run: Run, side: str, python: str) -> Figures:
    """Runs one side once and returns its figures by name and number of ranks."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = {**os.environ, **threads}
    result = subprocess.run(
        command(run, side, python), env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    figures = {}
    for line in result.stdout.splitlines():
        if (start := line.find('{"side"')) >= 0:  # a launcher may put the rank before the line
            figure = json.loads(line[start:])
            figures[figure["name"], figure["world"]] = figure
    if result.returncode or not figures:
        last = "\n".join((result.stdout + result.stderr).splitlines()[-15:])
        print(f"{side}: {run} failed ({result.returncode}):\n{last}", file=sys.stderr)
    return figures


def mpiexec() -> Path | None:
    """Returns the mpiexec that is installed beside this interpreter, if there is one."""
    path = Path(sysconfig.get_path("scripts")) / "mpiexec"
    return path if path.exists() else None


def peer_python() -> str:
    """Returns an interpreter with PyTorch, in an environment of its own that is made the first time."""
    python = PEER / "bin" / "python"
    has_torch = [str(python), "-c", "import torch, numpy"]
    if not python.exists() or subprocess.run(has_torch, check=False, capture_output=True).returncode:
        print(f"installing {TORCH} into {PEER}", file=sys.stderr)
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", TORCH, "numpy"], check=True)
    return str(python)


def table(rounds: list[dict[str, Figures]]) -> list[Row]:
    """Pairs the rounds' figures, ours with each peer's and with those of our own that a budget names."""
    rows = []
    peers = sorted({side for figures in rounds for side in figures} - {"ddpflow"}, reverse=True)
    for name, world in dict.fromkeys(key for figures in rounds for key in figures["ddpflow"]):
        for peer in (*peers, "ddpflow"):
            budget = budgets.find((name, world), peer)
            if peer == "ddpflow" and budget.beside == (name, world):
                continue
            pairs = [
                (figures["ddpflow"][name, world], figures[peer][budget.beside])
                for figures in rounds
                if (name, world) in figures["ddpflow"] and budget.beside in figures.get(peer, {})
            ]
            if pairs:
                beside = budget.beside[0] if peer == "ddpflow" else peer
                rows.append(sum_up(name, world, beside, pairs, budget.ratio))
    return rows


def sum_up(name: str, world: int, beside: str, pairs: list[tuple[Figure, Figure]], budget: float | None) -> Row:
    """Makes a row of the rounds' (ours, other) figures."""
    value, high = ("mb", "mb") if name.startswith("memory") else ("median_ms", "p99_ms")
    ratios = sorted(ours[value] / other[value] for ours, other in pairs)

    def median(side: int, field: str) -> float:
        return statistics.median(pair[side][field] for pair in pairs)

    return Row(
        name=name,
        world=world,
        beside=beside,
        ours=median(0, value),
        ours_p99=median(0, high),
        its=median(1, value),
        its_p99=median(1, high),
        ratio=statistics.median(ratios),
        low=ratios[0],
        high=ratios[-1],
        rounds=len(ratios),
        budget=budget,
    )


def show(rows: list[Row]) -> None:
    """Prints the rows as a Markdown table."""
    print("| figure | ranks | ddpflow, ms or MB | beside | its | ratio (range of the rounds) | budget | |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        ours, other = f"{row.ours:.4g}", f"{row.its:.4g}"
        if row.name.startswith("all_reduce"):
            ours, other = f"{ours} (p99 {row.ours_p99:.3g})", f"{other} (p99 {row.its_p99:.3g})"
        spread = f"{row.ratio:.2f} ({row.low:.2f}-{row.high:.2f})"
        limit = "" if row.budget is None else f"{row.budget:.2f}"
        verdict = "" if row.budget is None else "within" if row.ratio <= row.budget else "**over**"
        print(f"| {row.name} | {row.world} | {ours} | {row.beside} | {other} | {spread} | {limit} | {verdict} |")


def main() -> None:
    """Runs the rounds and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--peer-python", help="an interpreter that has PyTorch; by default .venv-peer, made when missing"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each figure")
    parser.add_argument("--worlds", default="1,2", help="numbers of ranks, separated by commas")
    parser.add_argument("--only", default=",".join(KINDS), help=f"kinds, separated by commas: {', '.join(KINDS)}")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    arguments = parser.parse_args()
    kinds = arguments.only.split(",")
    if unknown := sorted(set(kinds) - set(KINDS)):
        parser.error(f"--only: {', '.join(unknown)} is none of {', '.join(KINDS)}")
    pythons = {"ddpflow": sys.executable, "torch": arguments.peer_python or peer_python()}
    runs = list(plan(kinds, [int(world) for world in arguments.worlds.split(",")], arguments.seconds))
    rounds = []
    for number in range(arguments.rounds):
        figures: dict[str, Figures] = defaultdict(dict)
        for run in runs:
            print(f"round {number + 1} of {arguments.rounds}: {run.program} {' '.join(run.options)}", file=sys.stderr)
            for side, python in pythons.items():
                figures[side].update(measure(run, side, python))
            if run.program == "all_reduce.py" and mpiexec():
                figures["mpi"].update(measure(run, "mpi", sys.executable))
        rounds.append(figures)
    rows = table(rounds)
    show(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
