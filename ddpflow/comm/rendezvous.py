"""How ranks meet: the store of an init method, and the proof that all of them are there and mean the same."""

import errno
import sys
import time
from collections.abc import Callable, Sequence
from urllib.parse import parse_qs, urlsplit

from ddpflow.comm.env import ProcessContext
from ddpflow.comm.failure import ended_ranks
from ddpflow.comm.file_store import FileStore
from ddpflow.comm.store import Store
from ddpflow.comm.tcp_store import TCPStore
from ddpflow.errors import CollectiveTimeout, CommError, ConfigError, MismatchError, PeerError

__all__ = ["agree", "check_method", "close_client", "close_servers", "explicit_context", "open_store"]

_QUIET_S = 5.0
_LOOK_S = 0.5
_TWIN_S = 5.0
# Servers of this process by address: they outlive a destroyed group, so that a later init on the same address works.
_served: dict[tuple[str, int], TCPStore] = {}


def check_method(init_method: str | None) -> None:
    """Checks that an init method is of a known kind.

    Raises:
        ConfigError: It is not.
    """
    if urlsplit(init_method or "env://").scheme not in ("env", "tcp", "file"):
        raise ConfigError(f"init_method {init_method!r} is not understood; use env://, tcp://host:port or file:///path")


def explicit_context(base: ProcessContext, init_method: str | None, rank: int, world_size: int) -> ProcessContext:
    """Returns the place of this process that ``init_process_group``'s arguments describe.

    Args:
        base: What the environment says.
        init_method: ``tcp://host:port``, ``file:///path`` or None; rank and size may stand in its query.
        rank: Global rank, or -1.
        world_size: Number of ranks, or -1.

    Raises:
        ConfigError: The arguments are incomplete or contradict each other.
    """
    url = urlsplit(init_method or "")
    query = parse_qs(url.query)
    try:
        rank = int(query["rank"][0]) if rank < 0 and "rank" in query else rank
        world_size = int(query["world_size"][0]) if world_size < 0 and "world_size" in query else world_size
        port = url.port
    except ValueError as error:
        raise ConfigError(f"init_method {init_method!r}: {error}") from error
    if rank < 0 and world_size < 0 and base.launcher != "none":
        rank, world_size = base.rank, base.world_size
    if rank < 0 or world_size < 1:
        raise ConfigError(
            f"init_process_group needs both rank and world_size here, got rank={rank} and world_size={world_size}"
        )
    if rank >= world_size:
        raise ConfigError(f"rank={rank} must be below world_size={world_size}")
    if url.scheme == "tcp":
        if not url.hostname or port is None:
            raise ConfigError(f"init_method {init_method!r} must look like tcp://10.0.0.1:29500")
        return base.with_rank(rank, world_size, url.hostname, port)
    return base.with_rank(rank, world_size, base.master_addr, base.master_port)


def open_store(
    context: ProcessContext, init_method: str | None, timeout_s: float, on_idle: Callable[[], None]
) -> Store:
    """Opens the job's store: a file for ``file://``, else TCP at the context's master address, served by rank 0.

    Raises:
        ConfigError: No address is known.
        CommError: The store cannot be reached; the text says why.
    """
    url = urlsplit(init_method or "env://")
    if url.scheme == "file":
        path = url.netloc + url.path
        if not path:
            raise ConfigError(f"init_method {init_method!r} must look like file:///tmp/job-store")
        store = FileStore(path, context.world_size, timeout_s)
        store.on_idle = on_idle
        return store
    if not context.master_addr or not context.master_port:
        raise ConfigError(
            f"{context.launcher} does not say where rank 0 is: set MASTER_ADDR and MASTER_PORT for all ranks, "
            "or use backend='mpi'"
        )
    where = (context.master_addr, context.master_port)
    if context.rank != 0 or where in _served:
        return TCPStore(*where, timeout=timeout_s, token=context.token, on_idle=on_idle)
    try:
        served = TCPStore(
            *where,
            is_master=True,
            timeout=timeout_s,
            listen_fd=context.store_fd,
            token=context.token,
            on_idle=on_idle,
        )
    except CommError as error:
        if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EADDRINUSE:
            raise
        try:
            # Perhaps another process of this job has rank 0 as well: then all of them shall learn it.
            return TCPStore(*where, timeout=min(timeout_s, _TWIN_S), token=context.token, on_idle=on_idle)
        except CommError:
            raise error from None
    _served[where] = served
    return served


def agree(
    store: Store,
    rank: int,
    ranks: Sequence[int],
    text: str,
    what: str,
    timeout_s: float,
    where: str = "",
    run_dir: str | None = None,
) -> None:
    """Returns once all ``ranks`` have called it on the same store part with the same ``text``.

    Whatever is wrong ends the call on every rank with the same error.

    Args:
        store: A part of the store that nothing else uses.
        rank: Own global rank.
        ranks: Global ranks that take part.
        text: What must be equal on all of them.
        what: What the ranks are doing, for errors: "init_process_group".
        timeout_s: Deadline.
        where: Where they meet, for the notice printed after 5 s.
        run_dir: Run directory of the launcher, which tells which ranks have ended.

    Raises:
        ConfigError: Two processes claim one rank.
        MismatchError: The texts differ; both are shown.
        CollectiveTimeout: Ranks did not come; all of them are named.
        PeerError: A rank has failed, or has ended without coming.
    """
    try:
        if store.add(f"claim/{rank}", 1) > 1:
            twice = f"rank {rank} was claimed twice: two processes have it, or another job left or uses this store"
            store.compare_set("go", "", f"config {twice}")
            raise ConfigError(f"{what}: {twice}")
        first = store.compare_set("text", "", f"{rank} {text}").decode()
        other, _, other_text = first.partition(" ")
        if other_text != text:
            store.compare_set("go", "", f"mismatch rank {other} says {other_text}, but rank {rank} says {text}")
        elif store.add("arrived", 1) == len(ranks):
            store.compare_set("go", "", "ok")
        _await_verdict(store, rank, ranks, what, timeout_s, where, run_dir)
        verdict, _, reason = store.get("go").decode().partition(" ")
    except PeerError as error:
        raise PeerError(f"rank {rank}: {what} cannot finish: {error}") from None
    if verdict != "ok":
        kinds = {"config": ConfigError, "mismatch": MismatchError, "timeout": CollectiveTimeout, "peer": PeerError}
        raise kinds.get(verdict, CommError)(f"rank {rank}: {what}: {reason}")


def _await_verdict(
    store: Store, rank: int, ranks: Sequence[int], what: str, timeout_s: float, where: str, run_dir: str | None
) -> None:
    """Returns once the key "go" exists; writes it when the deadline passes or a rank has ended without coming."""
    start = time.monotonic()
    told = False
    while True:
        left = start + timeout_s - time.monotonic()
        try:
            store.wait(["go"], max(0.001, min(_LOOK_S, left)))
            return
        except CollectiveTimeout:
            absent = [r for r in ranks if not store.check([f"claim/{r}"])]
        names = ", ".join(map(str, absent))
        ended = ended_ranks(run_dir).intersection(absent) if run_dir is not None else set()
        if ended:
            store.compare_set("go", "", f"peer rank {min(ended)} has ended without calling it")
        elif time.monotonic() - start >= timeout_s:
            store.compare_set("go", "", f"timeout ranks {{{names}}} did not come in {timeout_s:g} s{where}")
        elif not told and time.monotonic() - start >= _QUIET_S:
            told = True
            sys.stderr.write(f"ddpflow: rank {rank}: {what} waits for ranks {{{names}}}{where}\n")
            sys.stderr.flush()


def close_client(store: Store) -> None:
    """Closes a store that ``open_store`` returned, except where this process serves it: others may still need it."""
    if store not in _served.values():
        store.close()


def close_servers(linger_s: float = 2.0) -> None:
    """Closes the stores that this process serves, once the other ranks have left them or ``linger_s`` has passed."""
    while _served:
        _served.popitem()[1].close(linger_s)
