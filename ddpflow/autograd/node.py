"""Graph nodes: one for each recorded operation."""

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from ddpflow.autograd.base import TensorBase, Version
from ddpflow.errors import AutogradError

if TYPE_CHECKING:
    from ddpflow.autograd.op import Op

__all__ = ["Node", "Select", "free_home", "next_sequence", "vjps_into"]

next_sequence: Callable[[], int] = count(1).__next__


class Node:
    """One recorded operation.

    Attributes:
        op: The operation's definition; None for nodes made by user code.
        sequence: Creation order; the engine runs ready nodes newest first.
        shape, dtype: Of the operation's output.
        edges: For each input the node or leaf its gradient goes to, None where none is wanted.
        vjps: For each input a function from the output's gradient to the input's; or one function for all of them; None
            once freed.
        args, kwargs: What the rule was called with; a tensor only where its values are still needed, else None.
        versions: The versions of the tensors in ``args`` when they were saved; None when all were 0.
        output_version: The output's shared version counter and its value, where the output's values were saved.
        hooks: Functions that see, and may replace, the gradient that arrives.
        retained: Weak references to tensors whose ``grad`` is to be kept (``retain_grad``).
        outputs: For an operation with several outputs, their shapes and dtypes.
    """

    __slots__ = (
        "__weakref__", "args", "dtype", "edges", "hooks", "kwargs", "op", "output_version", "outputs", "retained",
        "sequence", "shape", "versions", "vjps",
    )  # fmt: skip

    is_node: ClassVar[bool] = True  # an edge that is not a node is a leaf tensor
    op: "Op | None"
    sequence: int
    shape: tuple[int, ...]
    dtype: Any
    edges: tuple[Any, ...]
    vjps: Any
    args: tuple[Any, ...] | None
    kwargs: dict[str, Any] | None
    versions: tuple[int, ...] | None
    output_version: tuple[Version, int] | None
    hooks: dict[int, Any] | None
    retained: list[Any] | None
    outputs: list[tuple[tuple[int, ...], Any]] | None

    def __init__(self, op: "Op | None", shape: tuple[int, ...], dtype: Any, edges: tuple[Any, ...], vjps: Any) -> None:
        self.op = op
        self.sequence = next_sequence()
        self.shape = shape
        self.dtype = dtype
        self.edges = edges
        self.vjps = vjps
        self.args = self.kwargs = self.versions = self.output_version = self.hooks = self.retained = self.outputs = None

    @property
    def name(self) -> str:
        """The operation's name."""
        return "" if self.op is None else self.op.name

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """PyTorch's view of the edges: (node or leaf, 0) for each input that wants a gradient."""
        return tuple((edge, 0) for edge in self.edges)

    def free(self) -> None:
        """Let go of everything saved for backward."""
        self.vjps = self.args = None

    def check_versions(self) -> None:
        """Refuse to go back through values that were changed in place after they were saved.

        Raises:
            AutogradError: Naming the operation, the shape and both versions.
        """
        for i, arg in enumerate(self.args or ()):
            if arg is None or not isinstance(arg, TensorBase) or arg.meta is None:
                continue
            saved = self.versions[i] if self.versions is not None else 0
            if arg.meta.version.value != saved:
                raise self._changed(f"input {i}", arg.array.shape, saved, arg.meta.version.value)
        if self.output_version is not None and self.output_version[0].value != self.output_version[1]:
            raise self._changed("its result", self.shape, self.output_version[1], self.output_version[0].value)

    def _changed(self, what: str, shape: tuple[int, ...], saved: int, now: int) -> AutogradError:
        return AutogradError(
            f"a value that {self.name!r} needs for its gradient was changed in place: {what}, shape {tuple(shape)}, is "
            f"at version {now}, saved at version {saved}; clone() it before the change, or use the form that is not in "
            "place"
        )

    def __repr__(self) -> str:
        return f"<{self.name.title().replace('_', '')}Backward>"


class Select(Node):
    """One output of an operation with several: hands its gradient to slot ``index`` of the operation's node."""

    __slots__ = ("index",)

    def __init__(self, source: Node, index: int, shape: tuple[int, ...], dtype: Any) -> None:
        super().__init__(source.op, shape, dtype, (source,), None)
        self.index = index


def free_home(node: Node, counts: dict[Any, int], pending: dict[Any, Any]) -> Any:
    """The array that the gradient of a leaf may be computed into, without a copy: its home, where nothing else counts.

    None when there is no such leaf: the leaf of the operation's ``into`` has a gradient or a hook that sees the local
    one, gets more than this gradient in the pass, or no home that an array operation can write to as it is.

    Args:
        node: A node whose operation has ``into``.
        counts: How many gradients each leaf has still to receive.
        pending: What was received before.
    """
    leaf = node.edges[node.op.into]  # type: ignore[union-attr,index]
    if leaf is None or leaf.is_node or leaf._grad is not None or counts[leaf] > 1 or leaf in pending:
        return None
    meta = leaf.meta
    if meta is None or meta.home is None or meta.hooks:
        return None
    home, array = meta.home.array, leaf.array
    return home if home.shape == array.shape and home.dtype is array.dtype and home.flags.c_contiguous else None


def vjps_into(home: Any, node: Node, g: Any) -> list[Any]:
    """The gradients of a node's inputs; the one that the operation's ``into`` tells may be computed into the home."""
    into = node.op.into  # type: ignore[union-attr]
    return [vjp and (vjp(g, home) if i == into else vjp(g)) for i, vjp in enumerate(node.vjps)]
