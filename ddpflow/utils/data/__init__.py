"""Datasets, samplers and loaders under PyTorch's names."""

from ddpflow.utils.data import distributed
from ddpflow.utils.data.collate import default_collate
from ddpflow.utils.data.dataloader import DataLoader
from ddpflow.utils.data.dataset import (
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)
from ddpflow.utils.data.distributed import DistributedSampler
from ddpflow.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from ddpflow.utils.data.worker_info import WorkerInfo, get_worker_info

__all__ = [
    "BatchSampler",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "WorkerInfo",
    "default_collate",
    "distributed",
    "get_worker_info",
    "random_split",
]
