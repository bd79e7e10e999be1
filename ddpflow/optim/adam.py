"""Adam and its relatives: running means of the gradient and of its square."""

from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase, meta_of, wrap
from ddpflow.autograd.kernels import cuda
from ddpflow.device import array_module, unwrap
from ddpflow.optim.optimizer import Optimizer, Params, check_range

__all__ = ["Adam", "AdamW", "Adamax", "NAdam", "RAdam"]

_KEPT = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")  # Adam's arrays in the order of its kernel


def _check(lr: Any, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
    check_range("learning rate", lr)
    check_range("epsilon value", eps)
    check_range("beta parameter at index 0", betas[0], 0, 1, open_high=True)
    check_range("beta parameter at index 1", betas[1], 0, 1, open_high=True)
    check_range("weight_decay value", weight_decay)


def _decayed(param: Any, grad: Any, group: dict[str, Any], decoupled: bool) -> Any:
    """Apply weight decay: to the parameter itself (AdamW), or as a penalty in the gradient."""
    if group["weight_decay"]:
        if decoupled:
            param *= 1 - group["lr"] * group["weight_decay"]
        else:
            grad = grad + group["weight_decay"] * param
    return grad


def _moments(grad: Any, state: dict[str, Any], betas: tuple[float, float]) -> tuple[Any, Any]:
    """Update and give the running means of the gradient and of its square."""
    mean, square = state["exp_avg"], state["exp_avg_sq"]
    mean += (1 - betas[0]) * (grad - mean)
    square *= betas[1]
    square += (1 - betas[1]) * (grad * grad)
    return mean, square


class Adam(Optimizer):
    """Adam (Kingma and Ba 2014), as PyTorch computes it: ``eps`` is added after bias correction.

    Args:
        params: Tensors or parameter groups.
        lr: Learning rate.
        betas: Decay of the running means of the gradient and of its square.
        eps: Added to the denominator.
        weight_decay: Factor of the L2 penalty (decoupled from the gradient in `AdamW`).
        amsgrad: Use the largest of all past running means of the square (Reddi et al. 2018).
        foreach, maximize, differentiable, fused: As in PyTorch; ``differentiable=True`` is refused.
        capturable: On a GPU, count the steps there, so that `step` can be part of a CUDA graph (`ddpflow.cuda.graph`);
            the parameters are then updated one by one.
        decoupled_weight_decay: Decay as `AdamW` does.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        _check(lr, betas, eps, weight_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "capturable": capturable,
            "differentiable": differentiable,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def init_state(self, xp: Any, param: Any, group: dict[str, Any]) -> dict[str, Any]:
        """Both running means, and the largest square for AMSGrad."""
        state = {"step": 0, "exp_avg": xp.zeros_like(param), "exp_avg_sq": xp.zeros_like(param)}
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = xp.zeros_like(param)
        return state

    def advance(self, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Count the step: on the host, or for parameters on a GPU, with ``capturable``, there."""
        if group["capturable"] and not isinstance(state["step"], TensorBase):
            xp = array_module(unwrap(state["exp_avg"]))
            if xp is not np:
                state["step"] = wrap(xp.full((), state["step"], np.float32))
        state["step"] += 1

    def update_together(self, params: list[Any], group: dict[str, Any]) -> list[Any]:
        """On a GPU, one launch for all parameters of a dtype that are at the same step."""
        if group["capturable"]:  # the launch is given the step as a number
            return params
        if not params or params[0].array.__class__ is np.ndarray or type(self).update is not Adam.update:
            return params
        xp = array_module(params[0].array)
        rest: list[Any] = []
        together: dict[tuple[str, int], tuple[list[Any], ...]] = {}
        for param in params:
            array, grad = param.array, None if param._grad is None else param._grad.array
            if grad is None or not cuda.fits_as_it_is(xp, array, grad):
                rest.append(param)
                continue
            wide = array if array.itemsize > 2 or self.state.get(param) else array.astype(np.float32)
            state = self.advanced_state(xp, param, wide, group)
            kinds = together.setdefault((array.dtype.char, state["step"]), ([], [], [], [], []))
            for kind, found in zip(kinds, (array, grad, *[state.get(name) for name in _KEPT]), strict=True):
                if found is not None:
                    kind.append(found)
            meta_of(param).version.value += 1
        for (_, step), kinds in together.items():
            cuda.adam(xp, kinds, step, group)
        return rest

    def update(self, xp: Any, param: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        beta1, beta2 = group["betas"]
        grad = _decayed(param, grad, group, group["decoupled_weight_decay"])
        mean, square = _moments(grad, state, group["betas"])
        step = state["step"]
        if group["amsgrad"]:
            xp.maximum(state["max_exp_avg_sq"], square, out=state["max_exp_avg_sq"])
            square = state["max_exp_avg_sq"]
        root = xp.sqrt(square)
        root *= 1 / (1 - beta2**step) ** 0.5
        root += group["eps"]
        change = mean / root
        change *= group["lr"] / (1 - beta1**step)
        param -= change


class AdamW(Adam):
    """Adam with weight decay on the parameter itself, by ``lr * weight_decay`` (Loshchilov and Hutter 2017).

    Args:
        params: Tensors or parameter groups.
        lr: Learning rate.
        betas: Decay of the running means of the gradient and of its square.
        eps: Added to the denominator.
        weight_decay: Decay per step and unit of learning rate.
        amsgrad: Use the largest of all past running means of the square.
        maximize, foreach, capturable, differentiable, fused: As in `Adam`.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            decoupled_weight_decay=True,
        )


class Adamax(Optimizer):
    """Adam with the largest gradient instead of the mean square (Kingma and Ba 2014, section 7).

    Args:
        params: Tensors or parameter groups.
        lr: Learning rate.
        betas: Decay of the running mean and of the running maximum.
        eps: Added to the gradient's size.
        weight_decay: Factor of the L2 penalty.
        foreach, maximize, differentiable, capturable: As in `Adam`.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        _check(lr, betas, eps, weight_decay)
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**defaults, "differentiable": differentiable})

    def init_state(self, xp: Any, param: Any, group: dict[str, Any]) -> dict[str, Any]:
        """The running mean and the running maximum."""
        return {"step": 0, "exp_avg": xp.zeros_like(param), "exp_inf": xp.zeros_like(param)}

    def update(self, xp: Any, param: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        beta1, beta2 = group["betas"]
        grad = _decayed(param, grad, group, False)
        mean, largest = state["exp_avg"], state["exp_inf"]
        mean += (1 - beta1) * (grad - mean)
        largest *= beta2
        xp.maximum(largest, xp.abs(grad) + group["eps"], out=largest)
        param -= group["lr"] / (1 - beta1 ** state["step"]) * (mean / largest)


class NAdam(Optimizer):
    """Adam with Nesterov momentum (Dozat 2016).

    Args:
        params: Tensors or parameter groups.
        lr: Learning rate.
        betas: Decay of the running means of the gradient and of its square.
        eps: Added to the denominator.
        weight_decay: Factor of the L2 penalty.
        momentum_decay: How fast the momentum approaches its limit.
        decoupled_weight_decay: Decay the parameter itself, as `AdamW` does.
        foreach, maximize, capturable, differentiable: As in `Adam`.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        _check(lr, betas, eps, weight_decay)
        check_range("momentum_decay value", momentum_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def init_state(self, xp: Any, param: Any, group: dict[str, Any]) -> dict[str, Any]:
        """Both running means and the product of all momenta so far."""
        return {"step": 0, "mu_product": 1.0, "exp_avg": xp.zeros_like(param), "exp_avg_sq": xp.zeros_like(param)}

    def advance(self, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Count the step and multiply its momentum in."""
        state["step"] += 1
        state["mu_product"] *= group["betas"][0] * (1 - 0.5 * 0.96 ** (state["step"] * group["momentum_decay"]))

    def update(self, xp: Any, param: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        beta1, beta2 = group["betas"]
        step, decay = state["step"], group["momentum_decay"]
        grad = _decayed(param, grad, group, group["decoupled_weight_decay"])
        mean, square = _moments(grad, state, group["betas"])
        mu = beta1 * (1 - 0.5 * 0.96 ** (step * decay))
        mu_next = beta1 * (1 - 0.5 * 0.96 ** ((step + 1) * decay))
        product = state["mu_product"]
        denominator = xp.sqrt(square / (1 - beta2**step)) + group["eps"]
        param -= group["lr"] * (1 - mu) / (1 - product) * (grad / denominator)
        param -= group["lr"] * mu_next / (1 - product * mu_next) * (mean / denominator)


class RAdam(Optimizer):
    """Adam with a rectified learning rate in the first steps (Liu et al. 2019).

    Args:
        params: Tensors or parameter groups.
        lr: Learning rate.
        betas: Decay of the running means of the gradient and of its square.
        eps: Added to the denominator.
        weight_decay: Factor of the L2 penalty.
        decoupled_weight_decay: Decay the parameter itself, as `AdamW` does.
        foreach, maximize, capturable, differentiable: As in `Adam`.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        _check(lr, betas, eps, weight_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def init_state(self, xp: Any, param: Any, group: dict[str, Any]) -> dict[str, Any]:
        """Both running means."""
        return {"step": 0, "exp_avg": xp.zeros_like(param), "exp_avg_sq": xp.zeros_like(param)}

    def update(self, xp: Any, param: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step of one parameter."""
        beta1, beta2 = group["betas"]
        step = state["step"]
        grad = _decayed(param, grad, group, group["decoupled_weight_decay"])
        mean, square = _moments(grad, state, group["betas"])
        correction2 = 1 - beta2**step
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / correction2
        update = mean * (group["lr"] / (1 - beta1**step))
        if length > 5:
            rectified = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
            update = update * (rectified**0.5 * correction2**0.5 / (xp.sqrt(square) + group["eps"]))
        param -= update
