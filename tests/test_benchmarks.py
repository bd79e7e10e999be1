"""The benchmarks: the comparison's arithmetic, and that every program runs on ddpflow."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
LAUNCH = ("-m", "ddpflow.launch", "--nproc-per-node", "2")


@pytest.fixture
def compare(monkeypatch):
    """Returns the module benchmarks/compare.py."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return __import__("compare")


def figure(median_ms):
    """Returns a figure whose 99th percentile is ten times its median."""
    return {"median_ms": median_ms, "p99_ms": median_ms * 10}


def test_ratio_is_the_median_of_the_rounds_ratios(compare):
    """A slow round slows both sides, so that a ratio is taken within a round and never between medians of sides."""
    key = ("train/mlp", 2)
    rounds = [{"ddpflow": {key: figure(a)}, "torch": {key: figure(b)}} for a, b in ((1, 2), (30, 40), (5, 20))]
    [row] = compare.table(rounds)
    assert (row.ratio, row.low, row.high, row.rounds) == (0.5, 0.25, 0.75, 3)
    assert (row.ours, row.its, row.ours_p99) == (5, 20, 50)
    assert (row.beside, row.budget) == ("torch", 0.65)


def test_round_without_one_side_is_left_out(compare):
    """A round in which a side failed gives no ratio; the others count."""
    key = ("op/forward", 1)
    rounds = [{"ddpflow": {key: figure(3)}, "torch": {}}, {"ddpflow": {key: figure(2)}, "torch": {key: figure(4)}}]
    [row] = compare.table(rounds)
    assert (row.ratio, row.rounds) == (0.5, 1)


def test_own_figures_have_budgets_too(compare):
    """Import is compared with NumPy's import, and a large all-reduce with a copy of as many bytes."""
    large = 64 << 20
    ours = {
        ("startup/import", 1): figure(120),
        ("startup/numpy", 1): figure(100),
        (f"all_reduce/{large}", 2): figure(8),
        (f"copy/{large}", 2): figure(6),
    }
    rows = {(row.name, row.beside): row for row in compare.table([{"ddpflow": ours}])}
    assert rows["startup/import", "startup/numpy"].ratio == pytest.approx(1.2)
    assert rows["startup/import", "startup/numpy"].budget == 1.4
    assert rows[f"all_reduce/{large}", f"copy/{large}"].ratio == pytest.approx(8 / 6)
    assert rows[f"all_reduce/{large}", f"copy/{large}"].budget == pytest.approx(1 / 0.7)


def test_registered_memory_is_compared_with_the_peers_only_kind(compare):
    """A peer has one kind of memory, so both of our kinds are compared with it."""
    ours = {("all_reduce_registered/1024", 2): figure(1)}
    peers = {"torch": {("all_reduce/1024", 2): figure(50)}, "mpi": {("all_reduce/1024", 2): figure(2)}}
    rows = compare.table([{"ddpflow": ours, **peers}])
    assert [(row.beside, row.ratio, row.budget) for row in rows] == [("torch", 0.02, 0.05), ("mpi", 0.5, 1.3)]


def test_memory_is_compared_in_megabytes(compare, capsys):
    """A figure of memory has no times; its row shows MB."""
    key = ("memory/cnn", 1)
    compare.show(compare.table([{"ddpflow": {key: {"mb": 35.5}}, "torch": {key: {"mb": 71.0}}}]))
    assert "| memory/cnn | 1 | 35.5 | torch | 71 | 0.50 (0.50-0.50) | 1.00 | within |" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "names"),
    [
        (("train_step.py", "--only", "mlp,deep"), ["train/mlp", "train/deep"]),
        (("train_step.py", "--only", "cnn,gpt"), ["train/cnn", "train/gpt"]),
        (("op_overhead.py",), ["op/forward", "op/forward+backward"]),
        (("optimizer_step.py",), ["optim/sgd", "optim/adam", "optim/adamw"]),
        (("step_memory.py", "--only", "deep,mlp"), ["memory/deep", "memory/mlp"]),
        ((*LAUNCH, "train_step.py", "--only", "deep"), ["train/deep"]),
        (
            (*LAUNCH, "all_reduce.py", "--sizes", "1024,65536"),
            ["all_reduce/1024", "all_reduce/65536", "all_reduce_registered/1024", "all_reduce_registered/65536"],
        ),
        (("startup.py",), ["startup/numpy", "startup/import", "startup/launch"]),
    ],
    ids=lambda value: " ".join(part for part in value if part.endswith(".py")),
)
def test_program_runs(command, names):
    """Each program runs on ddpflow and prints its figures as JSON lines, from rank 0 only."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    arguments = [str(BENCHMARKS / part) if part.endswith(".py") else part for part in command]
    result = subprocess.run(
        [sys.executable, *arguments, "--lib", "ddpflow", "--seconds", "0"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    lines = [line[line.index('{"side"') :] for line in result.stdout.splitlines() if '{"side"' in line]
    figures = [json.loads(line) for line in lines]
    assert [entry["name"] for entry in figures] == names
    assert all(entry["side"] == "ddpflow" and entry.get("median_ms", entry.get("mb")) > 0 for entry in figures)


@pytest.mark.slow
def test_kernels_are_timed_beside_their_formulas():
    """The program prints a kernel's time, the formula's and their ratio as JSON lines."""
    result = subprocess.run(
        [sys.executable, str(BENCHMARKS / "kernels.py"), "--seconds", "0", "--only", "affine,max_pool"],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(BENCHMARKS.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    figures = [json.loads(line) for line in result.stdout.splitlines()]
    assert [f["name"] for f in figures] == ["kernel/max_pool", "kernel/max_pool/backward", "kernel/affine"]
    assert all(f["kernel_ms"] >= 0 and f["formula_ms"] >= 0 for f in figures)
