"""What a host offers, read from pretended file systems, and how it is shared out."""

import os
from pathlib import Path

import pytest

from ddpflow.launch.resources import core_shares, count_gpus, numa_nodes, usable_cores


@pytest.fixture
def eight_cores(monkeypatch):
    """Pretends that this process may run on cores 0 to 7."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


def write(root: Path, **files: str) -> str:
    """Writes files whose names have __ for a slash; returns the root."""
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


@pytest.mark.parametrize(("quota", "expected"), [("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1)])
def test_cgroup_quota_limits_cores(tmp_path, eight_cores, quota, expected):
    """A quota of 2.5 cores means 2 ranks or threads, one below a core means one."""
    root = write(tmp_path, proc__self__cgroup="0::/user/job\n", **{"sys__fs__cgroup__user__job__cpu.max": quota})
    assert usable_cores(root) == expected


def test_smallest_quota_counts(tmp_path, eight_cores):
    """A group above may be narrower, and the older layout has two files."""
    root = write(
        tmp_path,
        proc__self__cgroup="3:cpu,cpuacct:/pod/box\n2:memory:/pod\n",
        **{
            "sys__fs__cgroup__cpu__pod__box__cpu.cfs_quota_us": "-1",
            "sys__fs__cgroup__cpu__pod__box__cpu.cfs_period_us": "100000",
            "sys__fs__cgroup__cpu__pod__cpu.cfs_quota_us": "300000",
            "sys__fs__cgroup__cpu__pod__cpu.cfs_period_us": "100000",
        },
    )
    assert usable_cores(root) == 3


def test_affinity_counts_without_a_quota(tmp_path, eight_cores):
    """Without cgroup files, the affinity mask says it."""
    assert usable_cores(str(tmp_path)) == 8


def test_cores_are_shared_out(tmp_path, eight_cores):
    """Consecutive cores, as equal as can be; with more ranks than cores, ranks share; by default nobody is bound."""
    root = str(tmp_path)
    assert core_shares(2, "none", root) is None
    assert core_shares(2, "cores", root) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert core_shares(3, "cores", root) == [[0, 1], [2, 3, 4], [5, 6, 7]]
    assert core_shares(9, "cores", root)[7:] == [[7], [0]]


def test_numa_nodes_are_kept_together(tmp_path, eight_cores):
    """Ranks stay within a NUMA node, in turn; a rank with more than one node gets whole ones."""
    root = write(
        tmp_path,
        sys__devices__system__node__node0__cpulist="0-1,4-5\n",
        sys__devices__system__node__node1__cpulist="2-3,6-9\n",
    )
    assert numa_nodes(root) == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert core_shares(2, "numa", root) == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert core_shares(3, "numa", root) == [[0, 1], [4, 5], [2, 3, 6, 7]]
    assert core_shares(1, "numa", root) == [[0, 1, 4, 5, 2, 3, 6, 7]]


def test_gpus_are_counted_as_cuda_does(tmp_path):
    """Those present, or those of CUDA_VISIBLE_DEVICES up to the first name that is none."""
    for i in range(4):
        (tmp_path / "proc/driver/nvidia/gpus" / str(i)).mkdir(parents=True)
    root = str(tmp_path)
    assert [count_gpus(visible, root) for visible in (None, "", "2", "0,1,-1,2", "0,1,2,3,4,5")] == [4, 0, 1, 2, 4]
