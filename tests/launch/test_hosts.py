"""Jobs of several hosts: they meet, fail, restart and stop together. Here, all hosts are this one."""

import signal
import socket

import pytest

from tests.launch.conftest import Launch, Starter, all_gone, wait_until

TOKEN = "0123456789abcdef0123456789abcdef"
QUICK = ("--monitor-interval", 0.2)


class Hosts:
    """Starts launchers that take each other for hosts."""

    def __init__(self, ddprun: Starter) -> None:
        self.ddprun = ddprun
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]

    def start(self, node: int, *arguments: object, nodes: int = 2, nproc: int = 1, token: str = TOKEN) -> Launch:
        """Starts the launcher of one host, whose runs lie apart from the others'."""
        folder = self.ddprun.folder / "tmp" / str(node)
        folder.mkdir(exist_ok=True)
        where = ("--nnodes", nodes, "--node-rank", node, "--master-addr", "127.0.0.1", "--master-port", self.port)
        env = {"TMPDIR": str(folder), "DDPFLOW_JOB_TOKEN": token}
        return self.ddprun.start(*where, "-n", nproc, *QUICK, *arguments, env=env)


@pytest.fixture
def hosts(ddprun: Starter) -> Hosts:
    """Returns what starts launchers of several hosts."""
    return Hosts(ddprun)


def test_hosts_meet(hosts: Hosts):
    """Ranks are numbered through, host by host, whatever their number on each, and share a world and a secret."""
    script = hosts.ddprun.script(
        """
        names = "LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE MASTER_PORT DDPFLOW_JOB_TOKEN DDPFLOW_RUN_ID"
        print(RANK, WORLD, *(os.environ[name] for name in names.split()), "DDPFLOW_STORE_FD" in os.environ)
        """
    )
    counts = {2: 1, 0: 2, 1: 3}
    launches = {node: hosts.start(node, script, nodes=3, nproc=nproc) for node, nproc in counts.items()}
    results = {node: launch.result() for node, launch in launches.items()}
    assert [results[node].code for node in range(3)] == [0, 0, 0], results
    lines = sorted("".join(result.out for result in results.values()).splitlines())
    words = [line.split()[2:] for line in lines]
    places = [("0", "2", "0"), ("1", "2", "0"), ("0", "3", "1"), ("1", "3", "1"), ("2", "3", "1"), ("0", "1", "2")]
    assert [tuple(w[2:5]) for w in words] == places
    assert {tuple(w[1:2] + w[5:9]) for w in words} == {("6", "3", str(hosts.port), words[0][7], words[0][8])}
    assert words[0][7] != TOKEN
    assert [w[9] for w in words] == ["True"] + ["False"] * 5
    assert "6 ranks on 3 nodes, 2-4 here" in results[1].err


def test_failure_on_one_host_ends_all(hosts: Hosts):
    """The root cause's host reports it in full, the others in a line; all exit with its code."""
    script = hosts.ddprun.script("sys.exit(7) if RANK == 1 else time.sleep(60)")
    first, other = hosts.start(0, script), hosts.start(1, script)
    results = [first.result(), other.result()]
    assert [result.code for result in results] == [7, 7]
    for result in results:
        assert "rank 1 failed first (node 1, pid " in result.err and "it exited with code 7" in result.err
    assert "then rank 0 was ended by ddprun" in results[0].err


def test_ranks_learn_of_failures_elsewhere(hosts: Hosts):
    """A failure on another host appears in the run directory, where waits look for it."""
    script = hosts.ddprun.script(
        """
        if RANK == 0:
            raise ValueError("bad batch")
        while not os.path.exists(os.environ["DDPFLOW_RUN_DIR"] + "/failed.0.json"):
            time.sleep(0.01)
        print(open(os.environ["DDPFLOW_RUN_DIR"] + "/failed.0.json").read())
        """
    )
    launches = [hosts.start(node, script) for node in (0, 1)]
    results = [launch.result() for launch in launches]
    assert [result.code for result in results] == [1, 1]
    assert "bad batch" in results[1].out


def test_late_failure_counts_everywhere(hosts: Hosts):
    """A host whose ranks have ended well still waits, and exits with the code of what fails later elsewhere."""
    script = hosts.ddprun.script(
        """
        if RANK == 1:
            put("done", 1)
        else:
            while not os.path.exists("done"):
                time.sleep(0.01)
            time.sleep(0.5)
            sys.exit(5)
        """
    )
    results = [launch.result() for launch in [hosts.start(0, script), hosts.start(1, script)]]
    assert [result.code for result in results] == [5, 5]
    assert "node 0 failed later: rank 0 exited with code 5" in results[1].err


def test_all_hosts_restart_together(hosts: Hosts):
    """One failure restarts the gang on every host; node 0's --max-restarts counts."""
    script = hosts.ddprun.script(
        """
        print(os.environ["DDPFLOW_RUN_ID"], os.environ["DDPFLOW_JOB_TOKEN"])
        if os.environ["DDPFLOW_RESTART_COUNT"] == "0":
            sys.exit(1) if RANK == 1 else linger()
        """
    )
    launches = [hosts.start(0, "--max-restarts", 1, "--run-id", "gang", script), hosts.start(1, script)]
    results = [launch.result() for launch in launches]
    assert [result.code for result in results] == [0, 0], results
    outs = [[line.split()[2:] for line in result.out.splitlines()] for result in results]
    assert outs[0] == outs[1]
    assert [line[0] for line in outs[0]] == ["gang", "gang.1"] and outs[0][0][1] != outs[0][1][1]


@pytest.mark.parametrize("node", [0, 1])
def test_signal_on_one_host_stops_all(hosts: Hosts, node):
    """Ctrl-C at any launcher ends the ranks of all hosts."""
    script = hosts.ddprun.script("put(f'{RANK}.pid', os.getpid()); time.sleep(60)")
    launches = [hosts.start(0, script), hosts.start(1, script)]
    pids = launches[0].pids("0.pid", "1.pid")
    launches[node].kill(signal.SIGINT)
    assert [launch.result().code for launch in launches] == [130, 130]
    all_gone(pids)


@pytest.mark.parametrize("killed", [0, 1])
def test_launcher_lost(hosts: Hosts, killed):
    """When a host's launcher dies, the others end their ranks and say who was lost."""
    script = hosts.ddprun.script("put(f'{RANK}.pid', os.getpid()); time.sleep(60)")
    launches = [hosts.start(0, script), hosts.start(1, script)]
    pids = launches[0].pids("0.pid", "1.pid")
    launches[killed].kill(signal.SIGKILL)
    result = launches[1 - killed].result()
    assert result.code == 1
    assert f"NodeLost: node {killed} (" in result.err and "it closed the connection" in result.err
    launches[killed].result()
    all_gone(pids)


def test_silent_host_is_lost(hosts: Hosts):
    """A launcher that gives no sign of life for five intervals counts as lost."""
    script = hosts.ddprun.script("put(f'{RANK}.pid', os.getpid()); time.sleep(60)")
    first, other = hosts.start(0, script), hosts.start(1, script)
    pids = first.pids("0.pid", "1.pid")
    other.kill(signal.SIGSTOP)
    result = first.result()
    assert result.code == 1
    assert "no sign of life for 1 s" in result.err
    other.kill(signal.SIGCONT)
    assert other.result().code == 1
    all_gone(pids)


@pytest.mark.parametrize("node", [0, 1])
def test_host_that_never_comes(hosts: Hosts, node):
    """The deadline ends the wait: exit code 2, the missing node and its ranks are named, nothing was started."""
    result = hosts.start(node, "--timeout", 1, hosts.ddprun.script("put('started', 1)"), nproc=2).result()
    assert result.code == 2
    missing = f"node 0 at 127.0.0.1:{hosts.port} did not start" if node else "node 1 (ranks 2-3) did not come to"
    assert missing in result.err and "within 1 s (--timeout)" in result.err
    assert not (hosts.ddprun.folder / "started").exists()


def test_interrupt_while_waiting(hosts: Hosts):
    """Ctrl-C works at once while a launcher waits for others, on both sides."""
    script = hosts.ddprun.script("put('started', 1)")
    for node in (0, 1):
        launch = hosts.start(node, script)
        # Its handlers are in place once it says who is missing.
        assert b"waiting for node" in launch.process.stderr.readline()
        launch.kill(signal.SIGINT)
        assert launch.result(limit_s=20).code == 130
    assert not (hosts.ddprun.folder / "started").exists()


def test_wrong_secret(hosts: Hosts):
    """A launcher with another secret is turned away with a clear line; the others wait on for the right one."""
    script = hosts.ddprun.script("print(RANK)")
    first = hosts.start(0, script)
    wrong = hosts.start(1, script, token="f" * 32).result()
    assert wrong.code == 2
    assert "refused our token: DDPFLOW_JOB_TOKEN (or --token-file) differs there" in wrong.err
    right = hosts.start(1, script).result()
    result = first.result()
    assert (result.code, right.code) == (0, 0)
    assert "turned a launcher away: it does not have our token" in result.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"node": 1, "nodes": 3}, "node 1 ({host}) says --nnodes 3, node 0 says 2"),
        ({"node": 1, "nodes": 2}, "--node-rank 1 was claimed twice: by {host} and by {host}"),
    ],
)
def test_contradictions(hosts: Hosts, flags, message):
    """Launchers that want different jobs are told so, all of them, and nothing starts."""
    script = hosts.ddprun.script("put('started', 1)")
    claimed_twice = flags["nodes"] == 2
    first = hosts.start(0, script, nodes=3 if claimed_twice else 2)
    launches = [first, hosts.start(1, script, nodes=3)]
    if claimed_twice:
        launches.append(hosts.start(1, script, nodes=3))
    text = message.format(host=socket.gethostname())
    for launch in launches:
        result = launch.result()
        assert result.code == 2
        assert text in result.err
    assert not (hosts.ddprun.folder / "started").exists()


def test_stranger_at_the_door(hosts: Hosts):
    """Whoever connects and talks nonsense, or nothing, changes nothing."""
    script = hosts.ddprun.script("print(RANK)")
    first = hosts.start(0, script)
    silent, loud = None, None
    wait_until(lambda: _connects(hosts.port))
    silent = socket.create_connection(("127.0.0.1", hosts.port))
    loud = socket.create_connection(("127.0.0.1", hosts.port))
    loud.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"x" * 100_000)
    other = hosts.start(1, script)
    assert (first.result().code, other.result().code) == (0, 0)
    silent.close()
    loud.close()


def test_something_else_listens(hosts: Hosts):
    """A launcher that finds another kind of server at the master address says so at once."""
    with socket.create_server(("127.0.0.1", hosts.port)) as server:
        launch = hosts.start(1, hosts.ddprun.script("print(RANK)"))
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"220 mail.example.org ESMTP" + b" " * 100)
            result = launch.result()
    assert result.code == 2
    assert f"what listens at 127.0.0.1:{hosts.port} is no ddprun" in result.err


def _connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
