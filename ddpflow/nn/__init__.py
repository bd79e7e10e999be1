"""Layers, losses and the `Module` they derive from."""

from ddpflow.nn.module import Module
from ddpflow.nn.parameter import Buffer, Parameter

__all__ = ["Buffer", "Module", "Parameter"]
