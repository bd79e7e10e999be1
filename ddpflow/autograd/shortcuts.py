"""`general` written out for more kinds of operations: one tensor with options, three tensors, two and no gradient."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ddpflow.autograd.base import TensorBase
from ddpflow.autograd.calling import bind, explain, narrowed, not_a_tensor, repair
from ddpflow.autograd.dispatch import general, record_several
from ddpflow.autograd.mode import grad_mode
from ddpflow.autograd.node import Node, next_sequence
from ddpflow.autograd.promotion import common, operands
from ddpflow.autograd.quiet import QUIET, restore, silence
from ddpflow.autograd.saved import classify, save
from ddpflow.autograd.views import refresh
from ddpflow.device import array_module
from ddpflow.dtype import as_numpy, get_default_dtype, is_floating

if TYPE_CHECKING:
    from ddpflow.autograd.op import Op
    from ddpflow.autograd.tensor import Tensor

__all__ = ["comparing", "single", "triple"]

_new = object.__new__
_ndarray = np.ndarray


def single(definition: "Op") -> Callable[..., Any]:
    """The caller of a rule with one tensor, options, and no view as its result."""
    rule, saves, differentiable = definition.rule, definition.saves, definition.differentiable
    to_float = definition.promote == "float"
    narrows = definition.name != "cast"  # whose result has the dtype that was asked for
    plain = definition.params[1:]  # keywords that are options under their own names
    full = general(definition)

    def call(input: Any, *options: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in plain or isinstance(kwargs[name], TensorBase):
                (input, *options), kwargs = bind(definition, (input, *options), kwargs)  # type: ignore[assignment]
                break
        for option in options:
            if isinstance(option, TensorBase):
                return full(input, *options, **kwargs)
        try:
            x = input.array
        except AttributeError:
            raise not_a_tensor(definition, input) from None
        if to_float and x.dtype.kind in "iub":
            x = x.astype(as_numpy(get_default_dtype()))
        before = silence(QUIET)
        try:
            result = rule(np if x.__class__ is _ndarray else array_module(x), x, *options, **kwargs)
        except (ValueError, TypeError, IndexError) as error:
            raise explain(definition, error, (x,)) from None
        finally:
            restore(before)
        if differentiable:
            r, vjp = result
        else:
            r, vjp = result, None
        if vjp.__class__ is tuple and r.__class__ is not tuple:
            vjp = vjp[0]
        recording = vjp is not None and input.needs_grad and grad_mode.enabled
        if recording and input.meta is not None and input.meta.view is not None:
            refresh(input)
        if r.__class__ is tuple:
            edges = [input if input.node is None else input.node] if recording else None
            return record_several(definition, r, vjp, edges, (input, *options), (x, *options), kwargs)
        if r.__class__ is not _ndarray:
            r = repair(r, x)
        if r.dtype is not x.dtype and narrows:
            r = narrowed(r, x)
        t = _new(TensorBase.cls)
        t.array = r
        t._grad = t.meta = None
        if not recording or not is_floating(r.dtype):
            t.needs_grad = False
            t.node = None
            return t
        try:
            saved = saves[vjp.__code__]
        except KeyError:
            saved = classify(definition, vjp, (x, *options), r)
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
            save(node, t, saved, (input, *options), kwargs)
        t.needs_grad = True
        return t

    return call


def triple(definition: "Op") -> Callable[..., Any]:
    """The caller of a rule with three tensors, the last of which may be left out or None, and no options."""
    rule, saves = definition.rule, definition.saves
    full = general(definition)

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs or not 2 <= len(args) <= 3:
            return full(*args, **kwargs)
        a, b, c = args if len(args) == 3 else (*args, None)
        try:
            x, y = a.array, b.array
            z = None if c is None else c.array
        except AttributeError:
            return full(*args)  # which says what is no tensor
        before = silence(QUIET)
        try:
            out, vjps = rule(np if x.__class__ is _ndarray else array_module(x), x, y, z)
        except (ValueError, TypeError, IndexError) as error:
            raise explain(definition, error, (x, y, z)) from None
        finally:
            restore(before)
        if out.__class__ is not _ndarray:
            out = repair(out, x)
        if out.dtype is not x.dtype:
            out = narrowed(out, x)
        t = _new(TensorBase.cls)
        t.array = out
        t._grad = t.meta = None
        if not (grad_mode.enabled and (a.needs_grad or b.needs_grad or (c is not None and c.needs_grad))):
            t.needs_grad = False
            t.node = None
            return t
        edges: list[Any] = [None, None, None]
        kept: list[Any] = [None, None, None]
        saved = place = 0
        for tensor, vjp in zip((a, b, c), vjps, strict=True):
            if tensor is not None and tensor.needs_grad and vjp is not None:
                if tensor.meta is not None and tensor.meta.view is not None:
                    refresh(tensor)
                parent = tensor.node
                edges[place] = tensor if parent is None else parent
                kept[place] = vjp
                code = vjp.__code__
                saved |= saves[code] if code in saves else classify(definition, vjp, (x, y, z), out)
            place += 1
        node = t.node = _new(Node)
        node.op = definition
        node.sequence = next_sequence()
        node.shape = out.shape
        node.dtype = out.dtype
        node.edges = tuple(edges)
        node.vjps = tuple(kept)
        node.args = node.kwargs = node.versions = node.output_version = node.hooks = node.retained = node.outputs = None
        if saved == 3 and a.meta is None and b.meta is None:
            node.args = (a, b, None)
        elif saved:
            save(node, t, saved, (a, b, c))
        t.needs_grad = True
        return t

    return call


def comparing(definition: "Op") -> Callable[..., "Tensor"]:
    """The caller of a rule with two operands, tensors or numbers, and no gradient."""
    rule = definition.rule
    to_float = definition.promote == "float"

    def call(input: Any, other: Any) -> "Tensor":
        try:
            x = input.array
            y = other.array
            if x.dtype is not y.dtype or to_float:
                x, y = common(definition, x, y)
        except AttributeError:
            _, _, x, y = operands(definition, input, other)
        before = silence(QUIET)
        try:
            r = rule(np if x.__class__ is _ndarray or y.__class__ is _ndarray else array_module(x), x, y)
        except (ValueError, TypeError) as error:
            raise explain(definition, error, (x, y)) from None
        finally:
            restore(before)
        if r.__class__ is not _ndarray:
            r = repair(r, x)
        t = _new(TensorBase.cls)
        t.array = r
        t._grad = t.meta = None
        t.needs_grad = False
        t.node = None
        return t

    return call
