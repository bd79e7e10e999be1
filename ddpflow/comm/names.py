"""Names of ``torch.distributed`` that ask what exists, or that are other words for what is here."""

from typing import Any

from ddpflow.comm.collectives import all_gather_into_tensor, reduce_scatter_tensor
from ddpflow.comm.group import ProcessGroup
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.registry import is_backend_available
from ddpflow.comm.world import NonMember, installed_world, process_context
from ddpflow.errors import CommError, ConfigError

__all__ = [
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "GroupMember",
    "all_gather_single",
    "get_default_backend_for_device",
    "get_node_local_rank",
    "get_pg_count",
    "group",
    "is_available",
    "is_gloo_available",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "reduce_scatter_single",
    "supports_complex",
]

DistError = DistBackendError = DistNetworkError = DistStoreError = CommError
all_gather_single = all_gather_into_tensor
reduce_scatter_single = reduce_scatter_tensor


class _WorldName(type):
    """Makes ``GroupMember.WORLD`` the world of the moment."""

    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The group of all ranks, or None before ``init_process_group``."""
        world = installed_world()
        return None if world is None else world.group


class GroupMember(metaclass=_WorldName):
    """PyTorch's two special groups: ``WORLD``, and what ranks outside a new group get."""

    NON_GROUP_MEMBER = NonMember("any", ())


group = GroupMember


def is_available() -> bool:
    """Returns True: communication is part of every installation."""
    return True


def is_nccl_available() -> bool:
    """Whether CuPy arrays can be communicated here."""
    return is_backend_available("nccl")


def is_mpi_available() -> bool:
    """Whether mpi4py is installed."""
    return is_backend_available("mpi")


def is_gloo_available() -> bool:
    """Returns False: CPU arrays go through "shm" or "mpi"."""
    return False


def is_ucc_available() -> bool:
    """Returns False."""
    return False


def is_xccl_available() -> bool:
    """Returns False."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher with torchrun's variables, such as ddprun, has started this process."""
    return process_context().launcher in ("ddprun", "torchrun")


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Returns this process's number on its host.

    Args:
        fallback_rank: Returned where no launcher says it.
    """
    context = process_context()
    return fallback_rank if fallback_rank is not None and context.launcher == "none" else context.local_rank


def get_pg_count() -> int:
    """Returns the number of groups that this rank is in."""
    world = installed_world()
    return 0 if world is None else len(world.groups)


def get_default_backend_for_device(device: Any) -> str:
    """Returns the transport that carries arrays of a device ("cpu", "cuda:1", a Device) by default.

    Raises:
        ConfigError: There is no such device.
    """
    kind = str(device).partition(":")[0]
    names = {"cpu": "shm", "cuda": "nccl"}
    if kind not in names:
        raise ConfigError(f"there is no device {device!r}; the devices are cpu and cuda")
    return names[kind]


def supports_complex(reduceOp: ReduceOp) -> bool:
    """Whether a reduce op is defined for complex numbers."""
    return reduceOp in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PRODUCT)
