"""Measures ddpflow beside PyTorch, in turn (A B A B ...), and prints the ratios next to what the project promises.

    python benchmarks/compare.py                               PyTorch in an environment of its own, made in .venv-peer
    python benchmarks/compare.py --peer-python PATH            an interpreter that already has PyTorch
    python benchmarks/compare.py --only train --rounds 7 --json figures.json

Every rank has one thread, on both sides. A figure is the median of a run, a ratio is ddpflow's figure over the other's of the
same round, and the table shows the median of the rounds' ratios with their range: machines are shared and drift, so only figures
taken side by side say anything. With mpi4py and an mpiexec installed beside this interpreter, all-reduce is also
compared with MPI.
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
from dataclasses import dataclass
from pathlib import Path

import budgets

HERE = Path(__file__).resolve().parent
PEER = HERE.parent / ".venv-peer"
TORCH = "torch==2.13.0"
KINDS = ("train", "all_reduce", "op", "startup")
MODELS = ("mlp", "deep", "gpt", "cnn")


@dataclass(frozen=True)
class Run:
    """One program to run on each side, in a world of that many processes."""

    program: str
    world: int
    options: tuple[str, ...] = ()
    # A program that launches its own ranks is started as it is.
    launches: bool = False


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


def measure(run: Run, side: str, python: str) -> dict[tuple[str, int], dict[str, float]]:
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
        print(f"{side}: {run} failed ({result.returncode}):\n{result.stdout}{result.stderr}", file=sys.stderr)
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


def table(rounds: list[dict[str, dict[tuple[str, int], dict[str, float]]]]) -> list[dict[str, object]]:
    """Turns the rounds' figures into rows: name, ranks, the other side, both medians, the ratio, its range, the budget."""
    rows: list[dict[str, object]] = []
    peers = sorted({side for figures in rounds for side in figures if side != "ddpflow"}, reverse=True)
    keys = list(dict.fromkeys(key for figures in rounds for key in figures["ddpflow"]))
    for key in keys:
        for peer in (*peers, "ddpflow"):
            budget = budgets.find(key, peer)
            pairs = []
            for figures in rounds:
                ours, other = figures["ddpflow"].get(key), figures.get(peer, {}).get(budget.beside)
                if ours and other and (peer != "ddpflow" or budget.beside != key):
                    pairs.append((ours["median_ms"], other["median_ms"]))
            if not pairs:
                continue
            ratios = sorted(ours / other for ours, other in pairs)
            rows.append(
                {
                    "name": key[0],
                    "world": key[1],
                    "beside": budget.beside[0] if peer == "ddpflow" else peer,
                    "ours_ms": statistics.median(ours for ours, _ in pairs),
                    "beside_ms": statistics.median(other for _, other in pairs),
                    "ratio": statistics.median(ratios),
                    "low": ratios[0],
                    "high": ratios[-1],
                    "rounds": len(ratios),
                    "budget": budget.ratio,
                }
            )
    return rows


def show(rows: list[dict[str, object]]) -> None:
    """Prints the rows as a Markdown table."""
    print("| figure | ranks | ddpflow, ms | beside | its ms | ratio (range of the rounds) | budget | |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        budget = row["budget"]
        verdict = "" if budget is None else "within" if row["ratio"] <= budget else "**over**"
        print(
            f"| {row['name']} | {row['world']} | {row['ours_ms']:.4g} | {row['beside']} | {row['beside_ms']:.4g} "
            f"| {row['ratio']:.2f} ({row['low']:.2f}-{row['high']:.2f}) | {'' if budget is None else budget} | {verdict} |"
        )


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
        figures: dict[str, dict[tuple[str, int], dict[str, float]]] = defaultdict(dict)
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
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
