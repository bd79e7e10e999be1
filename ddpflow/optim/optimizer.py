"""The base of all optimizers: parameter groups, state, and the loop over parameters.

A subclass writes two methods about one parameter, on raw arrays: `Optimizer.init_state` and `Optimizer.update`. Large
parameters are handed to ``update`` block by block, so that the passes of one update stay in the cache; small ones side
by side, as one array.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np

from ddpflow.autograd.base import RemovableHandle, TensorBase, meta_of, wrap
from ddpflow.autograd.mode import enable_grad
from ddpflow.capture import capturing
from ddpflow.device import array_module
from ddpflow.errors import DeviceError, DtypeError, ValueRangeError
from ddpflow.optim.together import Together

__all__ = ["Optimizer", "Params", "check_range", "required_closure"]

BLOCK = 32768  # elements: a block of each of the few arrays of an update fits the L2 cache together

_HALF = ("float16", "bfloat16")


def check_range(
    name: str, value: Any, low: float = 0.0, high: float = float("inf"), *, open_high: bool = False
) -> None:
    """Refuse an option outside ``[low, high]`` (``[low, high)`` with ``open_high``).

    Raises:
        ValueRangeError: Naming the option and its value.
    """
    number = float(value)
    if not (low <= number < high if open_high else low <= number <= high):
        bound = f"[{low}, {high}{')' if open_high else ']'}"
        raise ValueRangeError(f"Invalid {name}: {value} (must be in {bound})")


class Optimizer:
    """Changes parameters by their gradients.

    Args:
        params: Tensors, or dicts with the key ``params`` and options of their own (parameter groups), or pairs
            (name, tensor) as ``named_parameters()`` gives.
        defaults: Options for groups that do not set them.

    Attributes:
        param_groups: A dict for each group: ``params`` and its options.
        state: For each parameter what is kept from step to step.

    Raises:
        DtypeError: When something among the parameters is not a tensor.
        ValueRangeError: When there are no parameters, a parameter appears twice or is not a leaf.
    """

    elementwise: ClassVar[bool] = True  # update() treats each element by itself: it may be given blocks, or several

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        if defaults.pop("differentiable", False):
            raise ValueRangeError("differentiable=True is not supported: the step itself records no graph")
        for ignored in ("foreach", "fused"):
            defaults.pop(ignored, None)  # ways of PyTorch to run the same arithmetic
        if isinstance(params, TensorBase):
            raise DtypeError("params must be an iterable of tensors or dicts, not one tensor: pass [tensor]")
        self.defaults = defaults
        self.state: dict[Any, dict[str, Any]] = {}
        self.param_groups: list[dict[str, Any]] = []
        self._pre_hooks: OrderedDict[int, Any] = OrderedDict()
        self._post_hooks: OrderedDict[int, Any] = OrderedDict()
        self._together: dict[int, Together] = {}
        groups = list(params)
        if not groups:
            raise ValueRangeError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    # --- what a subclass writes ---------------------------------------------------------------------------------------

    def init_state(self, xp: Any, param: Any, group: dict[str, Any]) -> dict[str, Any]:
        """The state of one parameter before its first step: arrays of its shape, and numbers."""
        raise NotImplementedError

    def advance(self, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Move the numbers in the state on, once a step and before `update`, where ``"step"`` is among them."""
        state["step"] += 1

    def update(self, xp: Any, param: Any, grad: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Change ``param`` (and the arrays in ``state``) in place by ``grad``, which must stay as it is."""
        raise NotImplementedError

    def update_together(self, params: list[Any], group: dict[str, Any]) -> list[Any]:
        """Step those parameters that a kernel takes all at once; returns the others, which get `update` each."""
        return params

    # --- the step -----------------------------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        Args:
            closure: Computes the loss and gradients anew and returns the loss.

        Returns:
            What the closure returned, or None.
        """
        for hook in list(self._pre_hooks.values()):
            hook(self, (), {})
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for number, group in enumerate(self.param_groups):
            options = {k: v for k, v in group.items() if k != "params"}
            for name, value in options.items():
                if isinstance(value, (np.generic, TensorBase)):  # a float64 scalar would widen float32 parameters
                    options[name] = value.item()  # type: ignore[union-attr]
            params = self.update_together(group["params"], options)
            for param in self._step_small(number, params, options) if self.elementwise else params:
                if param._grad is not None:
                    self._step_one(param, param._grad.array, options)
        for hook in list(self._post_hooks.values()):
            hook(self, (), {})
        return loss

    def _step_small(self, number: int, params: list[Any], options: dict[str, Any]) -> list[Any]:
        """Update the small parameters of a group together; returns those that are left."""
        together = self._together.get(number)
        ready = together is not None and together.gather(params, self.state)
        if ready is None:
            return params
        # An optimizer without state may want some once its options have changed.
        bare = together is not None and not together.empty and not together.state
        if together is None or not ready or (bare and self.init_state(np, together.params[:0], options)):
            together = Together(params, self.state, lambda flat: self.init_state(np, flat, options))
            self._together[number] = together
            together.gather(params, self.state)
        if not together.empty:
            if "step" in together.state:
                self.advance(together.state, options)
            self._update_blocks(np, together.params, together.grads, together.state, options)
            together.scatter()
        return together.others

    def _step_one(self, param: Any, grad: Any, options: dict[str, Any]) -> None:
        array = work = param.array
        half = array.itemsize == 2
        if half:  # float16 and bfloat16 are updated in float32
            work, grad = array.astype(np.float32), grad.astype(np.float32)
        xp = np if work.__class__ is np.ndarray else array_module(work)
        arrays = self.advanced_state(xp, param, work, options)
        self._update_blocks(xp, work, grad, arrays, options)
        if half:
            array[...] = work
        meta_of(param).version.value += 1

    def _capture_text(self, fresh: bool) -> str:
        """Why this optimizer's step cannot be part of a CUDA graph."""
        if fresh:
            return "optimizer state made while a CUDA graph is captured would start anew at each replay: step() before"
        return (
            f"{type(self).__name__} counts its steps on the host, and each replay of a CUDA graph would have the same "
            "count: call step() outside of the graph; Adam's can be captured with capturable=True, and SGD's"
        )

    def _update_blocks(self, xp: Any, work: Any, grad: Any, arrays: dict[str, Any], options: dict[str, Any]) -> None:
        """`update`, block by block where the parameter is large."""
        if options.get("maximize"):
            grad = -grad
        size = work.size
        if (
            size <= BLOCK
            or not self.elementwise
            or xp is not np
            or not (work.flags.c_contiguous and grad.flags.c_contiguous)
        ):
            self.update(xp, work, grad, arrays, options)
        else:
            flat, flat_grad = work.reshape(-1), grad.reshape(-1)
            flats = {k: v.reshape(-1) if isinstance(v, np.ndarray) else v for k, v in arrays.items()}
            for start in range(0, size, BLOCK):
                part = slice(start, start + BLOCK)
                block = {k: v[part] if isinstance(v, np.ndarray) else v for k, v in flats.items()}
                self.update(xp, flat[part], flat_grad[part], block, options)

    def advanced_state(self, xp: Any, param: Any, work: Any, options: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter in this step, made before its first: raw arrays like ``work``, and numbers."""
        state = self.state.get(param)
        fresh = not state
        if not state:
            state = self.state[param] = {
                k: v if isinstance(v, (int, float)) or v is None else wrap(v)
                for k, v in self.init_state(xp, work, options).items()
            }
        if xp is not np and state and capturing() is not None and (fresh or isinstance(state.get("step"), int | float)):
            raise DeviceError(self._capture_text(fresh))
        if "step" in state:
            self.advance(state, options)
        return {k: v.array if isinstance(v, TensorBase) else v for k, v in state.items()}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or set them to zero in place."""
        for group in self.param_groups:
            for param in group["params"]:
                if set_to_none:
                    param._grad = None
                elif param._grad is not None:
                    param._grad.array[...] = 0
                    param._grad = wrap(param._grad.array)

    # --- groups, state, hooks -----------------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group: a dict with ``params`` and options that differ from the defaults."""
        if not isinstance(param_group, dict):
            raise DtypeError(f"a parameter group is a dict, not {type(param_group).__name__}")
        group = dict(param_group)
        params = group["params"]
        if isinstance(params, set):
            raise DtypeError("the order of parameters matters: pass a list, not a set")
        params = [params] if isinstance(params, TensorBase) else list(params)
        if params and isinstance(params[0], tuple):
            group["param_names"] = [name for name, _ in params]
            params = [param for _, param in params]
        for param in params:
            if not isinstance(param, TensorBase):
                raise DtypeError(f"optimizers take tensors, not {type(param).__name__}")
            if param.node is not None:
                raise ValueRangeError("can't optimize a non-leaf Tensor; pass the leaf it was computed from")
        known = {id(p) for other in self.param_groups for p in other["params"]}
        if known.intersection(map(id, params)) or len(set(map(id, params))) != len(params):
            raise ValueRangeError("some parameters appear in more than one parameter group, or twice in one")
        group["params"] = params
        for name, default in self.defaults.items():
            group.setdefault(name, default)
        self.param_groups.append(group)

    def state_dict(self) -> dict[str, Any]:
        """State and groups with parameters replaced by their number, in PyTorch's form. Tensors are not copied."""
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for param in group["params"]:
                numbers.setdefault(id(param), len(numbers))
            groups.append({**group, "params": [numbers[id(p)] for p in group["params"]]})
        state = {numbers[id(p)]: dict(values) for p, values in self.state.items() if id(p) in numbers}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave; arrays are copied and cast to their parameter's dtype (half: float32).

        Raises:
            ValueRangeError: When the groups do not fit this optimizer's.
        """
        saved = state_dict["param_groups"]
        if [len(g["params"]) for g in saved] != [len(g["params"]) for g in self.param_groups]:
            raise ValueRangeError(
                f"loaded state has groups of {[len(g['params']) for g in saved]} parameters, "
                f"this optimizer has groups of {[len(g['params']) for g in self.param_groups]}"
            )
        numbers = [n for g in saved for n in g["params"]]
        params = [p for g in self.param_groups for p in g["params"]]
        state: dict[Any, dict[str, Any]] = {}
        for number, param in zip(numbers, params, strict=True):
            values = state_dict["state"].get(number, state_dict["state"].get(str(number)))
            if values is not None:
                state[param] = {k: _own(v, param, k) for k, v in values.items()}
        self.state = state
        for group, other in zip(self.param_groups, saved, strict=True):
            group.update({k: deepcopy(v) for k, v in other.items() if k != "params"})

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step."""
        return RemovableHandle(self._pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return RemovableHandle(self._post_hooks, hook)

    def __getstate__(self) -> dict[str, Any]:
        """All but the flat arrays: copies make their own, whose state theirs would not be a view of."""
        return {**self.__dict__, "_together": {}}

    def __repr__(self) -> str:
        lines = [type(self).__name__ + " ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines.extend(f"    {k}: {group[k]}" for k in sorted(group) if k not in ("params", "param_names"))
        return "\n".join([*lines, ")"])


def _own(value: Any, param: Any, name: str) -> Any:
    """A copy of a loaded state value; one-element step counts become numbers."""
    if isinstance(value, TensorBase):
        if name == "step" and value.array.size == 1:
            return value.array.item()
        dtype = value.array.dtype
        if dtype.kind == "f" or dtype.name in _HALF:
            dtype = np.dtype(np.float32) if param.array.dtype.name in _HALF else param.array.dtype
        xp = array_module(param.array)
        return wrap(xp.array(value.array, dtype=dtype))
    return deepcopy(value)


def required_closure(closure: Callable[[], Any] | None, name: str) -> Callable[[], Any]:
    """The closure, which some optimizers cannot do without."""
    if closure is None:
        raise DtypeError(f"{name}.step() needs a closure that computes the loss and its gradients")
    return closure


Params = Iterable[Any]
