'''The ``@op`` decorator: one function is one operation, with its gradient, docs and test data.

    @op(samples=[((3, 4), (4, 2)), ((5, 3, 4), (4, 2))])
    def matmul(xp, a, b):
        """Matrix product over the last two axes; leading axes broadcast."""
        return a @ b, (lambda g: g @ b.swapaxes(-1, -2), lambda g: a.swapaxes(-1, -2) @ g)

The rule language:

- ``xp`` is NumPy or CuPy; the first parameters are the tensors, as raw arrays; then come options, positional or
  keyword. ``*xs`` takes any number of tensors.
- It returns the output and one vjp ("vector-Jacobian product": from the output's gradient to an input's) per tensor, or
  one function that gives all of them as a tuple, or only the output when it has no gradient (``differentiable=False``).
  A vjp may be None (that input gets none) and may return None. Several outputs are a tuple; their vjps then take as
  many gradients, None where an output was not used.
- A vjp need not undo broadcasting, cast, or repair NumPy's scalars: the engine does. It must not write to ``g``.
- What a vjp names is what is saved, so write it in terms of inputs, or of the output, and only if that cannot be, of
  something derived (then all inputs are kept too, for gradients of gradients).
- The vjp of the tensor number ``into`` takes a second argument, ``out=None``: an array of the result's shape and dtype
  that it may write the result to, or not. A gradient then lies where it is wanted without a copy.
- With operators, methods and ``xp.`` functions only, a rule also runs on tensors, with `TensorBase.namespace` as
  ``xp``: that is how ``create_graph=True`` works. A rule with a fused kernel or in-place steps names a ``composite``:
  the same output written that way, ``composite(xp, *args, **kwargs)``.

What is decorated becomes the function users call: it takes tensors, records the graph and returns tensors.

Test data, ``samples``: each is the tuple of arguments; in the place of a tensor (not of an option) a tuple of ints is a
tensor of that shape, and see `Ints`, `Floats`, `Bools`, `Complexes`, `Definite`; a dict at the end holds keyword
arguments; anything else is passed as it is.
'''

import functools
import inspect
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any, NamedTuple

from ddpflow.autograd.autocast import autocasting
from ddpflow.autograd.base import TensorBase
from ddpflow.autograd.dispatch import binary, general, unary, viewing
from ddpflow.autograd.shortcuts import comparing, single, triple

__all__ = ["REGISTRY", "Bools", "Complexes", "Definite", "Floats", "Ints", "Op", "apply", "op"]

REGISTRY: dict[str, "Op"] = {}


class Sample:
    """A sample argument: a tensor of this shape. Plain classes, because every import of ddpflow makes them."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.shape}"


class Ints(Sample):
    """Sample argument: an integer tensor with values in ``[low, high)``."""

    def __init__(self, shape: tuple[int, ...], high: int, low: int = 0) -> None:
        super().__init__(shape)
        self.high = high
        self.low = low


class Floats(Sample):
    """Sample argument: a floating tensor with distinct values in ``[low, high)``."""

    def __init__(self, shape: tuple[int, ...], low: float = -1.0, high: float = 1.0) -> None:
        super().__init__(shape)
        self.low = low
        self.high = high


class Bools(Sample):
    """Sample argument: a boolean tensor."""


class Complexes(Sample):
    """Sample argument: a tensor of complex numbers."""


class Definite(Sample):
    """Sample argument: symmetric positive definite matrices with distinct eigenvalues."""


class Op(NamedTuple):
    """An operation's definition, as the registry holds it."""

    name: str
    rule: Callable[..., Any]
    samples: list[tuple[Any, ...]]
    promote: str | None
    view: bool
    differentiable: bool
    composite: Callable[..., Any] | None
    params: tuple[str, ...]
    defaults: dict[str, Any]
    tensor_count: int
    variadic: bool
    into: int | None
    saves: dict[CodeType, int]  # what each vjp saves, found out at its first use

    def __repr__(self) -> str:
        return f"Op({self.name})"


def op(
    rule: Callable[..., Any] | None = None,
    *,
    samples: Iterable[tuple[Any, ...]] = (),
    promote: str | None = None,
    view: bool = False,
    differentiable: bool = True,
    composite: Callable[..., Any] | None = None,
    tensors: int | None = None,
    several: bool = False,
    into: int | None = None,
    name: str | None = None,
) -> Any:
    """Make an operation of a rule and enter it in the registry; see the module's text for the rule language.

    Args:
        rule: The rule, when used without arguments.
        samples: Test data.
        promote: ``"common"``: the operands are cast to their common dtype first, Python numbers are weak. ``"float"``:
            as that, and integers become the default floating type. ``"same"`` (two tensors): other dtypes are refused.
        view: The output may share the input's memory.
        differentiable: False when the rule returns only an output.
        composite: The same output in plain ``xp`` functions, where the rule itself cannot run on tensors.
        tensors: How many of the parameters are tensors, when it is not all those without a default.
        several: A rule with one parameter gives several outputs.
        into: The number of the tensor, a large parameter as a rule, whose vjp takes ``out``.
        name: The registered name, when it is not the rule's.
    """
    if rule is None:
        return functools.partial(
            op,
            samples=samples,
            promote=promote,
            view=view,
            differentiable=differentiable,
            composite=composite,
            tensors=tensors,
            several=several,
            into=into,
            name=name,
        )
    parameters = list(inspect.signature(rule).parameters.values())[1:]
    required = sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    definition = Op(
        name=name or rule.__name__,
        rule=rule,
        samples=list(samples),
        promote=promote,
        view=view,
        differentiable=differentiable,
        composite=composite,
        params=tuple(p.name for p in parameters),
        defaults={p.name: p.default for p in parameters},
        tensor_count=required if tensors is None else tensors,
        variadic=any(p.kind is p.VAR_POSITIONAL for p in parameters),
        into=into,
        saves={},
    )
    if definition.name in REGISTRY:
        raise ValueError(f"an op named {definition.name!r} exists already; give this one another name")
    REGISTRY[definition.name] = definition
    count = definition.tensor_count
    if required == len(parameters) == 2 == count and promote and differentiable:
        call = binary(definition)
    elif required == len(parameters) == 1 == count and differentiable and not view and not several:
        call = unary(definition)
    elif view and not several and count == 1 and not definition.variadic:
        call = viewing(definition)
    elif required == len(parameters) == 2 == count and promote:
        call = comparing(definition)
    elif count == 1 and not definition.variadic and not view:
        call = single(definition)
    elif count == len(parameters) == 3 and required >= 2 and differentiable and not (promote or view or several):
        call = triple(definition)
    else:
        call = general(definition)
    function: Any = functools.update_wrapper(autocasting(definition, call), rule)
    del function.__wrapped__
    function.__signature__ = inspect.Signature(parameters)
    function.op = definition
    return function


def apply(xp: Any, operation: Any, *args: Any, **kwargs: Any) -> Any:
    """Call an operation from inside a rule, whatever the rule runs on: raw arrays, or tensors for ``create_graph``."""
    if xp is TensorBase.namespace:
        return operation(*args, **kwargs)
    result = operation.op.rule(xp, *args, **kwargs)
    return result[0] if operation.op.differentiable else result
