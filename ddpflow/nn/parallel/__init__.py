"""Data-parallel training."""

from ddpflow.nn.parallel.distributed import DistributedDataParallel

__all__ = ["DistributedDataParallel"]
