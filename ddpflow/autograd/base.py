"""What a tensor is to the graph: an array, whether it wants a gradient, and the node that made it.

The class with all the methods, `ddpflow.autograd.tensor.Tensor`, stands above the ops; everything below it creates its
results through `TensorBase.cls`, which that file sets.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from ddpflow.errors import AutogradError

if TYPE_CHECKING:
    from ddpflow.autograd.node import Node
    from ddpflow.autograd.tensor import Tensor

__all__ = [
    "Meta",
    "RemovableHandle",
    "TensorBase",
    "Version",
    "View",
    "alias",
    "check_leaf_write",
    "meta_of",
    "version_of",
    "wrap",
]


class Version:
    """How often the memory of a tensor was written in place; shared by a base and all its views."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class View:
    """How a tensor is a view of another: ``op(base, *args, **kwargs)``, as of a version of the memory."""

    __slots__ = ("args", "base", "kwargs", "op", "version")

    def __init__(
        self, base: "TensorBase", op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], version: int
    ) -> None:
        self.base = base
        self.op = op
        self.args = args
        self.kwargs = kwargs
        self.version = version


class Meta:
    """What few tensors have: a shared version, a view's origin, hooks, a home for the gradient.

    ``home`` is a tensor that becomes the leaf's ``grad`` when it has none: the engine writes the gradient into it.
    ``zero_grad`` tells post-accumulate hooks what this pass brought the leaf: 0 a gradient, 1 a static zero beside the
    gradient it had, 2 a static zero that became its gradient.
    """

    __slots__ = ("home", "hooks", "post_hooks", "retain", "version", "view", "views", "zero_grad")

    def __init__(self) -> None:
        self.version = Version()
        self.view: View | None = None
        self.views: set[Any] | None = None  # weak references to the views of a tensor outside the graph
        self.hooks: dict[int, Any] = {}
        self.post_hooks: dict[int, Any] = {}
        self.retain = False
        self.home: TensorBase | None = None
        self.zero_grad = 0


class RemovableHandle:
    """Takes a hook out again with `remove`; also a context manager.

    Hooks run in the order of registration; removing one twice is harmless.
    """

    __slots__ = ("_hooks", "id")
    _next_id: ClassVar[int] = 0

    def __init__(self, hooks: dict[int, Any], hook: Any) -> None:
        RemovableHandle._next_id += 1
        self.id = RemovableHandle._next_id
        self._hooks = hooks
        hooks[self.id] = hook

    def remove(self) -> None:
        """Take the hook out."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> "RemovableHandle":
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class TensorBase:
    """The part of a tensor that the graph knows.

    Attributes:
        array: The NumPy or CuPy array with the values; always an array, also for a single number.
        needs_grad: True for leaves that collect a gradient and for results that depend on one.
        node: The node that made it; None for a leaf.
        meta: Version, view and hooks, or None while it has none of them.
    """

    __slots__ = ("__weakref__", "_grad", "array", "meta", "needs_grad", "node")

    cls: ClassVar[type["Tensor"]]
    is_node: ClassVar[bool] = False
    namespace: ClassVar[Any]  # NumPy's function names over tensors; rules run on it for create_graph

    array: Any
    needs_grad: bool
    node: "Node | None"
    _grad: "Tensor | None"
    meta: Meta | None

    __hash__ = object.__hash__

    def bump_version(self) -> None:
        """Note that the memory was written in place."""
        meta_of(self).version.value += 1


def meta_of(tensor: TensorBase) -> Meta:
    """The tensor's `Meta`, made on first use."""
    meta = tensor.meta
    if meta is None:
        meta = tensor.meta = Meta()
    return meta


def version_of(tensor: TensorBase) -> int:
    """How often the tensor's memory was written in place."""
    meta = tensor.meta
    return 0 if meta is None else meta.version.value


def wrap(array: Any, needs_grad: bool = False, node: "Node | None" = None) -> "Tensor":
    """A tensor around an array that is known to be an array; nothing is copied."""
    tensor = object.__new__(TensorBase.cls)
    tensor.array = array
    tensor.needs_grad = needs_grad
    tensor.node = node
    tensor._grad = tensor.meta = None
    return tensor


def alias(tensor: TensorBase) -> "Tensor":
    """A tensor on the same memory and version, outside the graph (what ``detach`` gives)."""
    result = wrap(tensor.array)
    result.meta = Meta()
    result.meta.version = meta_of(tensor).version
    return result


def check_leaf_write(tensor: TensorBase) -> None:
    """Refuse to record an in-place change of a leaf that wants a gradient.

    Raises:
        AutogradError: When it is such a leaf, or a view of one.
    """
    view = None if tensor.meta is None else tensor.meta.view
    while view is not None:
        if view.base.needs_grad and view.base.node is None:
            raise AutogradError(
                "a view of a leaf tensor that requires grad is being changed in place; do it under ddpflow.no_grad()"
            )
        view = None if view.base.meta is None else view.base.meta.view
    if tensor.needs_grad and tensor.node is None:
        raise AutogradError("a leaf tensor that requires grad is being changed in place; do it under ddpflow.no_grad()")
