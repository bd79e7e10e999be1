"""Gradients of gradients: a node's vjps over tensors instead of arrays, from the same definition."""

from collections.abc import Callable
from typing import Any

from ddpflow.autograd.base import TensorBase, wrap
from ddpflow.autograd.node import Node
from ddpflow.autograd.saved import rebind
from ddpflow.errors import AutogradError

__all__ = ["tensor_vjps"]


def tensor_vjps(node: Node, grad: Callable[..., Any]) -> Any:
    """The vjps of a node, taking and giving tensors, so that what they do is recorded.

    Three ways: where the vjps save only inputs and the output, the same functions with tensors in their closures; where
    they save something derived, the rule run again on the saved input tensors; where the rule cannot run on tensors,
    the gradient of its composite.

    Args:
        node: The node.
        grad: The engine's `grad`, for composites.

    Raises:
        AutogradError: When the operation has neither; the text names it.
    """
    definition = node.op
    own = getattr(definition, "tensor_vjps", None)
    if own is not None:
        return own(node)
    if node.kwargs is None:
        vjps = node.vjps
        return rebind(vjps, node) if vjps.__class__ is not tuple else tuple([rebind(vjp, node) for vjp in vjps])
    assert definition is not None and node.args is not None
    if definition.composite is not None:
        return _composite_vjps(node, grad)
    try:
        _, vjps = definition.rule(TensorBase.namespace, *node.args, **node.kwargs)
    except (AttributeError, TypeError) as error:
        raise AutogradError(f"{definition.name!r} has no second-order gradient (create_graph=True): {error}") from error
    if vjps.__class__ is not tuple:
        return (vjps,) if definition.tensor_count == 1 and not definition.variadic else vjps
    return tuple([None if edge is None else vjp for edge, vjp in zip(node.edges, vjps, strict=False)])


def _composite_vjps(node: Node, grad: Callable[..., Any]) -> Any:
    """One function for all inputs: differentiate the composite at aliases of them, so that no path is counted twice."""
    composite: Any = node.op.composite  # type: ignore[union-attr]
    args: list[Any] = list(node.args or ())
    wanted: list[Any] = []
    for i, edge in enumerate(node.edges):
        if edge is not None:
            source = args[i]
            args[i] = wrap(source.array, True, _alias_node(source))
            wanted.append(args[i])

    def vjp(*gs: Any) -> list[Any]:
        out = composite(TensorBase.namespace, *args, **(node.kwargs or {}))
        outs, seeds = (list(out), list(gs)) if isinstance(out, tuple) else ([out], list(gs))
        pairs = [(o, g) for o, g in zip(outs, seeds, strict=True) if g is not None and o.needs_grad]
        found = iter(
            grad(
                [o for o, _ in pairs],
                wanted,
                [g for _, g in pairs],
                retain_graph=True,
                create_graph=True,
                allow_unused=True,
            )
        )
        return [None if edge is None else next(found) for edge in node.edges]

    return vjp


class _Alias:
    """The definition that alias nodes point to."""

    name = "alias"
    composite = None
    params: tuple[str, ...] = ()


_ALIAS: Any = _Alias()


def _alias_node(tensor: Any) -> Node:
    edge = tensor if tensor.node is None else tensor.node
    node = Node(_ALIAS, tensor.array.shape, tensor.array.dtype, (edge,), (lambda g: g,))
    node.args = None
    return node
