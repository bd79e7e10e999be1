"""One NCCL communicator: made by all ranks of a group together, for one GPU of each, with a stream of its own."""

import warnings
from dataclasses import dataclass
from typing import Any, Self

from ddpflow.comm.backend import GroupSpec, rank_list
from ddpflow.comm.backends.nccl_meeting import check_places, encode_id, id_forms, place_text
from ddpflow.comm.signature import Call
from ddpflow.errors import CollectiveTimeout

__all__ = ["Communicator", "load_nccl"]


def load_nccl() -> tuple[Any, str | None]:
    """Returns CuPy's NCCL module, or None and why it cannot be used."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CuPy warns where it finds no library; the reason below says it better
            from cupy.cuda import nccl
    except ImportError as error:
        return None, f"CuPy's NCCL cannot be loaded ({error}): pip install 'ddpflow[cuda13]' (or cuda12)"
    if not getattr(nccl, "available", True):
        return None, "CuPy finds no NCCL library: pip install nvidia-nccl-cu13 (or -cu12), or load libnccl yourself"
    return nccl, None


@dataclass(frozen=True)
class Communicator:
    """What operations of a group on one device need.

    Attributes:
        nccl: CuPy's NcclCommunicator.
        device: The device's number.
        stream: The communication stream; it does not wait for the default stream by itself.
    """

    nccl: Any
    device: int
    stream: Any

    @classmethod
    def meet(
        cls, spec: GroupSpec, call: Call, cupy: Any, nccl: Any, device: int, number: int, shared_ok: bool = False
    ) -> Self:
        """Makes it, together with the other ranks, which do so at the same time.

        Args:
            spec: The group.
            call: The operation that needs it; has the deadline.
            cupy: The module.
            nccl: CuPy's NCCL module.
            device: This rank's GPU.
            number: How many communicators the group has had before; equal on all ranks.
            shared_ok: Whether several ranks may share a GPU.

        Raises:
            BackendUnavailable: Two ranks are on one GPU.
            CollectiveTimeout: Ranks did not come; they are named.
        """
        store, part = spec.store, f"communicator/{number}"
        place = cupy.cuda.Device(device)
        if spec.group_rank == 0:
            store.set(f"{part}/id", encode_id(nccl.get_unique_id()))
        here = place_text(place.pci_bus_id, device, int(cupy.cuda.runtime.getDeviceCount()))
        store.set(f"{part}/place/{spec.group_rank}", here)
        keys = [f"{part}/place/{r}" for r in range(spec.size)]
        try:
            store.wait(keys, call.timeout_s)
        except CollectiveTimeout:
            missing = [spec.ranks[r] for r, key in enumerate(keys) if store.try_get(key) is None]
            group = "" if spec.name == "world" else f" in group {spec.name}"
            raise CollectiveTimeout(
                f"rank {spec.rank}: {call}{group}, the first on this device, got no answer from {rank_list(missing)} "
                f"in {call.timeout_s:g} s"
            ) from None
        check_places(spec.ranks, [store.get(key) for key in keys], shared_ok)
        unique_id = encode_id(store.get(f"{part}/id", call.timeout_s))
        with place:
            # The highest priority: a bucket that is ready goes out before compute that was launched earlier.
            stream = cupy.cuda.Stream(non_blocking=True, priority=-1)
            return cls(_join(nccl, spec, unique_id), device, stream)


def _join(nccl: Any, spec: GroupSpec, unique_id: bytes) -> Any:
    """CuPy's communicator, whichever form of the id this CuPy takes."""
    for form in id_forms(unique_id):
        try:
            return nccl.NcclCommunicator(spec.size, form, spec.group_rank)
        except (TypeError, OverflowError) as error:
            refused = error
    raise refused
