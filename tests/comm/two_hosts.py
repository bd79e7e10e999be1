"""Two hosts on one machine: network namespaces joined by a cable of their own, and MPICH between them over TCP."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

MPIEXEC = str(Path(sys.executable).parent / "mpiexec")
_INTERFACE = "ddpf0"  # MPICH takes one interface name for all hosts


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=20)


@contextlib.contextmanager
def two_hosts() -> Iterator[list[tuple[str, str]]]:
    """Makes two namespaces that reach each other; returns name and address of each.

    Raises:
        OSError: This machine or user cannot make network namespaces.
    """
    subnet = f"10.{77 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
    hosts = [(f"ddpf-{os.getpid()}-{side}", f"{subnet}.{number}") for number, side in ((1, "a"), (2, "b"))]
    made = []
    try:
        try:
            for name, _ in hosts:
                _ip("netns", "add", name)
                made.append(name)
            a, b = made
            _ip("link", "add", _INTERFACE, "netns", a, "type", "veth", "peer", "name", _INTERFACE, "netns", b)
            for name, address in hosts:
                _ip("-n", name, "address", "add", f"{address}/24", "dev", _INTERFACE)
                _ip("-n", name, "link", "set", _INTERFACE, "up")
                _ip("-n", name, "link", "set", "lo", "up")
        except (OSError, subprocess.SubprocessError) as error:
            detail = getattr(error, "stderr", None) or str(error)
            raise OSError(f"network namespaces cannot be made here: {detail.strip()}") from error
        yield hosts
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=20)


def run_on_two_hosts(
    hosts: Sequence[tuple[str, str]], ranks_per_host: int, command: Sequence[str], cwd: Path, timeout_s: float = 90
) -> tuple[int, str]:
    """Runs a command as ranks of one MPI world over both hosts; returns exit code and all output.

    mpiexec runs on the first host and prints what it would start by ssh; each line is run in the namespace of its host.
    """
    places = ",".join(f"{address}:{ranks_per_host}" for _, address in hosts)
    n = ranks_per_host * len(hosts)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    inside = ["ip", "netns", "exec", hosts[0][0]]
    mpiexec = [MPIEXEC, "-launcher", "manual", "-iface", _INTERFACE, "-hosts", places, "-n", str(n), *command]
    main = subprocess.Popen(
        [*inside, *mpiexec], cwd=cwd, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    proxies: list[subprocess.Popen[bytes]] = []
    try:
        assert main.stdout is not None
        before = ""
        for line in main.stdout:
            if line.startswith("HYDRA_LAUNCH_END"):
                break
            if line.startswith("HYDRA_LAUNCH:"):
                proxy = line.removeprefix("HYDRA_LAUNCH:").split()
                inside = ["ip", "netns", "exec", hosts[len(proxies)][0]]
                proxies.append(subprocess.Popen([*inside, *proxy], cwd=cwd, env=environ))
            else:
                before += line
        output, _ = main.communicate(timeout=timeout_s)
        return main.returncode, before + output
    finally:
        for process in [*proxies, main]:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
        if main.stdout is not None:
            main.stdout.close()
