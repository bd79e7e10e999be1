"""Stochastic gradient descent."""

from typing import Any

from ddpflow.errors import ValueRangeError
from ddpflow.optim.optimizer import Optimizer, Params, check_range

__all__ = ["SGD"]


class SGD(Optimizer):
    """Gradient descent with momentum, dampening, Nesterov momentum and weight decay.

    The velocity is ``v = momentum * v + (1 - dampening) * g`` (the first is ``g`` itself) and the step ``p -= lr * v``,
    or ``p -= lr * (g + momentum * v)`` with Nesterov. Source: PyTorch's SGD, which follows Sutskever et al. 2013
    but for where the learning rate stands.

    Args:
        params: Tensors or parameter groups.
        lr: Learning rate.
        momentum: Momentum factor.
        dampening: Dampening of the gradient in the velocity.
        weight_decay: Factor of the L2 penalty, added to the gradient.
        nesterov: Use Nesterov momentum; needs momentum and no dampening.
        maximize: Go up instead of down.
        foreach, differentiable, fused: As in PyTorch; ``differentiable=True`` is refused, the others change nothing.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_range("learning rate", lr)
        check_range("momentum value", momentum)
        check_range("weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueRangeError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def init_state(self, xp: Any, param: Any, group: dict[str, Any]) -> dict[str, Any]:
        """A velocity, when there is momentum."""
        if not group["momentum"]:
            return {}
        state = {"momentum_buffer": xp.zeros_like(param)}
        # From zeros the first velocity is the gradient itself; only with dampening the first step must be known.
        return {**state, "step": 0} if group["dampening"] else state

    def update(self, xp: Any, param: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        if group["weight_decay"]:
            grad = grad + group["weight_decay"] * param
        momentum = group["momentum"]
        if momentum:
            velocity = state["momentum_buffer"]
            velocity *= momentum
            velocity += grad if state.get("step", 1) == 1 else (1 - group["dampening"]) * grad
            grad = grad + momentum * velocity if group["nesterov"] else velocity
        param -= group["lr"] * grad
