"""PyTorch's other names."""

import pytest

import ddpflow.comm as dist
from ddpflow.errors import CommError, ConfigError
from ddpflow.testing import run_ranks


def test_what_exists():
    """Questions have answers that a script can branch on."""
    assert dist.is_available() and not dist.is_gloo_available() and not dist.is_ucc_available()
    assert dist.is_nccl_available() in (True, False) and dist.is_mpi_available() in (True, False)
    assert not dist.is_xccl_available() and not dist.is_torchelastic_launched()
    assert (
        dist.get_default_backend_for_device("cpu") == "shm" and dist.get_default_backend_for_device("cuda:1") == "nccl"
    )
    with pytest.raises(ConfigError, match="no device 'tpu'"):
        dist.get_default_backend_for_device("tpu")
    assert dist.supports_complex(dist.ReduceOp.SUM) and not dist.supports_complex(dist.ReduceOp.MAX)
    assert issubclass(dist.DistBackendError, RuntimeError) and dist.DistError is CommError


def test_local_rank(monkeypatch):
    """The fallback is for processes that nobody launched."""
    assert dist.get_node_local_rank() == 0 and dist.get_node_local_rank(fallback_rank=3) == 3
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1" if name == "LOCAL_RANK" else "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    assert dist.get_node_local_rank(fallback_rank=3) == 1 and dist.is_torchelastic_launched()


def special_groups(rank: int) -> None:
    """WORLD is the group of all ranks; outside a group one gets NON_GROUP_MEMBER."""
    assert dist.group.WORLD is dist.GroupMember.WORLD is dist.current_group()
    part = dist.new_group([1])
    assert (part == dist.GroupMember.NON_GROUP_MEMBER) is (rank == 0)
    assert dist.get_pg_count() == (1 if rank == 0 else 2)


def test_special_groups():
    """Before init there is no WORLD."""
    assert dist.group.WORLD is None and dist.get_pg_count() == 0
    run_ranks(special_groups, 2)
