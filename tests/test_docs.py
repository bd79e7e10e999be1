"""Words are tested too: docstring examples, pages' code, commands and links, and the examples' own commands."""

import doctest
import importlib
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import ddpflow

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
# Modules that cannot be imported without an optional package, and programs.
NOT_IMPORTED = ("ddpflow.autograd.kernels.cuda", "ddpflow.comm.backends.mpi", "ddpflow.comm.backends.nccl")
# Scripts that a page speaks of as the reader's.
READERS_OWN = {"train.py", "package.train"}
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def module_names():
    """Returns the names of all importable modules of ddpflow, from the file tree alone."""
    names = [module.name for module in pkgutil.walk_packages(ddpflow.__path__, "ddpflow.")]
    return [name for name in names if name not in NOT_IMPORTED and not name.endswith("__main__")]


def blocks(language):
    """Returns a test parameter for each fenced block of a language in the project's pages."""
    found = []
    for page in PAGES:
        for number, match in enumerate(re.finditer(rf"^```{language}\n(.*?)^```$", page.read_text(), re.M | re.S)):
            found.append(pytest.param(match.group(1), id=f"{page.relative_to(ROOT)}-{number}"))
    return found


def commands():
    """Returns a test parameter for each command line in the pages' shell blocks."""
    lines = {line.strip() for block in blocks("sh") for line in block.values[0].splitlines()}
    return sorted(line for line in lines if line and not line.startswith("#"))


def required_options(help_text):
    """Returns the options that argparse's usage shows without brackets, as rank 0 or a single process prints it."""
    lines = [line.removeprefix("[rank 0]").strip() for line in help_text.splitlines() if "[rank 1]" not in line]
    usage = re.search(r"^usage:.*?(?:\n\n|\Z)", "\n".join(lines), re.M | re.S)
    return [] if usage is None else re.findall(r"--[\w-]+", re.sub(r"\[[^\]]*\]", "", usage.group()))


@pytest.mark.parametrize("name", module_names())
def test_docstring_examples(name):
    """The examples in a module's docstrings print what they say."""
    result = doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)
    assert result.failed == 0, f"{result.failed} of {result.attempted} examples; see above"


@pytest.mark.parametrize("code", blocks("python"))
def test_page_code_runs(code, tmp_path):
    """A page's Python blocks run as they stand, as a script of their own."""
    script = tmp_path / "example.py"
    script.write_text(code)
    command = [sys.executable, "-W", "error", str(script)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_readme_example_is_data_parallel(tmp_path):
    """The README's first example also runs on two ranks, as the README says."""
    script = tmp_path / "train.py"
    script.write_text(re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S).group(1))
    command = [sys.executable, "-m", "ddpflow.launch", "--nproc-per-node", "2", str(script)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "on 2 rank(s)" in result.stdout


@pytest.mark.parametrize("line", commands())
def test_page_command(line):
    """A command in a page names what exists, a target, script or program, with the options it needs and no other."""
    words = [word for word in shlex.split(line, comments=True) if "=" not in word or word.startswith("-")]
    if words[0] == "make":
        targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
        assert set(words[1:]) <= targets
        return
    if words[0] in ("pip", "git", "cd", "bash"):
        pytest.skip("changes the environment; `make` does this for the tests")
    program = {"python": [sys.executable], "ddprun": [sys.executable, "-m", "ddpflow.launch"]}[words[0]]
    own = next((place for place, word in enumerate(words) if word in READERS_OWN), None)
    if own is not None:  # the reader's script takes whatever the reader likes
        words = [word for word in words[:own] if word != "-m"]
    result = subprocess.run(
        [*program, *words[1:], "--help"], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    options = [word for word in words if word.startswith("--") and word not in ("--help", "--nproc-per-node")]
    assert [option for option in options if option not in result.stdout + result.stderr] == []
    assert [option for option in required_options(result.stdout) if option not in words] == []


def test_required_options():
    """What a command must have is found in the help of one process and of two; what it may have is not."""
    alone = "usage: resume.py [-h] --folder FOLDER\n                 [--crash-at STEPS]\n\nText --other.\n"
    ranks = "".join(f"[rank {rank}] {line}\n" for line in alone.splitlines() for rank in (0, 1))
    assert required_options(alone) == required_options(ranks) == ["--folder"]
    assert required_options("no usage, but --words") == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page):
    """A page's relative links lead to files of the repository."""
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page):
    """A file or folder that a page names in code quotes exists, from the root, ddpflow/ or examples/."""
    named = re.findall(r"`((?:[\w.]+/)+(?:\w+\.py)?|\w+\.py)`", page.read_text())
    own = {*READERS_OWN, ".venv/", ".venv-peer/"}  # the reader's, or made by make
    places = (ROOT, ROOT / "ddpflow", ROOT / "examples")
    assert [name for name in named if name not in own and not any((p / name).exists() for p in places)] == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_says_how_to_run_it(path):
    """An example's docstring starts the file and holds the command that runs it."""
    first = path.read_text().split('"""')
    assert first[0].strip() == "" or first[0].startswith("#!")
    assert f"examples/{path.name}" in first[1]
