"""Learning-rate schedules: each changes the ``lr`` of an optimizer's groups when its ``step`` is called."""

from ddpflow.optim.lr_scheduler.base import LRScheduler
from ddpflow.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from ddpflow.optim.lr_scheduler.cosine import CosineAnnealingLR, CosineAnnealingWarmRestarts
from ddpflow.optim.lr_scheduler.cycles import CyclicLR, OneCycleLR
from ddpflow.optim.lr_scheduler.factors import (
    ConstantLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from ddpflow.optim.lr_scheduler.plateau import ReduceLROnPlateau

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
