"""Automatic differentiation: ops, graph, engine, tensors."""

from ddpflow.autograd import function, functional
from ddpflow.autograd.anomaly import detect_anomaly, is_anomaly_enabled, set_detect_anomaly
from ddpflow.autograd.engine import backward, grad
from ddpflow.autograd.function import Function
from ddpflow.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from ddpflow.autograd.mode import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = [
    "Function",
    "GradcheckError",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "function",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_anomaly_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
]
