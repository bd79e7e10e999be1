"""Which host this is, and the secret of the hosts."""

import pytest

from ddpflow.errors import ConfigError
from ddpflow.launch.nodes import place_host, rank_token, read_token
from ddpflow.launch.options import Options, parse

SLURM = {
    "SLURM_PROCID": "1",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
    "SLURM_STEP_NODELIST": "node[07-09]",
    "SLURM_JOB_ID": "1234",
    "SLURM_LOCALID": "0",
}


def place(flags: str, environ: dict[str, str]) -> tuple[int, int | None, str | None, int]:
    """Returns number of nodes, node rank, address and port."""
    options = place_host(parse([*flags.split(), "s.py"], {}), environ)
    return options.nnodes, options.node_rank, options.master_addr, options.master_port


def test_one_host_needs_nothing():
    """Without flags or a batch system, or with --standalone inside one, this is the only host."""
    assert place("", {}) == (1, None, None, 0)
    assert place("--standalone", SLURM) == (1, None, None, 0)


def test_flags():
    """Flags say it all; the port has torchrun's default."""
    assert place("--nnodes 3 --node-rank 2 --master-addr head", {}) == (3, 2, "head", 29500)
    assert place("--nnodes 3 --node-rank 0 --master-addr head --master-port 77", SLURM) == (3, 0, "head", 77)


def test_slurm():
    """Under `srun ddprun` with a task per node, Slurm says which node this is; the first one is the master."""
    assert place("", SLURM) == (3, 1, "node07", 21234)
    assert place("--master-addr 10.0.0.7", SLURM) == (3, 1, "10.0.0.7", 21234)


def test_mpiexec():
    """Under `mpiexec -ppn 1 ddprun`, MPI says which node this is, but not where they meet."""
    hydra = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
    assert place("--master-addr head", hydra) == (2, 1, "head", 29500)
    with pytest.raises(ConfigError, match="where do the nodes meet"):
        place("", hydra)


def test_kubernetes():
    """In an indexed Job the completion index is the node's rank."""
    assert place("--nnodes 4 --master-addr job-0.job", {"JOB_COMPLETION_INDEX": "3"}) == (4, 3, "job-0.job", 29500)


@pytest.mark.parametrize(
    ("flags", "environ", "message"),
    [
        ("--nnodes 2 --master-addr h", {}, "which of the 2 nodes is this"),
        ("--nnodes 2 --node-rank 1", {}, "where do the nodes meet"),
        ("--nnodes 2 --master-addr h", {"JOB_COMPLETION_INDEX": "2"}, "node rank 2 must be below"),
        (
            "",
            SLURM | {"SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "1"},
            "srun",
        ),
    ],
)
def test_what_is_missing(flags, environ, message):
    """What nobody says is asked for; several launchers on one host are a mistake with a remedy."""
    with pytest.raises(ConfigError, match=message):
        place(flags, environ)


def test_secret_of_the_hosts(tmp_path):
    """It comes from a file or the environment, and must be there and long enough."""
    path = tmp_path / "token"
    path.write_text("0123456789abcdef-from-file\n")
    assert read_token(Options(token_file=str(path)), {"DDPFLOW_JOB_TOKEN": "x" * 20}) == b"0123456789abcdef-from-file"
    assert read_token(Options(), {"DDPFLOW_JOB_TOKEN": "x" * 20}) == b"x" * 20
    for options, environ, message in (
        (Options(), {}, "set DDPFLOW_JOB_TOKEN"),
        (Options(), {"DDPFLOW_JOB_TOKEN": "short"}, "has 5 characters, and needs at least 16"),
        (Options(token_file=str(tmp_path)), {}, "cannot read --token-file .*: Is a directory"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_token(options, environ)


def test_secret_of_the_ranks():
    """The same on every host for one attempt, another for the next; random on a single host; always hexadecimal."""
    shared = b"0123456789abcdef"
    assert rank_token(shared, "r") == rank_token(shared, "r") != rank_token(shared, "r.1")
    assert rank_token(None, "r") != rank_token(None, "r")
    for token in (rank_token(shared, "r"), rank_token(None, "r")):
        assert len(bytes.fromhex(token)) >= 16
