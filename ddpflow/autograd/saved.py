"""What a vjp saves for backward, and the same vjps over tensors for gradients of gradients."""

from types import CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase, meta_of, version_of, wrap
from ddpflow.autograd.node import Node
from ddpflow.dtype import is_floating
from ddpflow.errors import AutogradError

__all__ = ["DERIVED", "OUTPUT", "classify", "freed", "rebind", "save"]

OUTPUT = 1 << 62  # beside one bit per input: the vjp names the output,
DERIVED = 1 << 61  # or an array made from the inputs


def classify(definition: Any, vjp: Any, arrays: Any, out: Any) -> int:
    """The bits of what a vjp names: input positions, `OUTPUT`, `DERIVED`; kept per vjp in ``definition.saves``."""
    if vjp is None:
        return 0
    bits, certain = DERIVED if definition.composite else 0, True
    pending = [vjp]
    seen = set()
    while pending:
        function = pending.pop()
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            value = cell.cell_contents
            position = definition.params.index(name) if name in definition.params else -1
            if value is None:
                certain = certain and position >= definition.tensor_count
            elif 0 <= position < definition.tensor_count and isinstance(value, (bool, int, float, complex)):
                bits |= 1 << position  # a number this time, a tensor another time
            elif isinstance(value, np.generic) and out is not None and out.ndim == 0:
                # NumPy gives scalars for 0-d results; what is remembered must hold for results with dimensions too.
                certain = False
                bits |= OUTPUT if value.dtype == out.dtype and (value == out or value != value) else DERIVED
            elif isinstance(value, FunctionType):
                if id(value) not in seen:
                    seen.add(id(value))
                    pending.append(value)
            elif hasattr(value, "__array__") and hasattr(value, "ndim"):
                if 0 <= position < len(arrays) and value is arrays[position] and not definition.variadic:
                    bits |= 1 << position
                elif value is out:
                    bits |= OUTPUT
                elif is_floating(value.dtype):  # integers and truth values are constants to derivatives
                    bits |= DERIVED
            elif isinstance(value, (tuple, list)) and any(
                hasattr(item, "__array__") and is_floating(item.dtype) for item in value
            ):
                bits |= DERIVED
    if certain:
        definition.saves[vjp.__code__] = bits
    return bits


def save(
    node: Node, result: TensorBase, bits: int, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> None:
    """Keep in the node the tensors whose values backward needs, with their versions."""
    if bits & DERIVED:
        node.args = args
        node.kwargs = kwargs or {}
        held = [a for a in args if isinstance(a, TensorBase)]
    else:
        kept: list[Any] = [None] * len(args)
        held = []
        for i, a in enumerate(args):
            if bits >> i & 1 and isinstance(a, TensorBase):
                kept[i] = a
                held.append(a)
        node.args = tuple(kept) if held else None
    for a in held:
        if a.meta is not None:
            node.versions = tuple([version_of(b) if isinstance(b, TensorBase) else 0 for b in node.args or ()])
            break
    if bits & OUTPUT:
        result_meta = result.meta = meta_of(result)
        node.output_version = (result_meta.version, result_meta.version.value)


def rebind(vjp: Any, node: Node) -> Any:
    """The vjp over tensors: the arrays in its closure replaced by the inputs' and the output's tensors.

    Only for vjps that save nothing derived.
    """
    if vjp is None:
        return None
    params = node.op.params  # type: ignore[union-attr]
    cells = []
    for name, cell in zip(vjp.__code__.co_freevars, vjp.__closure__ or (), strict=True):
        value = cell.cell_contents
        if isinstance(value, ModuleType):
            value = TensorBase.namespace
        elif isinstance(value, FunctionType) and value.__closure__:
            value = rebind(value, node)
        elif hasattr(value, "__array__") and hasattr(value, "ndim"):
            position = params.index(name) if name in params else -1
            held = node.args[position] if node.args is not None and 0 <= position < len(node.args) else None
            if held is not None:
                value = held
            elif is_floating(value.dtype) and (position < 0 or position < node.op.tensor_count):  # type: ignore[union-attr]
                # What is neither an input, nor an index, nor an option is the output.
                value = wrap(np.asarray(value) if isinstance(value, np.generic) else value, True, node)
        cells.append(CellType(value))
    return FunctionType(vjp.__code__, vjp.__globals__, vjp.__name__, vjp.__defaults__, tuple(cells))


def freed(node: Node) -> AutogradError:
    """The error for a second backward through a graph that was freed."""
    return AutogradError(
        f"backward a second time through {node.name!r}, whose saved values are freed: pass retain_graph=True to the "
        "first backward if both are meant; if a hidden state is carried from step to step, detach() it"
    )
