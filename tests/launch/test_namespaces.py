"""Two hosts that have nothing but a cable in common: two network namespaces stand for them."""

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.launch.conftest import PROGRAM, Launch, Starter, all_gone

TOKEN = "0123456789abcdef0123456789abcdef"
ADDRESSES = ("10.213.7.1", "10.213.7.2")


def ip(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs the command ip."""
    return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30, check=False)


class Cable:
    """Two namespaces, each with one end of a virtual cable."""

    def __init__(self, ddprun: Starter) -> None:
        self.ddprun = ddprun
        self.names = tuple(f"ddpflow{os.getpid()}{end}" for end in "ab")
        self.devices = tuple(f"dd{os.getpid()}{end}" for end in "ab")

    def plug(self) -> str | None:
        """Makes the namespaces; returns what is in the way, if anything is."""
        first, other = self.names
        steps = [("netns", "add", first), ("netns", "add", other)]
        steps.append(
            (
                "link",
                "add",
                self.devices[0],
                "netns",
                first,
                "type",
                "veth",
                "peer",
                "name",
                self.devices[1],
                "netns",
                other,
            )
        )
        for name, device, address in zip(self.names, self.devices, ADDRESSES, strict=True):
            steps.append(("-n", name, "addr", "add", f"{address}/24", "dev", device))
            steps += [("-n", name, "link", "set", up, "up") for up in ("lo", device)]
        for step in steps:
            result = ip(*step)
            if result.returncode:
                return f"`ip {' '.join(step)}` says: {result.stderr.strip()}"
        return None

    def cut(self) -> None:
        """Takes the link down."""
        assert ip("-n", self.names[0], "link", "set", self.devices[0], "down").returncode == 0

    def remove(self) -> None:
        """Removes the namespaces, and with them the cable."""
        for name in self.names:
            ip("netns", "del", name)

    def start(self, node: int, *arguments: object, token: str = TOKEN, way: str = "flags") -> Launch:
        """Starts ddprun on one of the two hosts, which learns in one of three ways which one it is."""
        folder = self.ddprun.folder / "tmp" / str(node)
        folder.mkdir(exist_ok=True)
        flags: tuple[object, ...] = ()
        environment = {"TMPDIR": str(folder), "DDPFLOW_JOB_TOKEN": token}
        if way == "flags":
            flags = ("--nnodes", 2, "--node-rank", node, "--master-addr", ADDRESSES[0], "--master-port", 29500)
        elif way == "kubernetes":
            flags = ("--nnodes", 2, "--master-addr", ADDRESSES[0])
            environment["JOB_COMPLETION_INDEX"] = str(node)
        elif way == "slurm":
            environment |= {
                "SLURM_PROCID": str(node),
                "SLURM_NODEID": str(node),
                "SLURM_LOCALID": "0",
                "SLURM_JOB_ID": "77",
            }
            environment |= {
                "SLURM_STEP_NUM_TASKS": "2",
                "SLURM_STEP_NUM_NODES": "2",
                "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
            }
            environment |= {"SLURM_STEP_NODELIST": "10.213.7.[1-2]"}
        return self.ddprun.start(
            *flags,
            *("-n", 2, "--monitor-interval", 0.3, *arguments),
            program=("ip", "netns", "exec", self.names[node], *PROGRAM),
            env=environment,
        )


@pytest.fixture
def cable(ddprun: Starter) -> Iterator[Cable]:
    """Returns two connected hosts, or skips where the system does not let us make them."""
    if shutil.which("ip") is None:
        pytest.skip("ip(8), which makes network namespaces, is not installed")
    if os.geteuid() != 0:
        pytest.skip("only root makes network namespaces")
    made = Cable(ddprun)
    try:
        if problem := made.plug():
            pytest.skip(f"this system makes no network namespaces: {problem}")
        yield made
    finally:
        made.remove()


@pytest.mark.parametrize("way", ["flags", "slurm", "kubernetes"])
def test_hosts_meet_over_the_network(cable: Cable, way):
    """Ranks of both hosts reach rank 0's store at the master address, which listens there and nowhere else."""
    script = cable.ddprun.script(
        """
        import socket
        if RANK == 0:
            with socket.socket(fileno=int(os.environ["DDPFLOW_STORE_FD"])) as store:
                assert store.getsockname() == ("10.213.7.1", int(os.environ["MASTER_PORT"]))
                for _ in range(WORLD - 1):
                    store.accept()[0].sendall(b"welcome")
        else:
            with socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))) as client:
                print(client.recv(7).decode(), "from", client.getsockname()[0])
        """
    )
    results = [launch.result() for launch in [cable.start(1, script, way=way), cable.start(0, script, way=way)]]
    assert [result.code for result in results] == [0, 0], results
    assert sorted(results[0].out.splitlines()) == [f"[rank {rank}] welcome from 10.213.7.2" for rank in (2, 3)]
    assert results[1].out == "[rank 1] welcome from 10.213.7.1\n"


def test_wrong_secret_over_the_network(cable: Cable):
    """A host with another secret is refused; the first one waits on until its deadline."""
    script = cable.ddprun.script("put('started', 1)")
    first, wrong = cable.start(0, "--timeout", 3, script), cable.start(1, script, token="f" * 32)
    results = [wrong.result(), first.result()]
    assert [result.code for result in results] == [2, 2]
    assert "refused our token" in results[0].err
    assert "node 1 (ranks 2-3) did not come to 10.213.7.1:29500 within 3 s" in results[1].err
    assert not (cable.ddprun.folder / "started").exists()


def test_cut_cable(cable: Cable):
    """When the link goes down in mid-run, both sides end their ranks within the deadline and name the lost host."""
    script = cable.ddprun.script("put(f'{RANK}.pid', os.getpid()); time.sleep(60)")
    launches = [cable.start(node, script) for node in (0, 1)]
    pids = launches[0].pids("0.pid", "1.pid", "2.pid", "3.pid")
    cable.cut()
    results = [launch.result() for launch in launches]
    assert [result.code for result in results] == [1, 1]
    for node, result in enumerate(results):
        assert f"NodeLost: node {1 - node} (" in result.err and "no sign of life for 1.5 s" in result.err
    all_gone(pids)


def test_unreachable_master(cable: Cable):
    """A master address that nobody answers at is named with the reason, at the deadline."""
    cable.cut()
    result = cable.start(1, "--timeout", 1, cable.ddprun.script("put('started', 1)")).result()
    assert result.code == 2
    assert "node 0 at 10.213.7.1:29500 did not start within 1 s (--timeout)" in result.err


def test_shared_memory_does_not_reach_other_hosts(cable: Cable):
    """Asking for the shared-memory transport on two hosts is an error on every rank that says what to use instead."""
    script = cable.ddprun.script(
        """
        import ddpflow.comm as dist
        dist.init_process_group("shm")
        """
    )
    results = [launch.result() for launch in [cable.start(1, script), cable.start(0, script)]]
    assert [result.code for result in results] == [1, 1]
    assert all("failed first" in result.err and "mpi" in result.err for result in results), results
