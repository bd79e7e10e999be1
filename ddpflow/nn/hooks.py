"""Hooks of modules: functions that see, and may change, what goes in and out, forward and backward."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ddpflow.autograd.base import RemovableHandle, alias, wrap
from ddpflow.autograd.mode import is_grad_enabled
from ddpflow.autograd.node import Node, Select
from ddpflow.autograd.tensor import Tensor
from ddpflow.autograd.zeros import StaticZeros
from ddpflow.errors import AutogradError, DtypeError

__all__ = ["Hook", "HookedCall"]


@dataclass(frozen=True)
class Hook:
    """A forward hook and how it wants to be called."""

    function: Callable[..., Any]
    with_kwargs: bool = False
    always_call: bool = False


class HookedCall:
    """The part of a module that calls ``forward`` with hooks around it."""

    forward: Callable[..., Any]
    _forward_hooks: dict[int, Hook]
    _forward_pre_hooks: dict[int, Hook]
    _backward_hooks: dict[int, Callable[..., Any]]
    _backward_pre_hooks: dict[int, Callable[..., Any]]

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before each forward; what it returns, if not None, replaces the arguments.

        Args:
            hook: The function; a single returned value that is no tuple counts as one argument.
            prepend: Run before the hooks registered so far.
            with_kwargs: Call ``hook(module, args, kwargs)``, which returns None or ``(args, kwargs)``.

        Returns:
            A handle whose ``remove()`` takes the hook out.
        """
        return _register(self._forward_pre_hooks, Hook(hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args, output)`` after each forward; what it returns, if not None, replaces the output.

        Args:
            hook: The function.
            prepend: Run before the hooks registered so far.
            with_kwargs: Call ``hook(module, args, kwargs, output)``.
            always_call: Call it also when the forward raised (with the output None).

        Returns:
            A handle whose ``remove()`` takes the hook out.
        """
        return _register(self._forward_hooks, Hook(hook, with_kwargs, always_call), prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` once the gradients of the module's inputs are known.

        Both are tuples, with None for what is no tensor or gets no gradient, and hold only positional arguments. What
        the hook returns, if not None, replaces ``grad_input``.

        Args:
            hook: The function.
            prepend: Run before the hooks registered so far.

        Returns:
            A handle whose ``remove()`` takes the hook out.
        """
        return _register(self._backward_hooks, hook, prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` before the module's backward; a returned tuple replaces ``grad_output``.

        Args:
            hook: The function.
            prepend: Run before the hooks registered so far.

        Returns:
            A handle whose ``remove()`` takes the hook out.
        """
        return _register(self._backward_pre_hooks, hook, prepend)

    register_backward_hook = register_full_backward_hook

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What ``module(...)`` does when the module has hooks."""
        output: Any = None
        called: set[int] = set()
        try:
            for hook in list(self._forward_pre_hooks.values()):
                args, kwargs = _run_pre_hook(hook, self, args, kwargs)
            backward: _BackwardHooks | None = None
            if self._backward_hooks or self._backward_pre_hooks:
                backward = _BackwardHooks(self)
                args = backward.around_inputs(args)
            output = self.forward(*args, **kwargs)
            for number, hook in list(self._forward_hooks.items()):
                called.add(number)
                changed = _run_forward_hook(hook, self, args, kwargs, output)
                if changed is not None:
                    output = changed
            return output if backward is None else backward.around_outputs(output)
        except Exception:
            for number, hook in list(self._forward_hooks.items()):
                if hook.always_call and number not in called:
                    try:
                        _run_forward_hook(hook, self, args, kwargs, output)
                    except Exception as error:
                        warnings.warn(
                            f"a forward hook with always_call=True raised {error!r}, lost to forward's error",
                            stacklevel=3,
                        )
            raise


def _register(hooks: dict[int, Any], hook: Any, prepend: bool) -> RemovableHandle:
    handle = RemovableHandle(hooks, hook)
    if prepend:
        later = {number: other for number, other in hooks.items() if number != handle.id}
        hooks.clear()
        hooks[handle.id] = hook
        hooks.update(later)
    return handle


def _run_pre_hook(
    hook: Hook, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not hook.with_kwargs:
        result = hook.function(module, args)
        if result is None:
            return args, kwargs
        return (result if isinstance(result, tuple) else (result,)), kwargs
    result = hook.function(module, args, kwargs)
    if result is None:
        return args, kwargs
    if not (isinstance(result, tuple) and len(result) == 2):
        raise AutogradError(f"a forward pre-hook with kwargs must return None or (args, kwargs), not {result!r}")
    return result


def _run_forward_hook(hook: Hook, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    if hook.with_kwargs:
        return hook.function(module, args, kwargs, output)
    return hook.function(module, args, output)


class _BackwardHooks:
    """The backward hooks of one call: boundaries around the inputs and the outputs see the gradients pass."""

    def __init__(self, module: HookedCall) -> None:
        self.module = module
        self.hooks = list(module._backward_hooks.values())
        self.pre_hooks = list(module._backward_pre_hooks.values())
        self.grad_outputs: tuple[Any, ...] = ()
        self.input_count = 0
        self.inputs_want_grad = False

    def around_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.input_count = len(args)
        args, self.inputs_want_grad = _boundary(args, self._see_grad_inputs)
        return args

    def around_outputs(self, output: Any) -> Any:
        if not isinstance(output, (Tensor, tuple)):
            warnings.warn(
                "backward hooks need a module that returns a tensor or a tuple of tensors, not "
                f"{type(output).__name__}; they will not be called",
                stacklevel=4,
            )
            return output
        outputs, _ = _boundary(output if isinstance(output, tuple) else (output,), self._see_grad_outputs)
        return outputs if isinstance(output, tuple) else outputs[0]

    def _see_grad_outputs(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.pre_hooks:
            changed = hook(self.module, grads)
            if changed is not None:
                grads = _checked(changed, grads, "backward pre-hook", "grad_output")
        self.grad_outputs = grads
        if not self.inputs_want_grad:
            for hook in self.hooks:
                changed = hook(self.module, (None,) * self.input_count, grads)
                if changed is not None and not (isinstance(changed, tuple) and all(g is None for g in changed)):
                    raise AutogradError(
                        "a backward hook of a module none of whose inputs requires a gradient must return None"
                    )
            self.grad_outputs = ()
        return grads

    def _see_grad_inputs(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.hooks:
            changed = hook(self.module, grads, self.grad_outputs)
            if changed is not None:
                grads = _checked(changed, grads, "backward hook", "grad_input")
        self.grad_outputs = ()
        return grads


def _checked(changed: Any, grads: tuple[Any, ...], what: str, name: str) -> tuple[Any, ...]:
    new: tuple[Any, ...] = changed if isinstance(changed, tuple) else (changed,)
    if len(new) != len(grads):
        raise AutogradError(f"a {what} returned {len(new)} values for {len(grads)} in {name}")
    for g in new:
        if g is not None and not isinstance(g, Tensor):
            raise DtypeError(f"a {what} must return tensors or None, not {type(g).__name__}")
    return new


class _Boundary:
    """The definition that boundary nodes point to: the identity, seen by a function on the way back."""

    name = "module_boundary"
    composite = None
    params: tuple[str, ...] = ()

    def __init__(self, see: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> None:
        self.see = see

    def tensor_vjps(self, node: Node) -> Any:
        """The same over tensors, for ``create_graph``."""
        return self.see


def _boundary(
    values: tuple[Any, ...], see: Callable[[tuple[Any, ...]], tuple[Any, ...]]
) -> tuple[tuple[Any, ...], bool]:
    """Pass the tensors that want a gradient through one identity node; ``see`` gets all gradients at once, as tensors.

    Returns:
        The values with those tensors replaced, and whether there were any.
    """
    places = [i for i, value in enumerate(values) if isinstance(value, Tensor) and value.requires_grad]
    if not places or not is_grad_enabled():
        return values, False

    def spread(grads: tuple[Any, ...]) -> list[Any]:
        full: list[Any] = [None] * len(values)
        for place, g in zip(places, grads, strict=True):
            full[place] = g.materialize() if isinstance(g, StaticZeros) else g
        return full

    def on_tensors(*grads: Any) -> list[Any]:
        seen = see(tuple(g if g is None or isinstance(g, Tensor) else wrap(g) for g in spread(grads)))
        return [seen[place] for place in places]

    def on_arrays(*grads: Any) -> list[Any]:
        return [None if g is None else g.array for g in on_tensors(*grads)]

    tensors = [values[place] for place in places]
    edges = tuple(tensor if tensor.grad_fn is None else tensor.grad_fn for tensor in tensors)
    definition: Any = _Boundary(on_tensors)  # type: ignore[arg-type]
    node = Node(definition, (), None, edges, on_arrays)
    node.args = None
    node.outputs = [(tensor.array.shape, tensor.array.dtype) for tensor in tensors]
    result = list(values)
    for index, (place, tensor) in enumerate(zip(places, tensors, strict=True)):
        passed = alias(tensor)
        passed.node = Select(node, index, tensor.array.shape, tensor.array.dtype)
        passed.needs_grad = True
        result[place] = passed
    return tuple(result), True
