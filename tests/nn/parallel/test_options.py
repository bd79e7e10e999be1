"""Arguments of the constructor: one named error on every rank, and PyTorch's that are not needed."""

import pytest

import ddpflow
from ddpflow import nn
from ddpflow.errors import DtypeError, MismatchError, ValueRangeError
from ddpflow.nn.parallel.distributed import DistributedDataParallel as DDP

BAD = {
    "bucket_cap_mb": (-1, ValueRangeError),
    "first_bucket_mb": (0, ValueRangeError),
    "unused": ("ones", ValueRangeError),
    "buffers": ("mean", ValueRangeError),
    "device_ids": ([0, 1], ValueRangeError),
    "comm_hook": (3, DtypeError),
    "mixed_precision": ("half", DtypeError),
    "delay_all_reduce_named_params": ([("w", 1)], ValueRangeError),
    "param_to_hook_all_reduce": (1, ValueRangeError),
    "device_mesh": ("mesh", ValueRangeError),
    "bucket_cap_mb_list": ([1, 2], ValueRangeError),
}


def _wrap(rank, options, only):
    DDP(nn.Linear(2, 2), **(options if rank in only else {}))


@pytest.mark.parametrize("only", [(0, 1), (1,)], ids=["all ranks", "one rank"])
@pytest.mark.parametrize("name", BAD)
def test_what_makes_no_sense_is_named_on_every_rank(world, name, only):
    """Whoever passed it, all ranks raise the error that PyTorch's users know, with the argument's name."""
    value, kind = BAD[name]
    for error in world(_wrap, 2, {name: value}, only, return_exceptions=True):
        assert type(error) is kind
        assert f"rank {only[0]}: " in str(error) and name in str(error)


DIFFERENT = {
    "bucket_cap_mb": 0.5,
    "unused": "error",
    "broadcast_buffers": False,
    "static_graph": True,
    "mixed_precision": nn.parallel.MixedPrecision(reduce_dtype=ddpflow.float16),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_options_must_agree(world, name):
    """An option that only one rank has would lead to other collectives: both sides are named at once."""
    for error in world(_wrap, 2, {name: DIFFERENT[name]}, (1,), return_exceptions=True):
        assert isinstance(error, MismatchError)
        assert f"the option {name} differs" in str(error) and "on rank 0" in str(error)


def _not_together(rank):
    if rank == 1:
        with pytest.raises(ValueRangeError, match="bucket_cap_mb"):
            DDP(nn.Linear(2, 2), bucket_cap_mb=0, init_sync=False)
    return rank


def test_without_init_sync_nobody_waits(world):
    """Without `init_sync` there is no collective, so a bad argument is the rank's own affair."""
    assert world(_not_together) == [0, 1]


def test_what_is_not_needed_is_accepted():
    """Scripts that pass PyTorch's harmless arguments run as they are."""
    ddp = DDP(
        nn.Linear(2, 2), [0], 0, check_reduction=True, batched_grad_copy=True, gradient_as_bucket_view=False,
        forward_sync_buffers=False,
    )  # fmt: skip
    assert ddp.broadcast_buffers is False and ddp.unused == "zero"
    assert DDP(nn.Linear(2, 2), broadcast_buffers=None).broadcast_buffers is True
    assert DDP(nn.Linear(2, 2), skip_all_reduce_unused_params=True).unused == "none"
