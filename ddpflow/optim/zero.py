"""ZeroRedundancyOptimizer: each rank keeps the optimizer state of its share of the parameters only."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ddpflow.autograd.base import TensorBase, wrap
from ddpflow.autograd.mode import enable_grad
from ddpflow.comm.objects import all_gather_object
from ddpflow.comm.world import current_group
from ddpflow.device import array_module, as_device, move
from ddpflow.errors import CommError, DtypeError, ValueRangeError
from ddpflow.optim.optimizer import Optimizer, Params

__all__ = ["ZeroRedundancyOptimizer"]


class _Segment(NamedTuple):
    """A part of a parameter that this rank updates: elements ``start`` to ``stop`` of it, as a leaf of its own."""

    param: Any
    start: int
    stop: int
    leaf: Any


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer whose state is shared out among the ranks (ZeRO stage 1; Rajbhandari et al. 2019).

    All parameters of a dtype lie in one flat array in communication memory, cut into as many ranges as there are ranks,
    wherever parameters begin and end. After gradients were averaged, each rank updates its range and the ranks gather
    the ranges in place. The result is that of the plain optimizer, bit for bit.

    The parameters' arrays move into the flat array at construction: NumPy views taken before no longer see them.

    Args:
        params: Tensors or parameter groups.
        optimizer_class: The optimizer; one that treats each element by itself (all but LBFGS).
        process_group: The ranks; the current group when None.
        parameters_as_bucket_view: As in PyTorch; parameters always are views here.
        overlap_with_ddp: Refused when set.
        defaults: The optimizer's options.

    Raises:
        DtypeError: When ``optimizer_class`` is no optimizer.
        ValueRangeError: When it does not work element by element, or an option makes no sense.
    """

    def __init__(
        self,
        params: Params,
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if not (isinstance(optimizer_class, type) and issubclass(optimizer_class, Optimizer)):
            raise DtypeError(f"optimizer_class must be an optimizer's class, not {optimizer_class!r}")
        if optimizer_class.step is not Optimizer.step or not optimizer_class.elementwise:
            raise ValueRangeError(
                f"{optimizer_class.__name__} does not work element by element, so it cannot be sharded"
            )
        if overlap_with_ddp:
            raise ValueRangeError("overlap_with_ddp=True is not supported: the step runs after backward")
        groups = list(params)
        template = optimizer_class(groups, **defaults)
        super().__init__(groups, dict(template.defaults))
        self.group = current_group() if process_group is None else process_group
        self._flats: list[Any] = []
        segments = list(self._flatten())
        self._segments: dict[int, list[_Segment]] = {}
        for segment in segments:
            self._segments.setdefault(id(segment.param), []).append(segment)
        self._inner = optimizer_class(self._inner_groups(), **defaults) if segments else None
        self._consolidated: dict[str, Any] | None = None

    def _flatten(self) -> Iterator[_Segment]:
        """Move all parameters into flat arrays; gives the parts that lie in this rank's ranges."""
        by_kind: dict[Any, list[Any]] = {}
        for group in self.param_groups:
            for p in group["params"]:
                by_kind.setdefault((p.array.dtype, p.device), []).append(p)
        size, rank = self.group.size(), self.group.rank()
        for (dtype, _), params in by_kind.items():
            total = sum(p.array.size for p in params)
            share = max(1, -(-total // size))
            xp = array_module(params[0].array)  # on a GPU any memory will do; on the CPU it is the transport's
            flat = self.group.empty(share * size, dtype) if xp is np else xp.empty(share * size, dtype)
            flat[...] = 0
            self._flats.append(flat)
            at, low, high = 0, rank * share, (rank + 1) * share
            for p in params:
                view = flat[at : at + p.array.size]
                view[...] = p.array.reshape(-1)
                p.array = view.reshape(p.array.shape)
                start, stop = max(low - at, 0), min(high - at, view.size)
                if start < stop:
                    yield _Segment(p, start, stop, wrap(view[start:stop]))
                at += view.size

    def _inner_groups(self) -> list[dict[str, Any]]:
        """The groups of the inner optimizer: the same options, this rank's parts for parameters."""
        groups = []
        for group in self.param_groups:
            leaves = [s.leaf for p in group["params"] for s in self._segments.get(id(p), ())]
            groups.append({**{k: v for k, v in group.items() if k != "param_names"}, "params": leaves})
        return groups

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update this rank's range and gather all ranges; every rank must call it."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        if self._inner is not None:
            for group, inner in zip(self.param_groups, self._inner.param_groups, strict=True):
                inner.update({k: v for k, v in group.items() if k not in ("params", "param_names")})
            for segments in self._segments.values():
                for s in segments:
                    grad = s.param._grad
                    s.leaf._grad = None if grad is None else wrap(grad.array.reshape(-1)[s.start : s.stop])
            self._inner.step()
            for segments in self._segments.values():
                for s in segments:
                    s.leaf._grad = None
        for flat in self._flats:
            share = flat.size // self.group.size()
            own = self.group.rank() * share
            self.group.all_gather_into_tensor(flat, flat[own : own + share], tag="updated parameters")
        for group in self.param_groups:
            for p in group["params"]:
                p.bump_version()
        self._consolidated = None
        return loss

    # --- state --------------------------------------------------------------------------------------------------------

    def consolidate_state_dict(self, to: int | None = 0) -> None:
        """Collect the whole state, in the plain optimizer's form, on rank ``to``, or on all ranks for None.

        Every rank must call it before `state_dict`.
        """
        numbers = {id(p): i for i, p in enumerate(p for g in self.param_groups for p in g["params"])}
        own: list[Any] = []
        if self._inner is not None:
            for segments in self._segments.values():
                for s in segments:
                    values = {
                        k: move(v.array, as_device("cpu")) if isinstance(v, TensorBase) else v
                        for k, v in self._inner.state.get(s.leaf, {}).items()
                    }
                    if values:
                        own.append((numbers[id(s.param)], s.start, s.stop, values))
        everyone: list[Any] = [None] * self.group.size()
        all_gather_object(everyone, own, self.group)
        if to is not None and self.group.ranks[self.group.rank()] != to:
            return
        params = [p for g in self.param_groups for p in g["params"]]
        state: dict[int, dict[str, Any]] = {}
        for number, start, stop, values in sorted(
            (item for part in everyone for item in part), key=lambda item: item[:2]
        ):
            whole = state.setdefault(number, {})
            shape = params[number].array.shape
            for key, value in values.items():
                if isinstance(value, np.ndarray) and value.shape == (stop - start,):
                    if key not in whole:
                        whole[key] = wrap(np.zeros(shape, value.dtype))
                    whole[key].array.reshape(-1)[start:stop] = value
                else:
                    whole[key] = value
        self._consolidated = {"state": state, "param_groups": super().state_dict()["param_groups"]}

    def state_dict(self) -> dict[str, Any]:
        """The whole state, the same for any number of ranks, as `consolidate_state_dict` collected it.

        Raises:
            CommError: When it was not collected on this rank since the last step.
        """
        if self._consolidated is None:
            raise CommError(
                "the state is shared out among ranks: call consolidate_state_dict(to=rank) on every rank first, after "
                "the last step"
            )
        return self._consolidated

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a whole state, from any number of ranks or from the plain optimizer; each rank keeps its part."""
        plain = Optimizer.__new__(Optimizer)
        plain.param_groups, plain.state = self.param_groups, {}
        Optimizer.load_state_dict(plain, state_dict)
        if self._inner is None:
            return
        self._inner.state = {}
        for param, values in plain.state.items():
            for s in self._segments.get(id(param), ()):
                self._inner.state[s.leaf] = {
                    k: wrap(self._part(v, s)) if isinstance(v, TensorBase) and v.array.shape == param.array.shape else v
                    for k, v in values.items()
                }

    @staticmethod
    def _part(value: Any, segment: _Segment) -> Any:
        return array_module(value.array).array(value.array.reshape(-1)[segment.start : segment.stop])

    # --- Join ---------------------------------------------------------------------------------------------------------

    def join_group(self) -> Any:
        """The process group, for `Join`."""
        return self.group

    def enter_join(self, group: Any) -> None:
        """Refused: a rank without work would still have to update its range.

        Raises:
            CommError: Always.
        """
        raise CommError("ZeroRedundancyOptimizer cannot be used inside Join: ranks without work hold parameters of all")

    def leave_join(self, last: int | None) -> None:
        """Nothing to go back from."""
