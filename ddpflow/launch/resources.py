"""What this machine offers to the ranks: usable cores, their NUMA nodes, GPUs; and how to share them out."""

import glob
import os

__all__ = ["core_shares", "count_gpus", "numa_nodes", "usable_cores"]


def usable_cores(root: str = "/") -> int:
    """Returns how many cores this process may keep busy: its affinity mask, cut by the cgroup's CPU quota.

    Args:
        root: Where the file system starts (tests).
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(root)
    return max(1, min(cores, int(quota))) if quota else cores


def _quota(root: str) -> float | None:
    """Returns the smallest CPU quota on the way from this process's cgroup to the root, in cores, or None."""
    found: list[float] = []
    for line in _read(os.path.join(root, "proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = os.path.join(root, "sys/fs/cgroup", "cpu" if controllers else "")
        # Inside a container the path may be the host's, and the container's own group is mounted at the base.
        while True:
            folder = os.path.join(base, path.strip("/"))
            if controllers:
                fields = [_read(f"{folder}/cpu.cfs_{which}_us").strip() for which in ("quota", "period")]
            else:
                fields = _read(f"{folder}/cpu.max").split()
            if len(fields) == 2 and fields[0].isdigit() and fields[1].isdigit() and int(fields[1]):
                found.append(int(fields[0]) / int(fields[1]))
            if not path.strip("/"):
                break
            path = os.path.dirname(path.rstrip("/"))
    return min(found, default=None)


def numa_nodes(root: str = "/") -> list[list[int]]:
    """Returns the usable cores of each NUMA node; one list where the system does not say."""
    usable = sorted(os.sched_getaffinity(0))
    nodes = []
    folders = glob.glob(os.path.join(root, "sys/devices/system/node/node[0-9]*"))
    for folder in sorted(folders, key=lambda f: int(f.rpartition("node")[2])):
        cores = _expand(_read(os.path.join(folder, "cpulist")))
        if mine := [core for core in usable if core in cores]:
            nodes.append(mine)
    return nodes or [usable]


def core_shares(ranks: int, bind: str, root: str = "/") -> list[list[int]] | None:
    """Shares the usable cores out among the local ranks.

    Args:
        ranks: Number of ranks on this host.
        bind: "none", "cores" (consecutive cores, as equal as can be) or "numa" (ranks keep to one NUMA node).
        root: Where the file system starts (tests).

    Returns:
        Each rank's cores, or None for "none". With more ranks than cores, ranks share a core.
    """
    if bind == "none" or not hasattr(os, "sched_getaffinity"):
        return None
    nodes = numa_nodes(root)
    if bind == "cores" or len(nodes) > ranks:
        # A rank that must span nodes gets neighbouring ones.
        return _split([core for node in nodes for core in node], ranks)
    # Whole ranks per node, as equal as can be.
    shares: list[list[int]] = []
    for i, node in enumerate(nodes):
        shares += _split(node, len(range(i, ranks, len(nodes))))
    return shares


def _split(cores: list[int], ranks: int) -> list[list[int]]:
    if ranks > len(cores):
        return [[cores[i % len(cores)]] for i in range(ranks)]
    return [cores[i * len(cores) // ranks : (i + 1) * len(cores) // ranks] for i in range(ranks)]


def count_gpus(visible: str | None, root: str = "/") -> int:
    """Returns the number of NVIDIA GPUs that ranks would see.

    Args:
        visible: Value of CUDA_VISIBLE_DEVICES, or None.
        root: Where the file system starts (tests).
    """
    present = len(glob.glob(os.path.join(root, "proc/driver/nvidia/gpus/*")))
    if visible is None:
        return present
    # CUDA itself stops reading the list at the first name it does not know, such as -1.
    names = [name.strip() for name in visible.split(",")]
    valid = next((i for i, name in enumerate(names) if not name or name.startswith("-")), len(names))
    return min(valid, present)


def _expand(text: str) -> set[int]:
    """Expands the kernel's "0-3,8" to {0, 1, 2, 3, 8}."""
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        low, _, high = part.partition("-")
        numbers.update(range(int(low), int(high or low) + 1))
    return numbers


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
