"""The backward pass: from a result back to the leaves, newest operation first, without recursion.

For each node the engine does what every rule would otherwise repeat: undo broadcasting, cast to the input's dtype, turn
NumPy's scalars back into arrays, add gradients up, skip inputs that want none, free what was saved.

With ``create_graph=True`` the same loop runs over tensors instead of arrays.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from sys import getrefcount
from typing import Any

import numpy as np

from ddpflow.autograd.anomaly import check_gradients, is_anomaly_enabled
from ddpflow.autograd.base import TensorBase, wrap
from ddpflow.autograd.higher import tensor_vjps
from ddpflow.autograd.mode import set_grad_enabled
from ddpflow.autograd.node import Node, Select, free_home, vjps_into
from ddpflow.autograd.passes import Pass, running
from ddpflow.autograd.quiet import QUIET, restore, silence
from ddpflow.autograd.saved import freed
from ddpflow.autograd.zeros import StaticZeros, gradients_of_zero
from ddpflow.device import array_module
from ddpflow.errors import AutogradError, ShapeError

__all__ = ["backward", "grad"]

_ndarray = np.ndarray
_COMPLEX64, _COMPLEX128 = np.dtype(np.complex64), np.dtype(np.complex128)


def backward(
    tensors: TensorBase | Sequence[TensorBase],
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add to the ``grad`` of every leaf the gradient of the given tensors (PyTorch's ``autograd.backward``).

    Args:
        tensors: Where to start: a tensor or several.
        grad_tensors: For each a gradient of its shape; may be left out for tensors of one element.
        retain_graph: Keep what was saved, so that backward can run again; the default is the value of ``create_graph``.
        create_graph: Record the pass itself, so that gradients can be differentiated.
        inputs: Collect only in these leaves.

    Raises:
        AutogradError: When a tensor requires no gradient, has more than one element and no gradient was given, when the
            graph was freed, or a saved value was changed in place.
    """
    roots = [tensors] if isinstance(tensors, TensorBase) else list(tensors)
    seeds = _seeds(roots, grad_tensors, create_graph)
    only = None if inputs is None else ([inputs] if isinstance(inputs, TensorBase) else list(inputs))
    retain = create_graph if retain_graph is None else retain_graph
    _run(roots, seeds, retain, create_graph, only, accumulate=True)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of outputs with respect to inputs, without touching any ``grad`` (PyTorch's ``autograd.grad``).

    Returns:
        One tensor for each input; None for an input that the outputs do not depend on, where ``allow_unused`` permits.

    Raises:
        AutogradError: As `backward`, and when an input was not used and ``allow_unused`` is not set.
    """
    if is_grads_batched:
        raise AutogradError("is_grads_batched=True is not supported: call grad once for each gradient")
    roots = [outputs] if isinstance(outputs, TensorBase) else list(outputs)
    wanted = [inputs] if isinstance(inputs, TensorBase) else list(inputs)
    for i, tensor in enumerate(wanted):
        if not tensor.needs_grad:
            raise AutogradError(f"input {i} of grad() does not require grad; call requires_grad_() before it is used")
    seeds = _seeds(roots, grad_outputs, create_graph)
    retain = create_graph if retain_graph is None else retain_graph
    found = _run(roots, seeds, retain, create_graph, wanted, accumulate=False)
    results: list[Any] = []
    for i, (tensor, g) in enumerate(zip(wanted, found, strict=True)):
        if g is None:
            if materialize_grads:
                results.append(wrap(array_module(tensor.array).zeros_like(tensor.array)))
            elif allow_unused:
                results.append(None)
            else:
                raise AutogradError(
                    f"input {i} of grad() was not used for the outputs; pass allow_unused=True to get None for it"
                )
        else:
            if g.__class__ is StaticZeros:
                g = g.materialize()
            results.append(g if isinstance(g, TensorBase) else wrap(g))
    return tuple(results)


def _seeds(roots: list[TensorBase], grads: Any, create_graph: bool) -> list[Any]:
    given: list[Any] = (
        [None] * len(roots) if grads is None else [grads] if isinstance(grads, TensorBase) else list(grads)
    )
    if len(given) != len(roots):
        raise ShapeError(f"backward got {len(given)} gradients for {len(roots)} tensors")
    seeds = []
    for root, g in zip(roots, given, strict=True):
        if not root.needs_grad:
            raise AutogradError(
                "this tensor does not require grad and has no graph; was it made under no_grad(), detached, or from "
                "integers?"
            )
        if g is None:
            if root.array.size != 1:
                raise AutogradError(
                    f"backward on a tensor of shape {tuple(root.array.shape)} needs a gradient of that shape: reduce "
                    "it to one number first (loss.mean()), or pass gradient="
                )
            seed = array_module(root.array).ones_like(root.array)
        else:
            seed = g.array if isinstance(g, TensorBase) else np.asarray(g)
            if seed.shape != root.array.shape:
                raise ShapeError(
                    f"a gradient of shape {tuple(seed.shape)} for a tensor of shape {tuple(root.array.shape)}"
                )
            if seed.dtype != root.array.dtype:
                seed = seed.astype(root.array.dtype)
        if create_graph:
            seeds.append(g if isinstance(g, TensorBase) and g.needs_grad else wrap(seed))
        else:
            seeds.append(seed)
    return seeds


def _run(
    roots: list[TensorBase],
    seeds: list[Any],
    retain: bool,
    create_graph: bool,
    inputs: list[TensorBase] | None,
    accumulate: bool,
) -> list[Any]:
    """One backward pass. With ``inputs`` only what leads to them is visited; returns their gradients."""
    starts: list[Any] = [root if root.node is None else root.node for root in roots]
    captured: dict[Any, Any] = {}
    allowed: set[Any] | None = None
    if inputs is not None:
        captured = {tensor if tensor.node is None else tensor.node: None for tensor in inputs}
        allowed = _leading_to(captured, starts)
    if running.passes:
        for listener in list(running.passes[0].on_nested):
            listener()
    this = Pass()
    running.passes.append(this)
    before = silence(QUIET)
    try:
        with set_grad_enabled(create_graph):
            _walk(starts, seeds, retain, create_graph, captured, allowed, accumulate)
            while this.callbacks:
                this.callbacks.pop(0)()
    except BaseException:
        for listener in this.on_error:
            listener()
        raise
    finally:
        restore(before)
        running.passes.pop()
    return list(captured.values()) if inputs is None else [captured[t if t.node is None else t.node] for t in inputs]


def _walk(
    starts: list[Any],
    seeds: list[Any],
    retain: bool,
    create_graph: bool,
    captured: dict[Any, Any],
    allowed: set[Any] | None,
    accumulate: bool,
) -> None:
    """The loop: take the newest ready node, run its vjps, hand the results on."""
    counts = _count(starts, allowed)
    pending: dict[Any, Any] = {}
    summed: set[Any] = set()  # whose pending gradient is a sum of our own making, free to be added to in place
    ready: list[tuple[int, Node]] = []
    look_for_nan = is_anomaly_enabled()
    direct = accumulate and allowed is None and not create_graph  # whether a gradient of a leaf is sure to be its grad
    for start, seed in zip(starts, seeds, strict=True):
        if allowed is None or start in allowed or start in captured:
            if start in pending:
                seed = pending[start] + seed
            pending[start] = seed if create_graph else _repair(seed)
    for start in list(pending):
        if counts[start] == 0:
            if start.is_node:
                heappush(ready, (-start.sequence, start))
            else:
                _finish_leaf(start, pending.pop(start), captured, accumulate, create_graph)
    while ready:
        node = heappop(ready)[1]
        g = pending.pop(node, None)
        if node.hooks is not None or node.retained is not None:
            g = _node_hooks(node, g, create_graph)
        if captured and node in captured:
            captured[node] = g
        if allowed is not None and node not in allowed:
            continue
        edges = node.edges
        if node.__class__ is Select:
            source = edges[0]
            pending.setdefault(source, [None] * len(source.outputs))[node.index] = g
            counts[source] -= 1
            if counts[source] == 0:
                heappush(ready, (-source.sequence, source))
            continue
        vjps = node.vjps
        if vjps is None:
            raise freed(node)
        if node.args is not None or node.output_version is not None:
            node.check_versions()
        if g is None or g.__class__ is StaticZeros:
            grads = gradients_of_zero(node.edges, g)
        else:
            if create_graph:
                vjps = tensor_vjps(node, grad)
            turned = (node.dtype is _COMPLEX64 or node.dtype is _COMPLEX128) and not hasattr(node.op, "tensor_vjps")
            if turned:  # rules are written with the plain derivative; complex gradients take its conjugate
                g = g.conj()
            if node.outputs is not None:
                grads = list(vjps(*g)) if vjps.__class__ is not tuple else [vjp and vjp(*g) for vjp in vjps]
            elif vjps.__class__ is tuple:
                home = None
                if direct and getattr(node.op, "into", None) is not None:
                    home = free_home(node, counts, pending)
                grads = [vjp and vjp(g) for vjp in vjps] if home is None else vjps_into(home, node, g)
            else:
                grads = list(vjps(g))
            if turned:
                grads = [gi.conj() if hasattr(gi, "conj") else gi for gi in grads]
        if look_for_nan:
            check_gradients(node, grads)
        if not retain:
            node.vjps = node.args = None
        vjps = g = None
        for i, edge in enumerate(edges):
            if edge is None or (allowed is not None and edge not in allowed and edge not in captured):
                continue
            gi = grads[i]
            grads[i] = None  # so that a leaf can see that nobody else holds the array
            is_node = edge.is_node
            if gi is not None:
                like = edge if is_node else edge.array
                if create_graph:
                    gi = _fit_tensor(gi, like)
                else:
                    if gi.__class__ is not _ndarray and gi.__class__ is not StaticZeros:
                        gi = _repair(gi)
                    if gi.shape != like.shape:
                        gi = _unbroadcast(gi, like.shape)
                    if gi.dtype is not like.dtype:
                        gi = _cast(gi, like.dtype)
                old = pending.get(edge)
                if old is None:
                    pending[edge] = gi
                elif edge in summed:
                    old += gi
                else:
                    total = pending[edge] = old + gi
                    if total.__class__ is _ndarray:
                        if old.__class__ is gi.__class__ is _ndarray:
                            summed.add(edge)
                    elif not create_graph and total.__class__ is not StaticZeros:
                        pending[edge] = _repair(total)
                    total = None
                old = None
            counts[edge] -= 1
            if counts[edge] == 0:
                if is_node:
                    heappush(ready, (-edge.sequence, edge))
                else:
                    gi = pending.pop(edge, None)
                    if gi is not None:
                        _finish_leaf(edge, gi, captured, accumulate, create_graph)


def _count(starts: list[Any], allowed: set[Any] | None) -> dict[Any, int]:
    """How many gradients each node and leaf will receive in this pass."""
    counts: dict[Any, int] = dict.fromkeys(starts, 0)
    stack = [start for start in counts if start.is_node and (allowed is None or start in allowed)]
    while stack:
        for edge in stack.pop().edges:
            if edge is None:
                continue
            if edge in counts:
                counts[edge] += 1
            else:
                counts[edge] = 1
                if edge.is_node and (allowed is None or edge in allowed):
                    stack.append(edge)
    return counts


def _leading_to(targets: dict[Any, Any], starts: list[Any]) -> set[Any]:
    """The nodes from which a target can be reached. Edges always lead to older nodes, so one pass in order suffices."""
    seen = {start for start in starts if start.is_node}
    stack = list(seen)
    while stack:
        for edge in stack.pop().edges:
            if edge is not None and edge.is_node and edge not in seen:
                seen.add(edge)
                stack.append(edge)
    leading: set[Any] = set()
    for node in sorted(seen, key=lambda node: node.sequence):
        if any(edge is not None and (edge in targets or edge in leading) for edge in node.edges):
            leading.add(node)
    return leading


def _repair(g: Any) -> Any:
    """An array of a NumPy scalar; a CuPy array as it is."""
    return g if hasattr(g, "__cuda_array_interface__") else np.asarray(g)


def _unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum a gradient over the axes along which its input was broadcast; half types in float32."""
    lead = g.ndim - len(shape)
    if lead < 0:
        return g.reshape(shape)
    axes = tuple(range(lead)) + tuple([i + lead for i, n in enumerate(shape) if n == 1 and g.shape[i + lead] != 1])
    if axes:
        wide = np.float32 if g.dtype.itemsize == 2 and not isinstance(g, TensorBase) else None
        g = g.sum(axes, keepdims=True) if wide is None else g.sum(axes, wide, keepdims=True)
    return g.reshape(shape)


def _cast(g: Any, dtype: Any) -> Any:
    if g.dtype == dtype:
        return g
    if g.dtype.kind == "c" and dtype.kind != "c":
        g = g.real
    return g.astype(dtype)


def _fit_tensor(g: Any, like: Any) -> Any:
    """As the array path: the gradient in the shape and dtype of its input, but as recorded operations."""
    if g.__class__ is StaticZeros:
        g = g.materialize()
    if not isinstance(g, TensorBase):
        g = wrap(np.asarray(g))
    if g.array.shape != like.shape:
        g = _unbroadcast(g, tuple(like.shape))
    if g.array.dtype.kind == "c" and like.dtype.kind != "c":
        g = g.real
    return g if g.array.dtype == like.dtype else TensorBase.namespace.astype(g, like.dtype)


def _node_hooks(node: Node, g: Any, create_graph: bool) -> Any:
    """Let the hooks of a result see and replace its gradient, and keep it where `retain_grad` asked."""
    if g is None:
        return None
    if g.__class__ is StaticZeros:
        g = g.materialize()
    tensor = g if isinstance(g, TensorBase) else wrap(g)
    for hook in list((node.hooks or {}).values()):
        result = hook(tensor)
        if result is not None:
            tensor = result
    for reference in node.retained or ():
        holder = reference()
        if holder is not None:
            kept = wrap(tensor.array.copy()) if not create_graph else tensor
            holder._grad = kept if holder._grad is None else holder._grad + kept
    return tensor if create_graph else tensor.array


def _finish_leaf(leaf: Any, g: Any, captured: dict[Any, Any], accumulate: bool, create_graph: bool) -> None:
    """A leaf has its whole gradient of this pass: run its hooks, add it to ``grad``, run the hooks for that."""
    meta = leaf.meta
    if meta is not None and meta.hooks:
        if g.__class__ is StaticZeros:
            g = g.materialize()
        tensor = g if isinstance(g, TensorBase) else wrap(g)
        for hook in list(meta.hooks.values()):
            result = hook(tensor)
            if result is not None:
                tensor = result
        g = tensor if create_graph else tensor.array
        del tensor
    if captured and leaf in captured:
        captured[leaf] = g
    if not accumulate or not (leaf in captured or not captured):
        return
    held = leaf._grad
    is_zero = g.__class__ is StaticZeros
    if create_graph:
        g = _fit_tensor(g, leaf.array)
        leaf._grad = g if held is None else held + g
    elif held is None:
        if meta is not None and meta.home is not None:
            home = leaf._grad = meta.home
            if g is not home.array:
                home.array[...] = 0 if is_zero else g
            home.bump_version()
        elif is_zero:
            leaf._grad = wrap(g.materialize())
        elif getrefcount(g) > _SOLE_REFERENCE or g.base is not None or not g.flags.c_contiguous:
            leaf._grad = wrap(g.copy())  # somebody else holds this array (add hands one array to both inputs)
        else:
            leaf._grad = wrap(g)
    elif not is_zero:
        held.array += g
        held.bump_version()
    if meta is not None and meta.post_hooks:
        meta.zero_grad = (1 if held is not None else 2) if is_zero else 0
        for hook in list(meta.post_hooks.values()):
            hook(leaf)


def _sole_reference() -> int:
    """The reference count that `_finish_leaf` sees for an array that only its caller holds."""

    def callee(g: Any) -> int:
        return getrefcount(g)

    array = np.empty(1)
    return callee(array)


_SOLE_REFERENCE = _sole_reference()
