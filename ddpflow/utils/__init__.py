"""What training scripts need beside models and optimizers."""

from ddpflow.utils import data

__all__ = ["data"]
