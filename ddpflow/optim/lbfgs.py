"""L-BFGS: a quasi-Newton method on all parameters at once."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ddpflow.autograd.mode import enable_grad
from ddpflow.device import array_module
from ddpflow.errors import ValueRangeError
from ddpflow.optim.optimizer import Optimizer, Params, check_range, required_closure

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """Limited-memory BFGS (Nocedal 1980) with PyTorch's options; one parameter group, a closure at each step.

    Args:
        params: Tensors.
        lr: Step length; the first is also divided by the gradient's 1-norm.
        max_iter: Iterations per step.
        max_eval: Function evaluations per step (default ``max_iter * 5 // 4``).
        tolerance_grad: Stop when no gradient is larger.
        tolerance_change: Stop when parameters or loss change less.
        history_size: How many pairs of steps and gradient changes are kept.
        line_search_fn: None or ``"strong_wolfe"``.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_range("learning rate", lr)
        if line_search_fn not in (None, "strong_wolfe"):
            raise ValueRangeError(f"line_search_fn {line_search_fn!r}: only 'strong_wolfe' is supported")
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueRangeError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def _flat_grad(self) -> Any:
        xp = array_module(self._params[0].array)
        return xp.concatenate(
            [
                xp.zeros(p.array.size, p.array.dtype) if p._grad is None else p._grad.array.reshape(-1)
                for p in self._params
            ]
        )

    def _move(self, length: float, direction: Any) -> None:
        start = 0
        for p in self._params:
            p.array += length * direction[start : start + p.array.size].reshape(p.array.shape)
            p.bump_version()
            start += p.array.size

    def _evaluate(
        self, closure: Callable[[], Any], origin: list[Any], length: float, direction: Any
    ) -> tuple[float, Any]:
        """Loss and gradient at a point on the line; the parameters return to the origin."""
        self._move(length, direction)
        loss = float(closure())
        grad = self._flat_grad()
        for p, values in zip(self._params, origin, strict=True):
            p.array[...] = values
        return loss, grad

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Run up to ``max_iter`` iterations; the closure computes the loss and its gradients.

        Returns:
            The first loss.

        Raises:
            DtypeError: Without a closure.
        """
        evaluate = enable_grad()(required_closure(closure, "LBFGS"))
        group = self.param_groups[0]
        state = self.state.setdefault(self._params[0], {"func_evals": 0, "n_iter": 0})
        first = evaluate()
        loss = float(first)
        evaluations = 1
        state["func_evals"] += 1
        grad = self._flat_grad()
        if np.abs(grad).max() <= group["tolerance_grad"]:
            return first
        direction, length = state.get("d"), state.get("t", 0.0)
        steps, changes, ro = state.get("old_stps", []), state.get("old_dirs", []), state.get("ro", [])
        scale, previous = state.get("H_diag", 1.0), state.get("prev_flat_grad")
        iteration = 0
        while iteration < group["max_iter"]:
            iteration += 1
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                direction, steps, changes, ro, scale = -grad, [], [], [], 1
            else:
                change, moved = grad - previous, direction * length
                product = float(change @ moved)
                if product > 1e-10:
                    if len(changes) == group["history_size"]:
                        for kept in (changes, steps, ro):
                            kept.pop(0)
                    changes.append(change)
                    steps.append(moved)
                    ro.append(1.0 / product)
                    scale = product / float(change @ change)
                direction = _two_loop(-grad, steps, changes, ro, scale)
            previous, previous_loss = grad.copy(), loss
            length = min(1.0, 1.0 / float(np.abs(grad).sum())) * group["lr"] if state["n_iter"] == 1 else group["lr"]
            slope = float(grad @ direction)
            if slope > -group["tolerance_change"]:
                break
            calls = 0
            if group["line_search_fn"] == "strong_wolfe":
                origin = [p.array.copy() for p in self._params]
                line = direction

                def along(t: float, origin: list[Any] = origin, line: Any = line) -> tuple[float, Any]:
                    return self._evaluate(evaluate, origin, t, line)

                loss, grad, length, calls = _strong_wolfe(along, length, direction, loss, grad, slope)
                self._move(length, direction)
            else:
                self._move(length, direction)
                if iteration != group["max_iter"]:
                    loss = float(evaluate())
                    grad = self._flat_grad()
                    calls = 1
            evaluations += calls
            state["func_evals"] += calls
            if evaluations >= group["max_eval"] or np.abs(grad).max() <= group["tolerance_grad"]:
                break
            if np.abs(direction * length).max() <= group["tolerance_change"]:
                break
            if abs(loss - previous_loss) < group["tolerance_change"]:
                break
        state.update(
            d=direction, t=length, old_stps=steps, old_dirs=changes, ro=ro, H_diag=scale, prev_flat_grad=previous
        )
        return first


def _two_loop(q: Any, steps: list[Any], changes: list[Any], ro: list[float], scale: float) -> Any:
    """The product of the inverse Hessian's estimate and ``q`` (Nocedal's two-loop recursion)."""
    factors = [0.0] * len(steps)
    for i in range(len(steps) - 1, -1, -1):
        factors[i] = float(steps[i] @ q) * ro[i]
        q = q - factors[i] * changes[i]
    r = q * scale
    for i in range(len(steps)):
        r = r + steps[i] * (factors[i] - float(changes[i] @ r) * ro[i])
    return r


def _cubic(
    x1: float, f1: float, g1: float, x2: float, f2: float, g2: float, bounds: tuple[float, float] | None = None
) -> float:
    """The minimum of the cubic through two points with slopes, within the bounds."""
    low, high = bounds if bounds is not None else ((x1, x2) if x1 <= x2 else (x2, x1))
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    if square < 0:
        return (low + high) / 2.0
    d2 = square**0.5
    best = (
        x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
        if x1 <= x2
        else x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    )
    return float(min(max(best, low), high))


def _strong_wolfe(
    along: Callable[[float], tuple[float, Any]],
    t: float,
    direction: Any,
    loss: float,
    grad: Any,
    slope: float,
    c1: float = 1e-4,
    c2: float = 0.9,
    tolerance: float = 1e-9,
    max_searches: int = 25,
) -> tuple[float, Any, float, int]:
    """A step length that meets the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6).

    Returns:
        Loss, gradient, length, and the number of evaluations.
    """
    norm = float(np.abs(direction).max())
    new_loss, new_grad = along(t)
    calls = 1
    new_slope = float(new_grad @ direction)
    t_old, loss_old, grad_old, slope_old = 0.0, loss, grad, slope
    done = False
    searches = 0
    bracket: list[tuple[float, float, Any, float]] = []
    while searches < max_searches:
        here = (t, new_loss, new_grad.copy(), new_slope)
        before = (t_old, loss_old, grad_old, slope_old)
        if new_loss > loss + c1 * t * slope or (searches > 1 and new_loss >= loss_old):
            bracket = [before, here]
            break
        if abs(new_slope) <= -c2 * slope:
            bracket, done = [here], True
            break
        if new_slope >= 0:
            bracket = [before, here]
            break
        low, high = t + 0.01 * (t - t_old), t * 10
        t_next = _cubic(t_old, loss_old, slope_old, t, new_loss, new_slope, (low, high))
        t_old, loss_old, grad_old, slope_old = here
        t = t_next
        new_loss, new_grad = along(t)
        calls += 1
        new_slope = float(new_grad @ direction)
        searches += 1
    if searches == max_searches:
        bracket = [(0.0, loss, grad, slope), (t, new_loss, new_grad, new_slope)]
    stalled = False
    low_i, high_i = (0, 1) if len(bracket) == 1 or bracket[0][1] <= bracket[-1][1] else (1, 0)
    while not done and searches < max_searches and len(bracket) == 2:
        (t0, f0, _, s0), (t1, f1, _, s1) = bracket
        if abs(t1 - t0) * norm < tolerance:
            break
        t = _cubic(t0, f0, s0, t1, f1, s1)
        low, high = min(t0, t1), max(t0, t1)
        margin = 0.1 * (high - low)
        if min(high - t, t - low) < margin:
            if stalled or t >= high or t <= low:
                t = high - margin if abs(t - high) < abs(t - low) else low + margin
                stalled = False
            else:
                stalled = True
        else:
            stalled = False
        new_loss, new_grad = along(t)
        calls += 1
        new_slope = float(new_grad @ direction)
        searches += 1
        here = (t, new_loss, new_grad.copy(), new_slope)
        if new_loss > loss + c1 * t * slope or new_loss >= bracket[low_i][1]:
            bracket[high_i] = here
            low_i, high_i = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
        else:
            if abs(new_slope) <= -c2 * slope:
                done = True
            elif new_slope * (bracket[high_i][0] - bracket[low_i][0]) >= 0:
                bracket[high_i] = bracket[low_i]
            bracket[low_i] = here
    t, new_loss, new_grad, _ = bracket[low_i if len(bracket) == 2 else 0]
    return new_loss, new_grad, t, calls
