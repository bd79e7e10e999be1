"""The process context and the settings, from each launcher's variables."""

import pytest

from ddpflow.comm.env import CommSettings, ProcessContext
from ddpflow.errors import ConfigError

HAND = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def test_none():
    """Without variables, or with empty ones, the process is a world of one."""
    for environ in ({}, {"RANK": "", "WORLD_SIZE": " "}, {"HOME": "/root"}):
        context = ProcessContext.from_env(environ)
        assert (context.rank, context.world_size, context.launcher) == (0, 1, "none")


def test_by_hand():
    """The five variables make a job; what else there is to know is derived."""
    context = ProcessContext.from_env({**HAND, "LOCAL_WORLD_SIZE": "2"})
    assert (context.rank, context.world_size, context.local_rank, context.local_world_size) == (3, 4, 1, 2)
    assert (context.node_rank, context.n_nodes, context.launcher) == (1, 2, "env")
    assert (context.master_addr, context.master_port) == ("10.0.0.1", 29500)
    context = ProcessContext.from_env({**HAND, "LOCAL_RANK": "", "LOCAL_WORLD_SIZE": "2"})
    assert context.local_rank == 1


def test_ddprun_and_torchrun():
    """Launchers are told apart by their run id, and ddprun's own variables are read."""
    more = {
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "DDPFLOW_STORE_FD": "7",
        "DDPFLOW_JOB_TOKEN": "00ff" * 8,
        "DDPFLOW_RUN_ID": "abc",
        "DDPFLOW_RUN_DIR": "/tmp/x",
        "DDPFLOW_RESTART_COUNT": "2",
    }
    context = ProcessContext.from_env({**HAND, **more})
    assert context.launcher == "ddprun" and context.token == b"\x00\xff" * 8
    assert (context.store_fd, context.run_id, context.run_dir, context.restart_count) == (7, "abc", "/tmp/x", 2)
    assert ProcessContext.from_env({**HAND, "TORCHELASTIC_RUN_ID": "t"}).launcher == "torchrun"


def test_token_without_a_secret():
    """Without a secret, the token still tells jobs apart, and is the same on all ranks."""
    a = ProcessContext.from_env(HAND)
    b = ProcessContext.from_env({**HAND, "RANK": "0", "LOCAL_RANK": "0"})
    c = ProcessContext.from_env({**HAND, "MASTER_PORT": "29501"})
    assert a.token == b.token != c.token and len(a.token) == 32


def test_mpi_launchers():
    """Open MPI and MPICH say rank, size and their local forms."""
    openmpi = {
        "OMPI_COMM_WORLD_RANK": "5",
        "OMPI_COMM_WORLD_SIZE": "8",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    }
    context = ProcessContext.from_env(openmpi)
    assert (context.rank, context.world_size, context.local_rank, context.local_world_size) == (5, 8, 1, 4)
    assert (context.n_nodes, context.node_rank, context.launcher, context.master_port) == (2, 1, "openmpi", 0)
    mpich = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    context = ProcessContext.from_env(mpich)
    assert (context.rank, context.world_size, context.n_nodes, context.launcher) == (1, 2, 1, "mpich")


def test_slurm():
    """Srun's variables are read, uneven hosts included; its variables of a batch script alone are not a job."""
    srun = {
        "SLURM_PROCID": "4",
        "SLURM_STEP_NUM_TASKS": "5",
        "SLURM_LOCALID": "0",
        "SLURM_NODEID": "2",
        "SLURM_STEP_NUM_NODES": "3",
        "SLURM_STEP_TASKS_PER_NODE": "2(x2),1",
        "SLURM_STEP_NODELIST": "gpu[03-05],login",
        "SLURM_JOB_ID": "1234",
    }
    context = ProcessContext.from_env(srun)
    assert (context.rank, context.world_size, context.local_world_size, context.node_rank) == (4, 5, 1, 2)
    assert (context.master_addr, context.master_port, context.launcher) == ("gpu03", 21234, "slurm")
    assert ProcessContext.from_env({"SLURM_PROCID": "0", "SLURM_NTASKS": "5"}).launcher == "none"
    # Hydra starts its proxies with srun: the ranks are then MPICH's.
    assert ProcessContext.from_env({**srun, "PMI_RANK": "1", "PMI_SIZE": "9"}).rank == 1


@pytest.mark.parametrize("name", [name for name in HAND if name != "RANK"])
def test_a_missing_variable_is_named(name):
    """A partial set is an error that names what is missing and what is there."""
    environ = {k: v for k, v in HAND.items() if k != name}
    with pytest.raises(ConfigError, match=f"{name} not set although RANK"):
        ProcessContext.from_env(environ)


def test_all_problems_at_once():
    """One error lists every problem, with its value."""
    environ = {
        **HAND,
        "RANK": "four",
        "LOCAL_RANK": "9",
        "MASTER_PORT": "99999",
        "GROUP_RANK": "2",
        "GROUP_WORLD_SIZE": "2",
    }
    with pytest.raises(ConfigError) as caught:
        ProcessContext.from_env({**environ, "DDPFLOW_JOB_TOKEN": "xyz"})
    text = str(caught.value)
    for part in ("RANK='four'", "LOCAL_RANK=9", "MASTER_PORT=99999", "GROUP_RANK=2", "DDPFLOW_JOB_TOKEN", "ddprun"):
        assert part in text
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"RANK": "4"}, "RANK=4 must be below WORLD_SIZE=4"),
        ({"LOCAL_WORLD_SIZE": "5"}, "LOCAL_WORLD_SIZE=5 must not exceed"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE=0 must be at least 1"),
        ({"RANK": "-1"}, "RANK=-1 must be at least 0"),
        ({"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"}, "LOCAL_RANK=2 must be below LOCAL_WORLD_SIZE=2"),
    ],
)
def test_contradictions(change, text):
    """Values that exclude each other are named together."""
    with pytest.raises(ConfigError, match=text):
        ProcessContext.from_env({**HAND, **change})


def test_rank_and_size_as_arguments():
    """The variables then need not have them, and need no address either where that is an argument too."""
    address = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    context = ProcessContext.from_env_for(1, 3, False, address)
    assert (context.rank, context.world_size, context.local_rank, context.master_port) == (1, 3, 1, 29500)
    assert ProcessContext.from_env_for(1, 3, True, address).launcher == "none"
    with pytest.raises(ConfigError, match="MASTER_ADDR, MASTER_PORT not set"):
        ProcessContext.from_env_for(1, 3, False, {})
    assert ProcessContext.from_env_for(0, 1, True, HAND).rank == 3
    with pytest.raises(ConfigError, match="WORLD_SIZE"):
        ProcessContext.from_env_for(-1, -1, True, {"RANK": "1"})


def test_explicit_rank():
    """An explicit place replaces the launcher's, and keeps what still holds."""
    base = ProcessContext.from_env({**HAND, "LOCAL_WORLD_SIZE": "2"})
    same = base.with_rank(3, 4, "10.0.0.1", 29500)
    assert same == base
    launched = ProcessContext(rank=1, world_size=2, master_addr="h", master_port=1, store_fd=5, launcher="ddprun")
    assert launched.with_rank(1, 2, "h", 1).store_fd == 5 and launched.with_rank(1, 2, "other", 1).store_fd is None
    other = ProcessContext().with_rank(1, 3, "127.0.0.1", 5000)
    assert (other.rank, other.world_size, other.local_rank, other.local_world_size) == (1, 3, 1, 3)
    assert other.token == ProcessContext().with_rank(0, 3, "127.0.0.1", 5000).token


def test_settings():
    """Settings have defaults, are read from their variables, and refuse nonsense by name."""
    assert CommSettings.from_env({}) == CommSettings()
    settings = CommSettings.from_env({"DDPFLOW_TIMEOUT_S": "2.5", "DDPFLOW_CHUNK_BYTES": "80"})
    assert (settings.timeout_s, settings.chunk_bytes) == (2.5, 80)
    with pytest.raises(ConfigError, match=r"DDPFLOW_TIMEOUT_S='0'.*DDPFLOW_STALL_WARNING_S='soon'"):
        CommSettings.from_env({"DDPFLOW_TIMEOUT_S": "0", "DDPFLOW_STALL_WARNING_S": "soon"})
