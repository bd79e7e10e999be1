"""Optimizers and learning-rate schedules under PyTorch's names."""

from ddpflow.optim import lr_scheduler
from ddpflow.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from ddpflow.optim.adaptive import ASGD, Adadelta, Adagrad, RMSprop, Rprop
from ddpflow.optim.averaging import PeriodicModelAverager, average_parameters, broadcast_optimizer_state
from ddpflow.optim.lbfgs import LBFGS
from ddpflow.optim.optimizer import Optimizer
from ddpflow.optim.sgd import SGD
from ddpflow.optim.zero import ZeroRedundancyOptimizer

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "NAdam",
    "Optimizer",
    "PeriodicModelAverager",
    "RAdam",
    "RMSprop",
    "Rprop",
    "ZeroRedundancyOptimizer",
    "average_parameters",
    "broadcast_optimizer_state",
    "lr_scheduler",
]
