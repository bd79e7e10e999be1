"""Optimizers with a learning rate per element: Adagrad, Adadelta, RMSprop, Rprop, and averaged SGD."""

from typing import Any

from ddpflow.errors import ValueRangeError
from ddpflow.optim.optimizer import Optimizer, Params, check_range

__all__ = ["ASGD", "Adadelta", "Adagrad", "RMSprop", "Rprop"]


def _with_penalty(param: Any, grad: Any, group: dict[str, Any]) -> Any:
    return grad + group["weight_decay"] * param if group["weight_decay"] else grad


class Adagrad(Optimizer):
    """Steps divided by the root of the sum of all squared gradients (Duchi et al. 2011).

    Args:
        params: Tensors or parameter groups.
        lr: Learning rate.
        lr_decay: Decay of the learning rate per step.
        weight_decay: Factor of the L2 penalty.
        initial_accumulator_value: Where the sums start.
        eps: Added to the denominator.
        foreach, maximize, differentiable, fused: As in `SGD`.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_range("learning rate", lr)
        check_range("lr_decay value", lr_decay)
        check_range("weight_decay value", weight_decay)
        check_range("initial_accumulator_value value", initial_accumulator_value)
        check_range("epsilon value", eps)
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def init_state(self, xp: Any, param: Any, group: dict[str, Any]) -> dict[str, Any]:
        """The sum of squared gradients."""
        return {"step": 0, "sum": xp.full_like(param, group["initial_accumulator_value"])}

    def update(self, xp: Any, param: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        grad = _with_penalty(param, grad, group)
        total = state["sum"]
        total += grad * grad
        rate = group["lr"] / (1 + (state["step"] - 1) * group["lr_decay"])
        param -= rate * (grad / (xp.sqrt(total) + group["eps"]))


class Adadelta(Optimizer):
    """Steps of the size of past steps (Zeiler 2012).

    Args:
        params: Tensors or parameter groups.
        lr: Factor of the step.
        rho: Decay of both running means.
        eps: Added under both roots.
        weight_decay: Factor of the L2 penalty.
        foreach, capturable, maximize, differentiable: As in `SGD`.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_range("learning rate", lr)
        check_range("rho value", rho, 0, 1)
        check_range("epsilon value", eps)
        check_range("weight_decay value", weight_decay)
        defaults = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**defaults, "differentiable": differentiable})

    def init_state(self, xp: Any, param: Any, group: dict[str, Any]) -> dict[str, Any]:
        """The running means of squared gradients and of squared steps."""
        return {"step": 0, "square_avg": xp.zeros_like(param), "acc_delta": xp.zeros_like(param)}

    def update(self, xp: Any, param: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        grad = _with_penalty(param, grad, group)
        rho, eps = group["rho"], group["eps"]
        square, steps = state["square_avg"], state["acc_delta"]
        square *= rho
        square += (1 - rho) * (grad * grad)
        delta = xp.sqrt(steps + eps) / xp.sqrt(square + eps) * grad
        steps *= rho
        steps += (1 - rho) * (delta * delta)
        param -= group["lr"] * delta


class RMSprop(Optimizer):
    """Steps divided by the root of the running mean of squared gradients (Hinton's lecture 6e).

    Args:
        params: Tensors or parameter groups.
        lr: Learning rate.
        alpha: Decay of the running mean.
        eps: Added after the root.
        weight_decay: Factor of the L2 penalty.
        momentum: Momentum factor.
        centered: Subtract the square of the running mean of the gradient.
        capturable, foreach, maximize, differentiable: As in `SGD`.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_range("learning rate", lr)
        check_range("epsilon value", eps)
        check_range("momentum value", momentum)
        check_range("weight_decay value", weight_decay)
        check_range("alpha value", alpha)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "alpha": alpha,
            "eps": eps,
            "centered": centered,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def init_state(self, xp: Any, param: Any, group: dict[str, Any]) -> dict[str, Any]:
        """The running means and the velocity that the options ask for."""
        state = {"step": 0, "square_avg": xp.zeros_like(param)}
        if group["momentum"] > 0:
            state["momentum_buffer"] = xp.zeros_like(param)
        if group["centered"]:
            state["grad_avg"] = xp.zeros_like(param)
        return state

    def update(self, xp: Any, param: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        grad = _with_penalty(param, grad, group)
        alpha = group["alpha"]
        square = state["square_avg"]
        square *= alpha
        square += (1 - alpha) * (grad * grad)
        if group["centered"]:
            mean = state["grad_avg"]
            mean += (1 - alpha) * (grad - mean)
            root = xp.sqrt(square - mean * mean)
        else:
            root = xp.sqrt(square)
        step = grad / (root + group["eps"])
        if group["momentum"] > 0:
            velocity = state["momentum_buffer"]
            velocity *= group["momentum"]
            velocity += step
            step = velocity
        param -= group["lr"] * step


class Rprop(Optimizer):
    """Steps by the sign of the gradient, longer while it keeps and shorter when it turns (Riedmiller and Braun 1993).

    Args:
        params: Tensors or parameter groups.
        lr: The first step's length.
        etas: Factors for a turned and for a kept sign.
        step_sizes: The shortest and the longest step.
        capturable, foreach, maximize, differentiable: As in `SGD`.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_range("learning rate", lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueRangeError(f"Invalid eta values: {etas[0]}, {etas[1]} (one below and one above 1)")
        defaults = {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize}
        super().__init__(params, {**defaults, "differentiable": differentiable})

    def init_state(self, xp: Any, param: Any, group: dict[str, Any]) -> dict[str, Any]:
        """The last gradient and each element's step."""
        return {"step": 0, "prev": xp.zeros_like(param), "step_size": xp.full_like(param, group["lr"])}

    def update(self, xp: Any, param: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        shorter, longer = group["etas"]
        kept = xp.sign(grad * state["prev"])
        step = state["step_size"]
        step *= xp.where(kept > 0, longer, xp.where(kept < 0, shorter, 1.0)).astype(step.dtype)
        xp.clip(step, group["step_sizes"][0], group["step_sizes"][1], out=step)
        grad = xp.where(kept < 0, 0, grad).astype(param.dtype)
        param -= xp.sign(grad) * step
        state["prev"][...] = grad


class ASGD(Optimizer):
    """Averaged stochastic gradient descent (Polyak and Juditsky 1992): the mean of the iterates is kept in the state.

    Args:
        params: Tensors or parameter groups.
        lr: Learning rate.
        lambd: Decay term.
        alpha: Power of the learning rate's decay.
        t0: Step at which averaging starts.
        weight_decay: Factor of the L2 penalty.
        foreach, maximize, differentiable, capturable: As in `SGD`.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_range("learning rate", lr)
        check_range("weight_decay value", weight_decay)
        defaults = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "maximize": maximize, "differentiable": differentiable})

    def init_state(self, xp: Any, param: Any, group: dict[str, Any]) -> dict[str, Any]:
        """The mean of the iterates, the current rate and the weight of the newest iterate."""
        return {"step": 0, "eta": float(group["lr"]), "mu": 1.0, "ax": xp.zeros_like(param)}

    def advance(self, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Count the step; this step's rate and weight follow from the steps before it."""
        done = state["step"]
        if done:
            state["eta"] = group["lr"] / (1 + group["lambd"] * group["lr"] * done) ** group["alpha"]
            state["mu"] = 1 / max(1, done - group["t0"])
        state["step"] = done + 1

    def update(self, xp: Any, param: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        grad = _with_penalty(param, grad, group)
        param *= 1 - group["lambd"] * state["eta"]
        param -= state["eta"] * grad
        mean = state["ax"]
        mean += state["mu"] * (param - mean)
