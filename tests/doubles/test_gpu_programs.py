"""The programs that run on a GPU only, tried on the CuPy stand-in, so that they hold no mistakes of their own."""

import json
import runpy

import pytest

from tests.doubles.fake_cupy import installed
from tests.doubles.raw_kernels import needs_compiler
from tests.doubles.worlds import ALONE, BOTH, run_gpu_ranks
from tests.gpu import check, ranks, test_step
from tests.gpu.bodies import close, integers, numbers


@pytest.mark.parametrize("backend", [BOTH, ALONE])
def test_what_the_ranks_do(backend):
    """tests/gpu/ranks.py: collectives, and training to the weights of one process."""
    from ddpflow.nn.parallel import DistributedDataParallel

    x, y = numbers(8, 6), integers(3, 8)
    expected = ranks.steps(ranks.model(), x, y)

    def body(rank):
        ranks.collectives(rank, 2)
        return ranks.steps(DistributedDataParallel(ranks.model().cuda()), x[rank::2].cuda(), y[rank::2].cuda())

    for found in run_gpu_ranks(body, 2, backend):
        for ours, single in zip(found, expected, strict=True):
            close(ours, single, 1e-4, "weights")


@pytest.mark.parametrize("name", [name for name in dir(test_step) if name.startswith("test_")])
def test_steps(name, monkeypatch):
    """tests/gpu/test_step.py."""
    with installed():
        getattr(test_step, name)()


def test_benchmark(monkeypatch, capsys):
    """benchmarks/gpu.py times a model."""
    monkeypatch.syspath_prepend("benchmarks")
    gpu = __import__("gpu")
    monkeypatch.setattr("sys.argv", ["gpu.py", "--only", "mlp,all_reduce", "--repeats", "2"])
    with installed():
        gpu.main()
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert found["name"] == "train/mlp/float32" and found["n"] == 2


@needs_compiler
def test_kernel_benchmark(monkeypatch, capsys):
    """benchmarks/gpu_kernels.py compares and times every kernel and its formula, which give the same."""
    monkeypatch.syspath_prepend("benchmarks")
    gpu_kernels = __import__("gpu_kernels")
    for dtype, tolerance in (("float32", 1e-5), ("bfloat16", 2e-2)):
        monkeypatch.setattr("sys.argv", ["gpu_kernels.py", "--once", "--dtype", dtype])
        with installed():
            gpu_kernels.main()
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert len(found) == 17 and all(f["name"].endswith(dtype) for f in found)
        assert {f["name"]: f["difference"] for f in found if not f["difference"] < tolerance} == {}


def test_the_figures_as_a_page(monkeypatch, tmp_path):
    """Figures of both sides stand beside each other; what is missing is open; the page keeps its text."""
    page = tmp_path / "gpu.md"
    page.write_text(f"before\n{check.BEGIN}\nold\n{check.END}\nafter\n")
    monkeypatch.setattr(check, "PAGE", page)
    ours = {"side": "ddpflow", "name": "train/mlp/float32", "world": 1, "median_ms": 2.0}
    alone = {**ours, "name": "all_reduce/1024", "world": 8, "bus_gb_per_s": 3.5}
    check.write(check.table([ours, {**ours, "side": "torch", "median_ms": 4.0}, alone]))
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| train/mlp/float32 | 1 | 2.000 | 4.000 | 0.50 |  |" in text
    assert "| all_reduce/1024 | 8 | 2.000 | open | open | bus_gb_per_s 3.5 |" in text


def test_kernels_under_the_sanitizer(monkeypatch):
    """Each tool watches the kernels for two dtypes; a missing program and what it finds are told."""
    calls = []
    monkeypatch.setattr(check, "run", lambda command, limit_s: calls.append(command) or (0, ""))
    monkeypatch.setattr(check.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert check.sanitized("racecheck") is None and len(calls) == 2
    assert calls[1][:3] == ["compute-sanitizer", "--tool", "racecheck"] and calls[1][-1] == "bfloat16"
    monkeypatch.setattr(check, "run", lambda command, limit_s: (1, "Invalid __global__ write"))
    assert "memcheck on the kernels for float32: Invalid __global__ write" in check.sanitized("memcheck")
    monkeypatch.setattr(check.shutil, "which", lambda name: None)
    assert "was not found" in check.sanitized("memcheck")


def test_without_a_gpu(monkeypatch, capsys):
    """gpu-check says what it could not do and why, and does not end with 0."""
    monkeypatch.setattr("sys.argv", ["check.py"])
    monkeypatch.setattr(check, "what_is_missing", lambda: "no GPU")
    assert check.main() == 2
    assert "nothing could be checked: no GPU" in capsys.readouterr().err


def test_the_digits_example(monkeypatch, capsys):
    """examples/train_digits.py learns on a device."""
    pytest.importorskip("sklearn", reason="the example needs scikit-learn (extra examples)")
    monkeypatch.setattr("sys.argv", ["train_digits.py", "--device", "cuda", "--epochs", "1", "--batch-size", "128"])
    with installed(), pytest.raises(SystemExit) as end:
        runpy.run_path("examples/train_digits.py", run_name="__main__")
    out = capsys.readouterr().out
    assert end.value.code == 0 and float(out.partition("test accuracy ")[2].partition("%")[0]) > 30
