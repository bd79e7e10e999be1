"""The life cycle of the world: init_process_group, destroy_process_group, and how a failing process says why."""

import contextlib
from datetime import timedelta
from typing import Any

from ddpflow.comm.env import CommSettings, ProcessContext
from ddpflow.comm.exits import install
from ddpflow.comm.failure import FailureRecord, FailureWatch
from ddpflow.comm.group import ProcessGroup
from ddpflow.comm.progress import Progress
from ddpflow.comm.registry import load_backend, parse_backend
from ddpflow.comm.rendezvous import agree, check_method, close_client, close_servers, explicit_context, open_store
from ddpflow.comm.store import HashStore, PrefixStore, Store
from ddpflow.comm.tcp_store import TCPStore
from ddpflow.comm.work import seconds
from ddpflow.comm.world import NonMember, World, forget_world, install_world, installed_world, main_backend, make_group
from ddpflow.errors import BackendUnavailable, CommError, ConfigError

__all__ = ["abandon_world", "destroy_process_group", "init_process_group"]

_CLOSE_S = 2.0
_FAILURE_KEY = "ddpflow/failure"
# How often this process has joined a job: each meeting has its own part of the store. The token tells jobs apart that
# got the same port one after the other.
_n_inits: dict[tuple[bytes, str, int, str], int] = {}


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: float | timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Joins the other ranks of the job; every rank calls it once, before anything that communicates.

    Args:
        backend: "shm" (CPU arrays, one host), "mpi" (CPU arrays across hosts), "nccl" (CuPy arrays), "thread" (ranks
            are threads), "solo" (one rank), or by device: "cpu:shm,cuda:nccl". None chooses by host and world size.
        init_method: "env://" (the default: the launcher's variables), "tcp://host:port" or "file:///path"; with the
            latter two, ``rank`` and ``world_size`` are needed where no launcher gives them.
        timeout: Deadline of each operation of the default group, in seconds or as a timedelta.
        world_size: Number of ranks.
        rank: Rank of this process.
        store: A store that all ranks share, in place of an init method; needs ``rank`` and ``world_size``.
        group_name: Part of the store's keys, for several worlds on one store.
        pg_options: Accepted for PyTorch's sake; must be None.
        device_id: Accepted for PyTorch's sake; the device of this rank.

    Raises:
        ConfigError: It was called before, an argument or variable is wrong, or a rank was claimed twice.
        BackendUnavailable: The transport cannot serve this job; the text gives the remedy.
        CollectiveTimeout: Ranks did not come in time; they are named.
        PeerError: A rank failed meanwhile.
    """
    if installed_world() is not None:
        raise ConfigError("init_process_group was called twice; call destroy_process_group first")
    if store is not None and init_method is not None:
        raise ConfigError("init_process_group takes a store or an init_method, not both")
    if pg_options is not None:
        raise ConfigError("pg_options are not supported; leave them out")
    check_method(init_method)
    settings = CommSettings.from_env()
    timeout_s = seconds(timeout, settings.timeout_s)
    # An unknown name is told before anybody waits.
    named = None if backend is None else parse_backend(backend)
    threads = named is not None and any(load_backend(name).ranks_are_threads for name in named.values())
    meets_elsewhere = store is not None or init_method not in (None, "env://")
    base = ProcessContext() if threads else ProcessContext.from_env_for(rank, world_size, meets_elsewhere)
    explicit = meets_elsewhere or rank >= 0 or world_size >= 0
    context = explicit_context(base, init_method, rank, world_size) if explicit else base
    chosen = _choose_backends(context) if named is None else named
    watch = FailureWatch(context.rank, context.run_dir if context.launcher == "ddprun" else None)
    root = store
    if root is None:
        if not context.master_port and init_method in (None, "env://"):
            context = main_backend(chosen).bootstrap(context)
        if context.world_size == 1 and context.launcher == "none" and init_method in (None, "env://"):
            root = HashStore(timeout_s)
        else:
            root = open_store(context, init_method, timeout_s, watch.check)
    if watch.run_dir is None and isinstance(root, TCPStore) and context.world_size > 1:
        watch.fetch = _FailureReader(root)
    address = (context.token, context.master_addr, context.master_port, init_method or "env://")
    if not threads:
        _n_inits[address] = _n_inits.get(address, 0) + 1
    part = PrefixStore(f"{group_name or 'world'}/{1 if threads or store is not None else _n_inits[address]}", root)
    what = "init_process_group"
    where = f" at {context.master_addr}:{context.master_port}" if isinstance(root, TCPStore) else ""
    everyone = range(context.world_size)
    try:
        agree(
            PrefixStore("init", part),
            context.rank,
            everyone,
            f"world_size={context.world_size} and backend={','.join(f'{d}:{used}' for d, used in chosen.items())!r}",
            what,
            timeout_s,
            where,
            watch.run_dir,
        )
        progress = Progress(watch.run_dir, context.rank)
        world = World(context, settings, part, root, store is None, watch, chosen, timeout_s, progress)
        world.group = make_group(world, "world", tuple(everyone), chosen, timeout_s)
        world.groups.append(world.group)
    except BaseException:
        if store is None:
            close_client(root)
        raise
    install_world(world, threads)
    if not threads:
        install(abandon_world, _after_report, _leave)


def _choose_backends(context: ProcessContext) -> dict[str, str]:
    """Returns the transports of a job by device; that of CuPy arrays is loaded only when one comes."""
    if context.world_size == 1:
        return {"cpu": "solo", "cuda": "solo"}
    hosts = context.n_nodes > 1 or context.launcher in ("openmpi", "mpich")
    return {"cpu": "mpi" if hosts else "shm", "cuda": "nccl"}


class _FailureReader:
    """Reads the failure published in the store, over a connection of its own."""

    def __init__(self, root: TCPStore) -> None:
        self._root = root
        self._client: TCPStore | None = None
        self._gone = False

    def __call__(self) -> bytes | None:
        if self._gone:
            return None
        try:
            if self._client is None:
                self._client = self._root.clone(1.0)
            return self._client.try_get(_FAILURE_KEY)
        except CommError:
            # Rank 0 has ended, and its store with it: asking again would only slow the waits down.
            self._gone = True
            return None

    def close(self) -> None:
        """Closes the connection."""
        if self._client is not None:
            self._client.close()


def destroy_process_group(
    group: ProcessGroup | NonMember | None = None, timeout: float | timedelta | None = None
) -> None:
    """Leaves a group, or, for None, all groups and the world; a world that was never joined is no error.

    Local: nobody is waited for beyond ``timeout`` (2 s), and peers that still wait for this rank are told that it has
        left.
    """
    limit = seconds(timeout, _CLOSE_S)
    world = installed_world()
    if isinstance(group, NonMember) or world is None:
        return
    if group is not None and group is not world.group:
        group.close(limit)
        if group in world.groups:
            world.groups.remove(group)
        return
    for member in reversed(world.groups):
        member.close(limit)
    if isinstance(world.watch.fetch, _FailureReader):
        world.watch.fetch.close()
    if world.owns_store:
        close_client(world.root_store)
    forget_world(world)


def abandon_world(error: BaseException) -> None:
    """Gives up all groups of this rank because of ``error``, and tells its peers; waits for nobody."""
    world = installed_world()
    if world is None:
        return
    record = FailureRecord.from_exception(world.rank, error, world.context.node_rank)
    _publish(world, record)


def _publish(world: World, record: FailureRecord) -> None:
    if world.watch.run_dir is not None:
        record.write(world.watch.run_dir)
    elif isinstance(world.root_store, TCPStore):
        with contextlib.suppress(CommError), contextlib.closing(world.root_store.clone(1.0)) as client:
            client.compare_set(_FAILURE_KEY, b"", record.to_json())
    for group in reversed(world.groups):
        with contextlib.suppress(CommError, OSError):
            group.abandon(record.summary())


def _after_report() -> None:
    """After an uncaught exception was printed: lets transports end the job where that is their way (MPI)."""
    world = installed_world()
    for group in world.groups if world is not None else ():
        group.crash()


def _leave() -> None:
    with contextlib.suppress(CommError, BackendUnavailable):
        destroy_process_group()
    close_servers()
