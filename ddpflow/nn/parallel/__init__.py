"""Data-parallel training, and what goes with it.

Communication hooks are in `comm_hooks`, `compression` and `powersgd`, functions with gradients in `collectives`.
"""

from ddpflow.nn.modules.data_parallel import DataParallel
from ddpflow.nn.parallel import collectives, comm_hooks, compression, powersgd
from ddpflow.nn.parallel.collectives import AllReduce
from ddpflow.nn.parallel.distributed import DistributedDataParallel
from ddpflow.nn.parallel.join import Join
from ddpflow.nn.parallel.mixed_precision import MixedPrecision
from ddpflow.nn.parallel.sync_batchnorm import SyncBatchNorm, convert_sync_batchnorm

__all__ = [
    "AllReduce",
    "DataParallel",
    "DistributedDataParallel",
    "Join",
    "MixedPrecision",
    "SyncBatchNorm",
    "collectives",
    "comm_hooks",
    "compression",
    "convert_sync_batchnorm",
    "powersgd",
]
