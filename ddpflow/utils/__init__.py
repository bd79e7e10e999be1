"""What training scripts need beside models and optimizers."""

from ddpflow.utils import data
from ddpflow.utils.agreed_stop import AgreedStop
from ddpflow.utils.checkpoint_manager import CheckpointManager

__all__ = ["AgreedStop", "CheckpointManager", "data"]
