"""From a call on tensors to the rule on arrays and back: the hot path of every operation.

`unary` and `binary` are `general` written out for their number of operands: what these lines cost is what small
operations cost.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ddpflow.autograd.base import Meta, TensorBase, wrap
from ddpflow.autograd.calling import bind, explain, narrowed, not_a_tensor, repair
from ddpflow.autograd.mode import grad_mode
from ddpflow.autograd.node import Node, Select, next_sequence
from ddpflow.autograd.promotion import common, common_list, operands
from ddpflow.autograd.quiet import QUIET, restore, silence
from ddpflow.autograd.saved import OUTPUT, classify, save
from ddpflow.autograd.views import note_view, refresh
from ddpflow.device import array_module
from ddpflow.dtype import as_numpy, get_default_dtype, is_floating

if TYPE_CHECKING:
    from ddpflow.autograd.op import Op
    from ddpflow.autograd.tensor import Tensor

__all__ = ["binary", "general", "record_several", "unary", "viewing"]

_new = object.__new__
_ndarray = np.ndarray


def unary(definition: "Op") -> Callable[..., "Tensor"]:
    """The caller of a rule with one tensor and no options."""
    rule, saves = definition.rule, definition.saves
    to_float = definition.promote == "float"

    def call(input: Any) -> "Tensor":
        try:
            x = input.array
        except AttributeError:
            raise not_a_tensor(definition, input) from None
        if to_float and x.dtype.kind in "iub":
            x = x.astype(as_numpy(get_default_dtype()))
        before = silence(QUIET)
        try:
            r, vjp = rule(np if x.__class__ is _ndarray else array_module(x), x)
        except (ValueError, TypeError) as error:
            raise explain(definition, error, (x,)) from None
        finally:
            restore(before)
        if r.__class__ is not _ndarray:
            r = repair(r, x)
        if r.dtype is not x.dtype:
            r = narrowed(r, x)
        t = _new(TensorBase.cls)
        t.array = r
        t._grad = t.meta = None
        if not input.needs_grad or not grad_mode.enabled:
            t.needs_grad = False
            t.node = None
            return t
        try:
            saved = saves[vjp.__code__]
        except KeyError:
            saved = classify(definition, vjp, (x,), r)
        if input.meta is not None and input.meta.view is not None:
            refresh(input)
        parent = input.node
        node = t.node = _new(Node)
        node.op = definition
        node.sequence = next_sequence()
        node.shape = r.shape
        node.dtype = r.dtype
        node.edges = (input if parent is None else parent,)
        node.vjps = (vjp,)
        node.args = node.kwargs = node.versions = node.output_version = node.hooks = node.retained = node.outputs = None
        if saved:
            if saved == OUTPUT:
                meta = t.meta = Meta()
                node.output_version = (meta.version, 0)
                node.args = (None,)
            else:
                save(node, t, saved, (input,))
        t.needs_grad = True
        return t

    return call


def binary(definition: "Op") -> Callable[..., "Tensor"]:
    """The caller of a rule with two operands, tensors or numbers, and no options."""
    rule, saves = definition.rule, definition.saves
    to_float = definition.promote == "float"

    def call(input: Any, other: Any) -> "Tensor":
        a: Any = input
        b: Any = other
        try:
            x = a.array
            y = b.array
            if x.dtype is not y.dtype or to_float:
                x, y = common(definition, x, y)
        except AttributeError:
            a, b, x, y = operands(definition, a, b)
        before = silence(QUIET)
        try:
            r, (vjp_a, vjp_b) = rule(
                np if x.__class__ is _ndarray or y.__class__ is _ndarray else array_module(x), x, y
            )
        except (ValueError, TypeError) as error:
            raise explain(definition, error, (x, y)) from None
        finally:
            restore(before)
        if r.__class__ is not _ndarray:
            r = repair(r, x)
        t = _new(TensorBase.cls)
        t.array = r
        t._grad = t.meta = None
        grad_a = a is not None and a.needs_grad
        grad_b = b is not None and b.needs_grad
        if not (grad_a or grad_b) or not grad_mode.enabled:
            t.needs_grad = False
            t.node = None
            return t
        saved = 0
        edge_a = edge_b = None
        if grad_a:
            if a.meta is not None and a.meta.view is not None:
                refresh(a)
            edge_a = a.node
            if edge_a is None:
                edge_a = a
            try:
                saved = saves[vjp_a.__code__]
            except KeyError:
                saved = classify(definition, vjp_a, (x, y), r)
        else:
            vjp_a = None
        if grad_b:
            if b.meta is not None and b.meta.view is not None:
                refresh(b)
            edge_b = b.node
            if edge_b is None:
                edge_b = b
            try:
                saved |= saves[vjp_b.__code__]
            except KeyError:
                saved |= classify(definition, vjp_b, (x, y), r)
        else:
            vjp_b = None
        node = t.node = _new(Node)
        node.op = definition
        node.sequence = next_sequence()
        node.shape = r.shape
        node.dtype = r.dtype
        node.edges = (edge_a, edge_b)
        node.vjps = (vjp_a, vjp_b)
        node.kwargs = node.versions = node.output_version = node.hooks = node.retained = node.outputs = None
        if saved == 3 and a is not None and b is not None and a.meta is None and b.meta is None:
            node.args = (a, b)
        elif saved and (saved != 1 or a is not None) and (saved != 2 or b is not None):
            save(node, t, saved, (x if a is None else a, y if b is None else b))
        else:
            node.args = None
        t.needs_grad = True
        return t

    return call


def general(definition: "Op") -> Callable[..., Any]:
    """The caller of any rule: tensors first, then options; several outputs; views."""
    rule, promote = definition.rule, definition.promote

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            args, kwargs = bind(definition, args, kwargs)
        arrays: list[Any] = []
        edges: list[Any] = []
        xp: Any = None
        wants = False
        for arg in args:
            edge: Any = None
            if isinstance(arg, TensorBase):
                x = arg.array
                if xp is None:
                    xp = np if x.__class__ is _ndarray else array_module(x)
                if arg.needs_grad:
                    wants = True
                    if arg.meta is not None and arg.meta.view is not None:
                        refresh(arg)
                    edge = arg.node
                    if edge is None:
                        edge = arg
                arrays.append(x)
            else:
                arrays.append(arg)
            edges.append(edge)
        if xp is None:
            raise not_a_tensor(definition, args[0] if args else None)
        if promote is not None:
            arrays = common_list(definition, args, arrays)
        before = silence(QUIET)
        try:
            result = rule(xp, *arrays, **kwargs)
        except (ValueError, TypeError, IndexError) as error:
            raise explain(definition, error, arrays) from None
        except AttributeError:
            for arg in args[: definition.tensor_count]:
                if isinstance(arg, (str, list, tuple, dict)):
                    raise not_a_tensor(definition, arg) from None
            raise
        finally:
            restore(before)
        if not definition.differentiable:
            if result.__class__ is tuple:
                return tuple([wrap(r if r.__class__ is _ndarray else repair(r, xp)) for r in result])
            return wrap(result if result.__class__ is _ndarray else repair(result, xp))
        out, vjps = result
        wants = wants and grad_mode.enabled
        if out.__class__ is tuple:
            return record_several(definition, out, vjps, edges if wants else None, args, arrays, kwargs)
        if out.__class__ is not _ndarray:
            out = repair(out, xp)
        for x in arrays:
            if hasattr(x, "dtype") and x.dtype.kind not in "iub":  # the first floating operand
                if x.dtype is not out.dtype:
                    out = narrowed(out, x)
                break
        t = wrap(out)
        if wants and is_floating(out.dtype):
            _record(definition, t, vjps, edges, args, arrays, kwargs, out)
        if definition.view:
            note_view(definition, t, args[0], args[1:], kwargs)
        return t

    return call


def viewing(definition: "Op") -> Callable[..., Any]:
    """The caller of a rule that takes one tensor and gives one view of it: `general` written out for it.

    Such rules compute nothing and save nothing, so neither warnings nor saved values are looked after.
    """
    rule = definition.rule
    full = general(definition)

    def call(input: Any, *options: Any, **kwargs: Any) -> Any:
        if kwargs:
            return full(input, *options, **kwargs)
        try:
            x = input.array
        except AttributeError:
            raise not_a_tensor(definition, input) from None
        try:
            out, vjps = rule(np if x.__class__ is _ndarray else array_module(x), x, *options)
        except (ValueError, TypeError, IndexError) as error:
            raise explain(definition, error, (x,)) from None
        t = _new(TensorBase.cls)
        t.array = out
        t._grad = t.meta = None
        if input.needs_grad and grad_mode.enabled:
            if input.meta is not None and input.meta.view is not None:
                refresh(input)
            parent = input.node
            node = t.node = _new(Node)
            node.op = definition
            node.sequence = next_sequence()
            node.shape = out.shape
            node.dtype = out.dtype
            node.edges = (input if parent is None else parent,)
            node.vjps = vjps
            node.args = node.kwargs = node.versions = node.output_version = None
            node.hooks = node.retained = node.outputs = None
            t.needs_grad = True
        else:
            t.needs_grad = False
            t.node = None
        note_view(definition, t, input, options)
        return t

    return call


def _record(
    definition: Any, t: Any, vjps: Any, edges: list[Any], args: Any, arrays: Any, kwargs: Any, out: Any
) -> Node | None:
    """Make the node of a call and hang it on the result; None when no input takes part."""
    saves = definition.saves
    saved = 0
    if vjps.__class__ is not tuple:
        code = vjps.__code__
        saved = saves[code] if code in saves else classify(definition, vjps, arrays, out)
        if definition.tensor_count == 1 and not definition.variadic:
            vjps = (vjps,)
            del edges[1:]
    else:
        kept = list(vjps)
        del edges[len(kept) :]
        taken = False
        for i, edge in enumerate(edges):
            vjp = kept[i]
            if edge is None or vjp is None:
                kept[i] = edges[i] = None
            else:
                taken = True
                code = vjp.__code__
                saved |= saves[code] if code in saves else classify(definition, vjp, arrays, out)
        if not taken:
            return None
        vjps = tuple(kept)
    node = Node(definition, () if t is None else out.shape, None if t is None else out.dtype, tuple(edges), vjps)
    if t is not None:
        t.node = node
        t.needs_grad = True
    if saved:
        save(node, t, saved, args, kwargs)
    return node


def record_several(
    definition: Any, outs: Any, vjps: Any, edges: list[Any] | None, args: Any, arrays: Any, kwargs: Any
) -> tuple[Any, ...]:
    """Tensors for an operation with several outputs; each floating one gets a `Select` of the common node."""
    outs = [out if out.__class__ is _ndarray else repair(out, arrays[0]) for out in outs]
    tensors = tuple([wrap(out) for out in outs])
    if edges is not None:
        node = _record(definition, None, vjps, edges, args, arrays, kwargs, None)
        if node is not None:
            node.outputs = [(out.shape, out.dtype) for out in outs]
            for i, t in enumerate(tensors):
                if is_floating(t.array.dtype):
                    t.node = Select(node, i, t.array.shape, t.array.dtype)
                    t.needs_grad = True
    if definition.view:
        for i, t in enumerate(tensors):
            note_view(definition, t, args[0], args[1:], kwargs, i)
    return tensors
