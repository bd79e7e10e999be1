"""From the registry's sample language to tensors, in every memory layout."""

import importlib
import pkgutil
from typing import Any

import numpy as np

import ddpflow
from ddpflow.autograd import ops
from ddpflow.autograd.op import REGISTRY, Bools, Complexes, Definite, Floats, Ints, Op
from ddpflow.dtype import is_floating
from ddpflow.random import manual_seed

for found in pkgutil.iter_modules(ops.__path__, ops.__name__ + "."):
    importlib.import_module(found.name)


def callers() -> dict[str, Any]:
    """The public caller of each registered op, by the op's name."""
    found: dict[str, Any] = {}
    for info in pkgutil.iter_modules(ops.__path__, ops.__name__ + "."):
        for value in vars(importlib.import_module(info.name)).values():
            definition = getattr(value, "op", None)
            if isinstance(definition, Op):
                found[definition.name] = value
    return found


CALLERS = callers()


def distinct(shape: tuple[int, ...], low: float, high: float, rng: np.random.Generator) -> np.ndarray:
    """Distinct values in [low, high), in random order, none of them near 0 for a range around it."""
    count = int(np.prod(shape))
    steps = (rng.permutation(count) + 0.5 + 0.2 * rng.random(count)) / max(count, 1)
    return (low + (high - low) * steps).reshape(shape)


def array_of(spec: Any, rng: np.random.Generator, shapes: bool) -> np.ndarray | None:
    """The array that a sample's entry stands for (float64, int64, bool or complex128); None when it is no tensor.

    Args:
        spec: The entry.
        rng: Where the values come from.
        shapes: Whether a tuple of ints is a tensor of that shape here: not in the place of an option.
    """
    if isinstance(spec, Ints):
        return np.asarray(rng.integers(spec.low, spec.high, spec.shape))
    if isinstance(spec, Floats):
        return distinct(spec.shape, spec.low, spec.high, rng)
    if isinstance(spec, Bools):
        return np.asarray(rng.random(spec.shape) < 0.5)
    if isinstance(spec, Complexes):
        return np.asarray(distinct(spec.shape, -1.0, 1.0, rng) + 1j * distinct(spec.shape, -1.0, 1.0, rng))
    if isinstance(spec, Definite):
        a = distinct(spec.shape, -1.0, 1.0, rng)
        return a @ a.swapaxes(-1, -2) + np.diag(np.arange(1.0, spec.shape[-1] + 1))
    if shapes and isinstance(spec, tuple) and all(type(n) is int for n in spec):
        return distinct(spec, -1.9, 1.9, rng)
    return None


def transposed(a: np.ndarray) -> np.ndarray:
    """The same values in column-major order."""
    return np.ascontiguousarray(a.T).T if a.ndim > 1 else a


def sliced(a: np.ndarray) -> np.ndarray:
    """The same values as every second element of a larger array, from its end to its start."""
    if a.ndim == 0:
        return a
    room = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
    room[..., ::2] = a[..., ::-1]
    return room[..., ::2][..., ::-1]


def expanded(a: np.ndarray) -> np.ndarray:
    """Other values: the first row for all rows, as stride 0."""
    return np.broadcast_to(a[:1], a.shape) if a.ndim and a.shape[0] > 1 else a


LAYOUTS = {"transposed": transposed, "sliced": sliced, "expanded": expanded}


class Case:
    """One op on one sample: arrays and options, and how to run it.

    Attributes:
        arrays: For each positional argument its array, or None for an option.
    """

    def __init__(self, definition: Op, sample: tuple[Any, ...], seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.definition = definition
        self.call = CALLERS[definition.name]
        self.kwargs = dict(sample[-1]) if sample and isinstance(sample[-1], dict) else {}
        self.specs = list(sample[: len(sample) - bool(self.kwargs)])
        count = len(self.specs) if definition.variadic else definition.tensor_count
        self.arrays = [array_of(spec, rng, i < count) for i, spec in enumerate(self.specs)]
        for name, spec in self.kwargs.items():
            array = array_of(spec, rng, False)
            if array is not None:
                self.kwargs[name] = ddpflow.Tensor(array)

    @property
    def float_places(self) -> list[int]:
        """The positions of the floating tensors."""
        return [i for i, a in enumerate(self.arrays) if a is not None and a.dtype.kind == "f"]

    def typed(self, dtype: Any) -> list[np.ndarray | None]:
        """The arrays with the floating ones in a dtype."""
        return [a.astype(dtype) if a is not None and a.dtype.kind == "f" else a for a in self.arrays]

    def tensors(self, arrays: list[np.ndarray | None], requires_grad: bool = True) -> list[Any]:
        """The positional arguments: tensors on the given arrays, and the options."""
        return [
            spec if a is None else ddpflow.Tensor(a, requires_grad=requires_grad and is_floating(a.dtype))
            for spec, a in zip(self.specs, arrays, strict=True)
        ]

    def run(self, args: list[Any]) -> list[Any]:
        """The outputs as a list; random ops draw the same numbers each time."""
        manual_seed(7)
        out = self.call(*args, **self.kwargs)
        return list(out) if isinstance(out, tuple) else [out]

    def gradients(self, args: list[Any], outs: list[Any]) -> list[np.ndarray]:
        """The gradients of sum(output * fixed weights) at the floating inputs."""
        seeds, chosen = [], []
        for k, out in enumerate(outs):
            if out.requires_grad:
                chosen.append(out)
                weights = distinct(out.array.shape, 0.5, 1.5, np.random.default_rng(k))
                seeds.append(ddpflow.Tensor(weights.astype(out.array.dtype)))
        if not chosen:
            return []
        kept = [seed.array.copy() for seed in seeds]
        leaves = [args[i] for i in self.float_places]
        ddpflow.autograd.backward(chosen, seeds)
        for seed, before in zip(seeds, kept, strict=True):
            np.testing.assert_array_equal(seed.array, before, "a vjp wrote to the gradient it was given")
        return [np.zeros_like(leaf.array) if leaf.grad is None else leaf.grad.array for leaf in leaves]


def cases(definition: Op) -> list[Case]:
    """A case for each sample of an op."""
    return [Case(definition, sample, seed) for seed, sample in enumerate(definition.samples)]


__all__ = ["CALLERS", "LAYOUTS", "REGISTRY", "Case", "cases", "distinct"]
