"""How the ranks of an NCCL communicator find each other: the unique id, and that no two of them share a GPU."""

import json
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ddpflow.errors import BackendUnavailable, CommError

__all__ = ["ID_BYTES", "check_places", "encode_id", "host_name", "id_forms", "place_text"]

ID_BYTES = 128


def encode_id(unique_id: bytes | Iterable[int]) -> bytes:
    """Returns an NCCL unique id as 128 raw bytes.

    Whether a C ``char`` has a sign depends on the processor, so the numbers may be -128 to 127 or 0 to 255 (CuPy issue
    9430).

    Raises:
        CommError: It has another length.
    """
    raw = bytes(value & 0xFF for value in unique_id)
    if len(raw) != ID_BYTES:
        raise CommError(f"an NCCL unique id has {ID_BYTES} bytes, not {len(raw)}")
    return raw


def id_forms(raw: bytes) -> Iterator[Any]:
    """Yields the id as CuPy may want it: bytes; in CuPy 13 a tuple of C chars, which have a sign or not."""
    yield raw
    yield tuple(value - 256 if value > 127 else value for value in raw)
    yield tuple(raw)


def host_name() -> str:
    """Returns a name that all processes on this machine share, containers on it included."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return socket.gethostname()


def place_text(bus_id: str, device: int, count: int) -> bytes:
    """Returns what a rank tells the others of where it is."""
    return json.dumps({"host": host_name(), "bus": bus_id, "device": device, "count": count}).encode()


def check_places(ranks: Sequence[int], places: Sequence[bytes | Mapping[str, Any]], shared_ok: bool = False) -> None:
    """Refuses two ranks on one GPU, where NCCL would hang or say "invalid usage" in its log only.

    Args:
        ranks: Global ranks of the members.
        places: For each what `place_text` gave.
        shared_ok: Whether NCCL's own mode for several ranks on a GPU was asked for.

    Raises:
        BackendUnavailable: Names the ranks, the GPU, and the remedy.
    """
    found: dict[tuple[str, str], tuple[int, Mapping[str, Any]]] = {}
    known = [json.loads(place) if isinstance(place, bytes) else place for place in places]
    for rank, place in zip(ranks, known, strict=True):
        key = (place["host"], place["bus"])
        if key in found and not shared_ok:
            other, _ = found[key]
            here = sum(p["host"] == key[0] for p in known)
            remedy = (
                f"{here} ranks of this host share {place['count']} GPUs: start at most {place['count']}"
                if here > place["count"]
                else "call ddpflow.cuda.set_device(local_rank) before the first CUDA tensor is made"
            )
            raise BackendUnavailable(
                f"backend 'nccl': rank {other} and rank {rank} are both on GPU {place['device']} ({place['bus']}); "
                f"{remedy} (NCCL_MULTI_RANK_GPU_ENABLE=1 allows it where NCCL does)"
            )
        found.setdefault(key, (rank, place))
