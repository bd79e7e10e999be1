"""Views and in-place writes: what a change of memory means for the graph.

A write to a view is a write to its base. In the graph nothing changes in place: the base's new value is a new node that
takes the written region from the new value and the rest from the old one; a view made earlier is the view of that.
"""

import weakref
from typing import Any

import numpy as np

from ddpflow.autograd.base import Meta, TensorBase, View, check_leaf_write, meta_of, wrap
from ddpflow.autograd.mode import grad_mode
from ddpflow.autograd.node import Node
from ddpflow.autograd.quiet import QUIET, restore, silence
from ddpflow.device import array_module
from ddpflow.dtype import is_floating
from ddpflow.errors import DtypeError, IndexRangeError, ShapeError

__all__ = ["note_view", "refresh", "write"]


class _Write:
    """The definition that nodes made by writes and refreshed views point to."""

    composite = None
    params: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        self.name = name


_WRITE = _Write("write")
_REFRESH = _Write("view")


_NO_OPTIONS: dict[str, Any] = {}


def note_view(
    definition: Any,
    tensor: TensorBase,
    base: TensorBase,
    options: tuple[Any, ...],
    kwargs: dict[str, Any] = _NO_OPTIONS,
    index: int = -1,
) -> None:
    """Remember that an operation's result, or one of several, shares memory with its first argument."""
    source, result = base.array, tensor.array
    if result is not source:
        owner = getattr(result, "base", None)
        if owner is None or (owner is not source and owner is not source.base):
            if not array_module(result).may_share_memory(result, source):  # as views of any strides do, without a base
                return  # a copy, as reshape makes of what it cannot view
    base_meta = meta_of(base)
    meta = tensor.meta
    if meta is None:
        meta = tensor.meta = Meta()
    version = meta.version = base_meta.version
    meta.view = View(base, (definition, index), options, kwargs, version.value)
    if not base.needs_grad:  # should a write ever bring the base into a graph, its views must follow
        views = base_meta.views
        if views is None:
            views = base_meta.views = set()
        views.add(weakref.ref(tensor, views.discard))


def _view_of(view: View, xp: Any, array: Any) -> tuple[Any, Any]:
    """The view's array and vjp, taken of another array of the base's shape."""
    definition, index = view.op
    out, vjps = definition.rule(xp, array, *view.args, **view.kwargs)
    if index >= 0:
        count = len(out)
        vjp = vjps[0] if vjps.__class__ is tuple else vjps
        return out[index], lambda g: vjp(*[g if i == index else None for i in range(count)])
    return out, vjps[0] if vjps.__class__ is tuple else vjps


def refresh(tensor: TensorBase) -> None:
    """Give a view whose memory was written since it was made the node that the base now implies."""
    view = tensor.meta.view  # type: ignore[union-attr]
    assert view is not None
    now = tensor.meta.version.value  # type: ignore[union-attr]
    if view.version == now:
        return
    base = view.base
    if base.meta is not None and base.meta.view is not None:
        refresh(base)
    view.version = now
    if not base.needs_grad:
        return
    _, vjp = _view_of(view, array_module(base.array), base.array)
    edge = base if base.node is None else base.node
    tensor.node = _node(_REFRESH, tensor.array, (edge,), (vjp,))
    tensor.needs_grad = True


def _wake(tensor: TensorBase) -> None:
    """Bring the views of a tensor that a write has brought into a graph into it as well."""
    views = None if tensor.meta is None else tensor.meta.views
    for reference in list(views or ()):
        view = reference()
        if view is not None:
            refresh(view)
            _wake(view)


def write(target: TensorBase, value: Any, region: Any = None) -> Any:
    """Write a value into a tensor's memory (or into ``region`` of it), and record what that means.

    Args:
        target: The tensor that changes.
        value: A tensor that broadcasts to what is written, or a number.
        region: An index for ``array[region] = value``; None for the whole tensor.

    Returns:
        The target.

    Raises:
        AutogradError: When the target is a leaf that requires grad and recording is on.
        ShapeError: When the value does not broadcast, or the target is expanded (several elements in one place).
        DtypeError: When the value is no number.
        IndexRangeError: When the region is out of range.
    """
    array = target.array
    recording = (
        grad_mode.enabled
        and (target.needs_grad or (isinstance(value, TensorBase) and value.needs_grad))
        and is_floating(array.dtype)
    )
    if array.size > 1 and 0 in [s for s, n in zip(array.strides, array.shape, strict=True) if n > 1]:
        raise ShapeError(f"cannot write to an expanded tensor of shape {tuple(array.shape)}: clone() it first")
    if recording:
        check_leaf_write(target)
        if target.meta is not None and target.meta.view is not None:
            refresh(target)
        if isinstance(value, TensorBase) and value.meta is not None and value.meta.view is not None:
            refresh(value)
    source = value.array if isinstance(value, TensorBase) else value
    before = silence(QUIET)
    try:
        array[... if region is None else region] = source
    except IndexError as error:
        raise IndexRangeError(f"cannot write into shape {tuple(array.shape)}: {error}") from None
    except ValueError as error:
        shape = tuple(getattr(source, "shape", ()))
        raise ShapeError(f"cannot write a value of shape {shape} into shape {tuple(array.shape)}: {error}") from None
    except TypeError as error:
        raise DtypeError(f"cannot write {getattr(source, 'dtype', type(source))} into {array.dtype}: {error}") from None
    finally:
        restore(before)
    target.bump_version()
    if recording:
        edge = (target if target.node is None else target.node) if target.needs_grad else None
        value_edge = None
        if isinstance(value, TensorBase) and value.needs_grad:
            value_edge = value if value.node is None else value.node
        index = ... if region is None else region
        whole = region is None
        repeats = isinstance(region, tuple) and any(hasattr(item, "dtype") for item in region)
        shape = array.shape

        def rest(g: Any) -> Any:
            if whole:
                return None
            g = g.clone() if isinstance(g, TensorBase) else array_module(g).array(g, order="C")  # type: ignore[attr-defined]
            g[index] = 0
            return g

        def written(g: Any) -> Any:
            part = g[index]
            if not repeats:
                return part
            recorded = isinstance(g, TensorBase)
            last = _last_writes(array_module(g.array if recorded else g), shape, index)
            return part * (wrap(last) if recorded else last)

        _rebase(target, (edge, value_edge), (None if whole else rest, written))
    return target


def _last_writes(xp: Any, shape: tuple[int, ...], index: Any) -> Any:
    """For each element written through arrays of indices, whether it is the last for its place, and so stays."""
    writer = xp.zeros(shape, np.int64)
    number = xp.arange(writer[index].size).reshape(writer[index].shape)
    writer[index] = number
    return writer[index] == number


def _rebase(tensor: TensorBase, edges: tuple[Any, Any], vjps: tuple[Any, Any]) -> None:
    """Make the tensor's new value a node over its old value and what was written, and carry that up to its bases."""
    if vjps[0] is None:
        edges = (None, edges[1])
    vjps = (None if edges[0] is None else vjps[0], None if edges[1] is None else vjps[1])
    tensor.node = _node(_WRITE, tensor.array, edges, vjps)
    if not tensor.needs_grad:
        tensor.needs_grad = True
        _wake(tensor)
    view = None if tensor.meta is None else tensor.meta.view
    if view is None:
        return
    base, xp = view.base, array_module(tensor.array)
    view.version = tensor.meta.version.value  # type: ignore[union-attr]
    base_edge = (base if base.node is None else base.node) if base.needs_grad else None
    value_edge = tensor.node
    taken = view

    def rest(g: Any) -> Any:
        g = g.clone() if isinstance(g, TensorBase) else array_module(g).array(g, order="C")  # type: ignore[attr-defined]
        _view_of(taken, TensorBase.namespace if isinstance(g, TensorBase) else xp, g)[0][...] = 0
        return g

    def part(g: Any) -> Any:
        return _view_of(taken, TensorBase.namespace if isinstance(g, TensorBase) else xp, g)[0]

    _rebase(base, (base_edge, value_edge), (rest, part))
    if base.needs_grad:
        _, vjp = _view_of(view, xp, base.array)
        edge = base if base.node is None else base.node
        tensor.node = _node(_REFRESH, tensor.array, (edge,), (vjp,))
        tensor.needs_grad = True


def _node(kind: _Write, array: Any, edges: tuple[Any, ...], vjps: tuple[Any, ...]) -> Node:
    node = Node(kind, array.shape, array.dtype, edges, vjps)  # type: ignore[arg-type]
    node.args = None
    return node
