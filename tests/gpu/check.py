"""Everything that can be proved and measured on this machine's GPUs, in one go: `make gpu-check`.

Runs the tests marked ``gpu``, our kernels under compute-sanitizer, the benchmarks for ddpflow and, where PyTorch with
CUDA is found, for PyTorch beside it, and writes the figures into docs/gpu.md with date and versions. It says what it
could not do, and the exit code is then not 0.

    python tests/gpu/check.py [--peer-python /path/to/python/with/torch] [--dry-run]
"""

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gpu.md"
BEGIN, END = "<!-- figures: written by make gpu-check -->", "<!-- end of figures -->"
TEST_LIMIT_S, BENCHMARK_LIMIT_S, SANITIZER_LIMIT_S = 300, 120, 60
ADDITIONS = ("bus_gb_per_s", "exposed", "formula_ms", "difference")  # what a figure may tell besides its time


def run(command: list[str], limit_s: float, **variables: str) -> tuple[int, str]:
    """Runs a program; returns its exit code and its output."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return 124, f"did not end in {limit_s:g} s"
    return done.returncode, done.stdout + done.stderr


def what_is_missing() -> str | None:
    """Why nothing can be checked here, or None."""
    code, output = run([sys.executable, "-c", "from ddpflow.device import required_cupy; required_cupy()"], 60)
    return None if code == 0 else output.strip().splitlines()[-1].removeprefix("ddpflow.errors.DeviceError: ")


def versions() -> str:
    """The GPU and what runs on it."""
    script = (
        "import cupy, numpy, ddpflow; from ddpflow import cuda; from cupy.cuda import nccl; r = cupy.cuda.runtime; "
        "print(f'{cuda.device_count()} x {cuda.get_device_name()}, driver {r.driverGetVersion()}, CUDA "
        "{r.runtimeGetVersion()}, CuPy {cupy.__version__}, NCCL {nccl.get_version()}, NumPy {numpy.__version__}')"
    )
    code, output = run([sys.executable, "-c", script], 60)
    return output.strip() if code == 0 else f"unknown: {output.strip().splitlines()[-1]}"


def command_for(python: str, lib: str, ranks: int, dtype: str) -> list[str]:
    """How benchmarks/gpu.py is run for a library."""
    program = ["benchmarks/gpu.py", "--lib", lib, "--dtype", dtype]
    launcher = ["ddpflow.launch"] if lib == "ddpflow" else ["torch.distributed.run"]
    return [python, *program] if ranks == 1 else [python, "-m", *launcher, "--nproc-per-node", str(ranks), *program]


def figures(command: list[str]) -> tuple[list[dict[str, Any]], str | None]:
    """Runs a benchmark; returns its figures, and what went wrong or None."""
    code, output = run(command, BENCHMARK_LIMIT_S)
    found = [json.loads(line) for line in output.splitlines() if line.startswith('{"side"')]
    return found, None if code == 0 else f"{' '.join(command)} ended with code {code}: {output.strip()[-300:]}"


def sanitized(tool: str) -> str | None:
    """Runs each of our kernels under a tool of compute-sanitizer; returns what is wrong, or None."""
    if shutil.which("compute-sanitizer") is None:
        return f"compute-sanitizer was not found: the kernels were not run under its {tool}"
    watched = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "1", sys.executable]
    for dtype in ("float32", "bfloat16"):
        code, output = run([*watched, "benchmarks/gpu_kernels.py", "--once", "--dtype", dtype], SANITIZER_LIMIT_S)
        if code:
            return f"compute-sanitizer's {tool} on the kernels for {dtype}: {output.strip()[-300:]}"
    return None


def table(found: list[dict[str, Any]]) -> list[str]:
    """The figures as a Markdown table, one row for each name and world, the libraries beside each other."""
    lines = ["| figure | ranks | ddpflow ms | PyTorch ms | ratio | more |", "| --- | --- | --- | --- | --- | --- |"]
    rows: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for figure in found:
        rows.setdefault((figure["name"], figure["world"]), {})[figure["side"]] = figure
    for (name, world), sides in rows.items():
        ours, theirs = (sides.get(side, {}).get("median_ms") for side in ("ddpflow", "torch"))
        ratio = f"{ours / theirs:.2f}" if ours and theirs else "open"
        own = sides.get("ddpflow", {})
        more = ", ".join(f"{key} {own[key]}" for key in ADDITIONS if own.get(key) is not None)
        shown = [f"{value:.3f}" if value else "open" for value in (ours, theirs)]
        lines.append(f"| {name} | {world} | {shown[0]} | {shown[1]} | {ratio} | {more} |")
    return lines


def write(lines: list[str]) -> None:
    """Puts the figures into the page."""
    text = PAGE.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(text[:start] + "\n" + "\n".join(lines) + "\n" + text[end:])


def peer(given: str | None) -> str | None:
    """A Python whose PyTorch sees a GPU."""
    for python in filter(None, (given, str(ROOT / ".venv-peer/bin/python"))):
        if shutil.which(python) and run([python, "-c", "import torch; assert torch.cuda.is_available()"], 60)[0] == 0:
            return python
    return None


def main() -> int:
    """Runs all of it; returns 0 when nothing was left out and nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="an interpreter that has PyTorch with CUDA")
    parser.add_argument("--dry-run", action="store_true", help="leave docs/gpu.md as it is")
    arguments = parser.parse_args()
    missing = what_is_missing()
    if missing is not None:
        print(f"gpu-check: nothing could be checked: {missing}", file=sys.stderr)
        print("Left out: the op suite, layers and optimizers on the device; NCCL; all figures.", file=sys.stderr)
        return 2
    start, problems, found = time.monotonic(), [], []
    here = versions()
    code, output = run([sys.executable, "-m", "pytest", "-m", "gpu", "-q", "tests"], TEST_LIMIT_S)
    summary = output.strip().splitlines()[-1] if output.strip() else "no output"
    print(output)
    if code:
        problems.append(f"the tests marked gpu did not all pass: {summary}")
    count = int(re.match(r"(\d+) x", here)[1]) if re.match(r"\d+ x", here) else 1
    other = peer(arguments.peer_python)
    if other is None:
        problems.append("no PyTorch with CUDA was found (--peer-python), so no ratio was measured")
    sides = [(python, lib) for python, lib in ((sys.executable, "ddpflow"), (other, "torch")) if python is not None]
    dtypes = ("float32", "bfloat16")
    commands = [command_for(*side, ranks, dtype) for ranks in sorted({1, count}) for dtype in dtypes for side in sides]
    commands += [[sys.executable, "benchmarks/gpu_kernels.py", "--dtype", dtype] for dtype in dtypes]
    for command in commands:
        more, problem = figures(command)
        found += more
        problems += [problem] if problem else []
    problems += filter(None, map(sanitized, ("memcheck", "racecheck", "synccheck")))
    if count == 1:
        problems.append("one GPU: all-reduce bandwidth and overlap between GPUs were not measured")
    today = datetime.date.today().isoformat()
    lines = [f"Measured {today} on {here}.", "", f"Tests: {summary}.", "", *table(found), ""]
    lines += ["Left out or failed:", "", *[f"- {p}" for p in problems]] if problems else ["Nothing was left out."]
    print("\n".join(lines))
    print(f"{time.monotonic() - start:.0f} s")
    if not arguments.dry_run:
        write(lines)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
