"""The program's face: help, exit codes, mistakes, and the three kinds of things it runs."""

import subprocess
import sys

import pytest

from tests.launch.conftest import ROOT, Starter


def test_help(ddprun: Starter):
    """--help prints the help and exits with 0."""
    result = ddprun.start("--help").result()
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("ddprun: starts the processes")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--frobnicate", "x.py"], "unknown flag --frobnicate"),
        (["-n", "0", "x.py"], "--nproc-per-node '0'"),
        (["no_such.py"], "there is no script no_such.py"),
        (["--nnodes", "2", "x.py"], "which of the 2 nodes is this"),
        (["--nnodes", "2", "--node-rank", "0", "x.py"], "--master-addr"),
        (["--nnodes", "2", "--node-rank", "0", "--master-addr", "localhost", "x.py"], "DDPFLOW_JOB_TOKEN"),
        (
            ["--nnodes", "2", "--node-rank", "0", "--master-addr", "localhost", "--token-file", "none", "x.py"],
            "cannot read --token-file none",
        ),
        (["--master-addr", "no.such.host.invalid", "x.py"], "no.such.host.invalid"),
        (["--status", "nobody"], "there is no run 'nobody'"),
        (["--stacks"], "which run?"),
    ],
)
def test_mistakes_are_one_line_and_code_2(ddprun: Starter, arguments, message):
    """Nothing is started, one line names the thing, the exit code is 2."""
    ddprun.script("put('started', 1)", "x.py")
    result = ddprun.start(*arguments).result()
    assert result.code == 2
    assert message in result.err
    assert len(result.err.splitlines()) == 1 and result.err.startswith("ddprun: ")
    assert not (ddprun.folder / "started").exists()


def test_module(ddprun: Starter):
    """-m runs a module from the current folder as `python -m` would, in packages too."""
    (ddprun.folder / "pack").mkdir()
    (ddprun.folder / "pack" / "__init__.py").touch()
    (ddprun.folder / "pack" / "train.py").write_text(
        "import os, sys\n"
        "from pack import __name__ as package\n"
        "print(os.environ['RANK'], package, __name__, __spec__.name, sys.argv[1:])\n"
    )
    result = ddprun.start("-n", 2, "-m", "pack.train", "--lr", 1).result()
    assert result.code == 0, result.err
    assert sorted(result.out.splitlines()) == [f"[rank {r}] {r} pack __main__ pack.train ['--lr', '1']" for r in (0, 1)]


def test_program(ddprun: Starter):
    """--no-python runs any program, which inherits rank 0's socket, and has the usual signals."""
    command = "echo $RANK of $WORLD_SIZE; test $RANK = 1 || test -e /proc/self/fd/$DDPFLOW_STORE_FD; exit $((RANK * 4))"
    result = ddprun.start("-n", 2, "--no-python", "sh", "-c", command).result()
    assert result.code == 4
    assert sorted(result.out.splitlines()) == ["[rank 0] 0 of 2", "[rank 1] 1 of 2"]
    assert "rank 1 failed first" in result.err


def test_console_script_imports_no_numpy():
    """The entry point loads the launcher without NumPy or the rest of ddpflow, and without anything slow."""
    code = (
        "import sys, _ddprun\n"
        "try: _ddprun.main()\n"
        "finally: print(*sorted(m for m in sys.modules if m.split('.')[0] in {'numpy', 'ddpflow'}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, cwd=ROOT, timeout=60, check=True
    )
    loaded = result.stdout.splitlines()[-1].split()
    assert "ddpflow.launch.supervisor" in loaded
    assert [name for name in loaded if not name.startswith(("ddpflow.launch", "ddpflow.comm"))] == [
        "ddpflow",
        "ddpflow.errors",
    ]
