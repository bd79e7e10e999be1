"""Operations written by users: a class with a forward and a backward on tensors (PyTorch's ``autograd.Function``)."""

import functools
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

from ddpflow.autograd.base import TensorBase, alias, check_leaf_write, version_of, wrap
from ddpflow.autograd.mode import grad_mode, no_grad
from ddpflow.autograd.node import Node, Select
from ddpflow.autograd.zeros import StaticZeros
from ddpflow.device import array_module
from ddpflow.dtype import is_floating
from ddpflow.errors import AutogradError

__all__ = ["Function", "FunctionCtx", "once_differentiable"]


class FunctionCtx:
    """What a Function's forward hands to its backward; any attribute may be set on it.

    Attributes:
        needs_input_grad: For each argument of `Function.apply` whether its gradient is wanted.
    """

    needs_input_grad: tuple[bool, ...] = ()

    def __init__(self) -> None:
        self._saved: list[tuple[Any, int]] | None = []
        self._outputs: dict[int, Any] = {}  # place among the saved -> weak reference to the output's node
        self._not_differentiable: set[int] = set()
        self._dirty: set[int] = set()
        self._materialize = True

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors (inputs, outputs or others, None too) for backward; in-place changes of them are noticed."""
        self._saved = [(t, version_of(t) if isinstance(t, TensorBase) else 0) for t in tensors]

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` was given.

        Raises:
            AutogradError: When one was changed in place since, or the graph was freed.
        """
        if self._saved is None:
            raise AutogradError(
                "the saved tensors of this function are freed: pass retain_graph=True to the first backward to go "
                "through it again"
            )
        found = []
        for i, (t, version) in enumerate(self._saved):
            if isinstance(t, TensorBase) and version_of(t) != version:
                raise AutogradError(
                    f"a tensor of shape {tuple(t.array.shape)} saved for backward was changed in place: it is at "
                    f"version {version_of(t)}, saved at version {version}; clone() it before the change"
                )
            node = self._outputs[i]() if i in self._outputs else None
            if node is not None:
                t = wrap(t.array, True, node)
            found.append(t)
        return tuple(found)

    def mark_non_differentiable(self, *outputs: Any) -> None:
        """Outputs that carry no gradient; integer outputs never do."""
        self._not_differentiable = {id(t) for t in outputs}

    def mark_dirty(self, *inputs: Any) -> None:
        """Inputs that forward changed in place; it must return them."""
        self._dirty = {id(t) for t in inputs}

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (the default) or None for outputs that were not used."""
        self._materialize = value

    def _keep_outputs(self, outputs: list[Any]) -> None:
        """Hold saved outputs by array and weak node: by the tensor itself would be a cycle through its node."""
        for i, (t, version) in enumerate(self._saved or ()):
            for out in outputs:
                if t is out and out.node is not None:
                    assert self._saved is not None
                    self._saved[i] = (alias(out), version)
                    self._outputs[i] = weakref.ref(out.node)


class Function:
    """A differentiable operation: subclass, write `forward` and `backward` as static methods, call `apply`.

    Example:
        >>> import ddpflow
        >>> class Cube(ddpflow.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         ctx.save_for_backward(x)
        ...         return x * x * x
        ...
        ...     @staticmethod
        ...     def backward(ctx, grad_output):
        ...         (x,) = ctx.saved_tensors
        ...         return grad_output * 3 * x * x
        >>> x = ddpflow.tensor([2.0], requires_grad=True)
        >>> Cube.apply(x).backward()
        >>> x.grad
        tensor([12.])
    """

    _definition: ClassVar["_Definition"]

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the output: ``forward(ctx, *args)``, or ``forward(*args)`` beside a `setup_context`."""
        raise NotImplementedError("a Function needs a static method forward")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save what backward needs, where forward takes no ctx."""
        raise NotImplementedError("setup_context was not written")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """From the gradients of the outputs to those of forward's arguments: one each, None for what has none."""
        raise NotImplementedError("a Function needs a static method backward to be differentiated")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._definition = _Definition(cls.__name__)

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call forward and record backward in the graph."""
        ctx = FunctionCtx()
        wants = [isinstance(a, TensorBase) and a.needs_grad and grad_mode.enabled for a in args]
        ctx.needs_input_grad = tuple(wants)
        edges = tuple([_edge(a) if want else None for a, want in zip(args, wants, strict=True)])
        with no_grad():
            if cls.setup_context is Function.setup_context:
                result = cls.forward(ctx, *args, **kwargs)
            else:
                result = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, result)
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        given = {id(a) for a in args if isinstance(a, TensorBase)}
        own = [
            alias(out) if isinstance(out, TensorBase) and id(out) in given and id(out) not in ctx._dirty else out
            for out in outputs
        ]
        for out in outputs:
            if id(out) in ctx._dirty:
                if any(wants):
                    check_leaf_write(out)
                out.bump_version()
        if any(wants):
            _record(cls, ctx, edges, outputs, own)
        return tuple(own) if isinstance(result, (tuple, list)) else own[0]


def _edge(tensor: Any) -> Any:
    """Where the tensor's gradient goes: the node that made it, or itself."""
    node = tensor.grad_fn
    return tensor if node is None else node


def _record(cls: type[Function], ctx: FunctionCtx, edges: tuple[Any, ...], outputs: list[Any], own: list[Any]) -> None:
    """Hang a node on the differentiable outputs."""
    places = [
        i
        for i, out in enumerate(outputs)
        if isinstance(out, TensorBase) and is_floating(out.array.dtype) and id(out) not in ctx._not_differentiable
    ]
    if not places:
        return
    like = [
        (out.array.shape, out.array.dtype, array_module(out.array)) if isinstance(out, TensorBase) else None
        for out in own
    ]
    call = _Backward(cls, ctx, like, edges)
    if len(own) == 1:
        node = Node(cls._definition, own[0].array.shape, own[0].array.dtype, edges, call)  # type: ignore[arg-type]
        own[0].node = node
    else:
        node = Node(cls._definition, (), None, edges, call)  # type: ignore[arg-type]
        node.outputs = [((), None) if entry is None else entry[:2] for entry in like]
        for i in places:
            own[i].node = Select(node, i, own[i].array.shape, own[i].array.dtype)
    node.args = None
    for i in places:
        own[i].needs_grad = True
    ctx._keep_outputs(own)


class _Definition:
    """What the nodes of a Function point to in place of an `Op`."""

    composite = None
    params: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        self.name = name

    @staticmethod
    def tensor_vjps(node: Node) -> Any:
        """The node's backward for ``create_graph``: on tensors, recorded."""
        return node.vjps.on_tensors


class _Backward:
    """The vjp of a Function's node; called with arrays by an ordinary backward, with tensors for ``create_graph``."""

    __slots__ = ("cls", "ctx", "edges", "like")

    def __init__(self, cls: type[Function], ctx: FunctionCtx, like: list[Any], edges: tuple[Any, ...]) -> None:
        self.cls = cls
        self.ctx = ctx
        self.like = like
        self.edges = edges

    def __call__(self, *gs: Any) -> list[Any]:
        return [g.array if isinstance(g, TensorBase) else g for g in self.on_tensors(*gs)]

    def on_tensors(self, *gs: Any) -> list[Any]:
        """The gradients of the arguments as tensors."""
        result = self.cls.backward(self.ctx, *[self._tensor(i, g) for i, g in enumerate(gs)])
        found = list(result) if isinstance(result, (tuple, list)) else [result]
        count = len(self.edges)
        if len(found) < count or any(g is not None for g in found[count:]):
            raise AutogradError(
                f"{self.cls.__name__}.backward returned {len(found)} gradient(s) for {count} argument(s) of apply"
            )
        return [None if edge is None else g for edge, g in zip(self.edges, found, strict=False)]

    def _tensor(self, i: int, g: Any) -> Any:
        if isinstance(g, TensorBase):
            return g
        if g is None:
            if not self.ctx._materialize or self.like[i] is None:
                return None
            shape, dtype, xp = self.like[i]
            return wrap(xp.zeros(shape, dtype))
        return wrap(g.materialize() if g.__class__ is StaticZeros else g)


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for a `Function.backward` that cannot itself be differentiated; trying to raises."""

    @functools.wraps(backward)
    def wrapper(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            result = backward(ctx, *grads)
        edges = tuple([_edge(g) for g in grads if isinstance(g, TensorBase) and g.needs_grad])
        if not grad_mode.enabled or not edges:
            return result

        def refuse(g: Any) -> Any:
            raise AutogradError(
                "this Function's backward is marked once_differentiable: it has no second-order gradient"
            )

        outs = []
        for out in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(out, TensorBase) and is_floating(out.array.dtype):
                node = Node(_ONCE, out.array.shape, out.array.dtype, edges, refuse)  # type: ignore[arg-type]
                node.args = None
                out = wrap(out.array, True, node)
            outs.append(out)
        return tuple(outs)

    return wrapper


_ONCE = _Definition("once_differentiable")
