"""Freed memory stays with the process, unless the user says otherwise."""

import subprocess
import sys
from pathlib import Path

import pytest

from ddpflow.memory import keep_freed_memory

FAULTS = """
import resource
import numpy as np
{first}
def step():
    x = np.ones(1 << 20)
    return (x + 1) * 2
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20)
"""


def faults(first, **environ):
    """Page faults of a step with large temporaries, in a process of its own."""
    code = FAULTS.format(first=first)
    run = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True, timeout=60
    )
    return float(run.stdout)


@pytest.mark.skipif(not keep_freed_memory({}), reason="this C library is not glibc: there is nothing to set")
def test_importing_ddpflow_ends_page_faults_of_temporaries(monkeypatch):
    """Large temporaries cause page faults in each step of plain NumPy, practically none once ddpflow is imported."""
    monkeypatch.chdir("/")
    path = {"PYTHONPATH": str(Path(__file__).parents[1]), "OPENBLAS_NUM_THREADS": "1"}
    assert faults("import ddpflow", **path) < 10
    assert faults("import ddpflow", **path, DDPFLOW_MALLOC="0") > faults("import ddpflow", **path) + 10


@pytest.mark.parametrize(
    "environ",
    [
        {"DDPFLOW_MALLOC": "0"},
        {"DDPFLOW_MALLOC": "off"},
        {"MALLOC_TOP_PAD_": "1"},
        {"GLIBC_TUNABLES": "glibc.malloc.check=0"},
    ],
    ids=["DDPFLOW_MALLOC=0", "DDPFLOW_MALLOC=off", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES"],
)
def test_leaves_malloc_alone_when_told_to(environ):
    """The opt-out, and any setting of malloc by the user, wins."""
    assert keep_freed_memory(environ) is False
