"""Which host of the job this is: from the command line, or from the batch system that started the launchers."""

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import replace

from ddpflow.comm.env import ProcessContext
from ddpflow.errors import ConfigError
from ddpflow.launch.options import Options

__all__ = ["place_host", "rank_token", "read_token"]

_DEFAULT_PORT = 29500
_SHORTEST_TOKEN = 16
_BATCH_SYSTEMS = ("SLURM_", "OMPI_", "PMI_", "MPI_")


def place_host(options: Options, environ: Mapping[str, str]) -> Options:
    """Returns the options with number of hosts, this host's number and the master address filled in and checked.

    Under ``srun ddprun`` or ``mpiexec ddprun``, with one task per host, the batch system knows them. In an indexed
    Kubernetes Job, JOB_COMPLETION_INDEX is the host's number.

    Raises:
        ConfigError: Something is missing, or there is more than one task per host.
    """
    if options.nnodes == 1 and not options.standalone:
        options = _from_batch_system(options, environ)
    if options.nnodes == 1:
        return options
    node_rank, index = options.node_rank, environ.get("JOB_COMPLETION_INDEX", "")
    if node_rank is None and index.isdigit():
        node_rank = int(index)
    if node_rank is None:
        raise ConfigError(f"which of the {options.nnodes} nodes is this? Say --node-rank 0 to {options.nnodes - 1}")
    if node_rank >= options.nnodes:
        raise ConfigError(f"node rank {node_rank} must be below the number of nodes, {options.nnodes}")
    if options.master_addr is None:
        raise ConfigError("where do the nodes meet? Say --master-addr: the address of node 0, the same on all nodes")
    return replace(options, node_rank=node_rank, master_port=options.master_port or _DEFAULT_PORT)


def _from_batch_system(options: Options, environ: Mapping[str, str]) -> Options:
    context = ProcessContext.from_env({k: v for k, v in environ.items() if k.startswith(_BATCH_SYSTEMS)})
    if context.world_size == 1:
        return options
    if context.local_world_size > 1:
        raise ConfigError(
            f"{context.launcher} started {context.local_world_size} launchers on this host: start one on each (srun "
            "--ntasks-per-node=1, mpiexec -ppn 1), or leave ddprun out: srun python script.py"
        )
    return replace(
        options,
        nnodes=context.n_nodes,
        node_rank=context.node_rank if options.node_rank is None else options.node_rank,
        master_addr=options.master_addr or context.master_addr or None,
        master_port=options.master_port or context.master_port,
    )


def read_token(options: Options, environ: Mapping[str, str]) -> bytes:
    """Returns the secret that the hosts share.

    Raises:
        ConfigError: There is none, it is too short, or its file cannot be read.
    """
    if options.token_file is not None:
        try:
            with open(options.token_file, "rb") as file:
                token = file.read(65536).strip()
        except OSError as error:
            raise ConfigError(f"cannot read --token-file {options.token_file}: {error.strerror}") from None
        source = f"--token-file {options.token_file}"
    else:
        token, source = environ.get("DDPFLOW_JOB_TOKEN", "").strip().encode(), "DDPFLOW_JOB_TOKEN"
    if not token:
        raise ConfigError(
            "nodes prove with a shared secret that they belong together: set DDPFLOW_JOB_TOKEN to the same value on "
            "all of them, such as the output of `openssl rand -hex 16`, or give --token-file"
        )
    if len(token) < _SHORTEST_TOKEN:
        raise ConfigError(f"the secret in {source} has {len(token)} characters, and needs at least {_SHORTEST_TOKEN}")
    return token


def rank_token(shared: bytes | None, run_id: str) -> str:
    """Returns the secret of one attempt's ranks in hexadecimal: derived from the hosts' secret, random on one host."""
    if shared is None:
        return os.urandom(16).hex()
    return hmac.new(shared, b"ranks of " + run_id.encode(), hashlib.sha256).hexdigest()
