"""DistributedDataParallel: what a user sees of data-parallel training."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ddpflow.autograd.mode import grad_mode
from ddpflow.comm.world import current_group
from ddpflow.errors import DdpflowError, DtypeError, MismatchError, ModelError, ValueRangeError
from ddpflow.nn.module import Module
from ddpflow.nn.parallel.comm_hooks import allreduce_hook, as_work
from ddpflow.nn.parallel.consistency import check_consistency, check_finite
from ddpflow.nn.parallel.join import Join
from ddpflow.nn.parallel.managed import ignore, managed_buffers, managed_parameters
from ddpflow.nn.parallel.mixed_precision import Lowered, MixedPrecision
from ddpflow.nn.parallel.options import check_options
from ddpflow.nn.parallel.outputs import tie
from ddpflow.nn.parallel.plan import default_cap, plan_buckets
from ddpflow.nn.parallel.reducer import Reducer
from ddpflow.nn.parallel.sync import broadcast_tensors, compare_models, describe, sync_buffers
from ddpflow.nn.parallel.timing import Plan, make_plan
from ddpflow.nn.parallel.watch import Watch
from ddpflow.nn.parallel.wrapper import Wrapper

__all__ = ["DistributedDataParallel"]

_MB = 1 << 20


class DistributedDataParallel(Wrapper):
    """Trains one model on several ranks: each has its own part of the batch, gradients are averaged in backward.

    At construction the ranks compare their models and take over the first rank's values. From then on *any* backward
    that reaches the parameters is averaged, whoever ran forward: each ``param.grad`` becomes the mean over the group's
    ranks, and lies in memory that the ranks communicate without a copy. With equal batches that is the gradient of the
    mean loss over the whole batch.

    Args:
        module: The model. It stays as it is, and is also ``ddp.module``.
        device_ids: As in PyTorch; at most one device, the model's, and not needed.
        output_device: As in PyTorch; not needed.
        dim: As in PyTorch; not needed.
        broadcast_buffers: Bring buffers up to date once per training step. ``forward_sync_buffers`` is PyTorch's new
            name for it.
        buffers: How: ``"broadcast"`` copies the first rank's, ``"average"`` takes the mean of floating ones.
        init_sync: Compare the models and copy the first rank's values at construction.
        process_group: The ranks that train together; the current group when None.
        bucket_cap_mb: Most MiB of gradients in one all-reduce; chosen from the model's size when None.
        first_bucket_mb: Another cap for the first bucket, which is ready first.
        find_unused_parameters: PyTorch's name for ``unused="none"``.
        unused: What becomes of parameters that a backward does not reach: ``"zero"`` averages zeros in and warns once,
            ``"none"`` leaves ``grad`` None where no rank reached them, ``"error"`` raises with their names.
        static_graph: The same parameters are reached equally often in each step; lets checkpointed models overlap.
        gradient_as_bucket_view: As in PyTorch; gradients always are views of the buckets.
        comm_hook: What to do with a full bucket instead of averaging it; see `register_comm_hook`.
        mixed_precision: Types for computing, averaging and buffers; see `MixedPrecision`.
        detect_nonfinite: Raise, with rank and parameter, when a local gradient has an infinity or NaN, before it is
            averaged into everybody's.
        skip_all_reduce_unused_params: PyTorch's; the same as ``unused="none"`` here.
        check_reduction, batched_grad_copy: PyTorch's; accepted, not needed.
        delay_all_reduce_named_params, param_to_hook_all_reduce, device_mesh, bucket_cap_mb_list: PyTorch's; refused.

    Raises:
        ModelError: On all ranks, when a rank's model cannot be trained: nothing requires grad, devices are mixed.
        MismatchError: On all ranks, when their models or options differ; the text shows the first difference.
        ValueRangeError: On all ranks, when an option makes no sense; DtypeError: when it is of a wrong type.

    Example:
        >>> import ddpflow
        >>> from ddpflow.nn import Linear
        >>> ddp = DistributedDataParallel(Linear(3, 2))
        >>> ddp(ddpflow.ones(4, 3)).sum().backward()
        >>> ddp.module.bias.grad
        tensor([4., 4.])
    """

    _option_names = (
        *("broadcast_buffers", "bucket_cap_mb", "buffers_mode", "detect_nonfinite", "dim", "first_bucket_mb"),
        *("mixed_precision", "static_graph", "unused"),
    )
    _group: Any
    _hook: tuple[Any, Callable[[Any, Any], Any]]
    _reducer: Reducer | None
    _watch: Watch
    _lowered: Lowered | None
    _buffers_of_round: int
    _accumulated: int
    _checks: int

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        *,
        first_bucket_mb: float | None = None,
        unused: str | None = None,
        static_graph: bool = False,
        gradient_as_bucket_view: bool = True,
        buffers: str = "broadcast",
        comm_hook: Callable[[Any, Any], Any] | None = None,
        mixed_precision: MixedPrecision | None = None,
        detect_nonfinite: bool = False,
        forward_sync_buffers: bool | None = None,
        skip_all_reduce_unused_params: bool = False,
        check_reduction: bool = False,
        batched_grad_copy: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        device_mesh: Any = None,
        bucket_cap_mb_list: Any = None,
    ) -> None:
        super().__init__()
        self._bind(current_group() if process_group is None else process_group)
        problem = check_options(
            module,
            devices={"device_ids": device_ids, "output_device": output_device},
            caps={"bucket_cap_mb": bucket_cap_mb, "first_bucket_mb": first_bucket_mb},
            words={"unused": unused, "buffers": buffers},
            comm_hook=comm_hook,
            mixed_precision=mixed_precision,
            foreign={
                "delay_all_reduce_named_params": delay_all_reduce_named_params,
                "param_to_hook_all_reduce": param_to_hook_all_reduce,
                "device_mesh": device_mesh,
                "bucket_cap_mb_list": bucket_cap_mb_list,
            },
        )
        if problem is not None:
            self._agree([], problem, init_sync)
        self.module = module
        synced = (option for option in (forward_sync_buffers, broadcast_buffers, True) if option is not None)
        self.broadcast_buffers = next(synced)
        self.buffers_mode = buffers
        self.bucket_cap_mb = bucket_cap_mb
        self.first_bucket_mb = first_bucket_mb
        self.unused = unused or ("none" if find_unused_parameters or skip_all_reduce_unused_params else "zero")
        self.static_graph = static_graph
        self.mixed_precision = mixed_precision
        self.detect_nonfinite = detect_nonfinite
        self.dim = dim
        if comm_hook is not None:
            self._hook = (self._group, comm_hook)
        if mixed_precision is not None:
            mixed_precision.cast_buffers(module.buffers())
        self._agree(describe(module), self._problem(), init_sync)
        if init_sync and self._group.size() > 1:
            broadcast_tensors(self._group, self._tensors(), "first values of the model")
        self._build()

    # --- construction -------------------------------------------------------------------------------------------------

    def _bind(self, group: Any) -> None:
        """What belongs to this process and is neither copied nor pickled."""
        object.__setattr__(self, "_group", group)
        object.__setattr__(self, "_hook", (group, allreduce_hook))
        object.__setattr__(self, "_reducer", None)
        object.__setattr__(self, "_buffers_of_round", -1)
        object.__setattr__(self, "_accumulated", 0)
        object.__setattr__(self, "_checks", 0)

    def _agree(self, lines: list[str], problem: Exception | None, together: bool) -> None:
        """Raise a problem on all ranks that construct together; without ``init_sync``, only where it is."""
        if together and self._group.size() > 1:
            options = {k: v for k, v in self._options().items() if k != "detect_nonfinite"} if problem is None else None
            compare_models(self._group, lines, problem, options)
        elif problem is not None:
            raise problem

    def _problem(self) -> DdpflowError | None:
        """What makes this rank's model impossible to train."""
        text = self._fault()
        return None if text is None else ModelError(text)

    def _fault(self) -> str | None:
        params = [(n, p) for n, p in managed_parameters(self.module) if p.requires_grad]
        if not params:
            return "no parameter of the model requires grad, so there is nothing to average"
        devices = {str(p.device): n for n, p in params}
        if len(devices) > 1:
            places = ", ".join(f"{n} on {d}" for d, n in devices.items())
            return f"the model lies on several devices ({places}); move it to one"
        nested = [n for n, m in self.module.named_modules() if isinstance(m, DistributedDataParallel)]
        if nested:
            return f"the model already contains a DistributedDataParallel, {nested[0] or 'its root'}; wrap it only once"
        return None

    def _build(self) -> None:
        """Plan the buckets and hook the parameters, as the model is now."""
        if self._reducer is not None:
            self._reducer.detach()
        self._watch = Watch(self.module)
        wanted = None if self.mixed_precision is None else self.mixed_precision.param_dtype
        object.__setattr__(self, "_lowered", None if wanted is None else Lowered(self.module, wanted))
        if self._group.size() == 1:
            return
        named = [(n, p) for n, p in managed_parameters(self.module) if p.requires_grad]
        sizes = [p.nbytes for _, p in named]
        cap = default_cap(sum(sizes)) if self.bucket_cap_mb is None else self.bucket_cap_mb * _MB
        first = None if self.first_bucket_mb is None else self.first_bucket_mb * _MB
        plan = plan_buckets(sizes, cap, first, [(p.dtype.name, str(p.device)) for _, p in named])
        names, params = [n for n, _ in named], [p for _, p in named]
        old = self._reducer
        self._reducer = Reducer(params, names, plan, self._group, self._launcher(), self.unused, self.static_graph)
        if old is not None:
            self._reducer.sync, self._reducer.rounds = old.sync, old.rounds

    def _launcher(self) -> Callable[[Any], Any]:
        """The hook, bound to its state and with a Work as its result; but for the default, beside the computation."""
        (state, hook), group = self._hook, self._group
        if self.mixed_precision is not None:
            hook = self.mixed_precision.reducing(hook)
        if hook is allreduce_hook and not self.detect_nonfinite:
            return lambda bucket: hook(state, bucket)
        rank = group.ranks[group.rank()] if self.detect_nonfinite else -1

        def launch(bucket: Any) -> Any:
            if rank >= 0:
                check_finite(bucket, rank)
            return group.beside(bucket.flat, lambda: as_work(hook(state, bucket), bucket), bucket.tag)

        return launch

    def register_comm_hook(self, state: Any, hook: Callable[[Any, Any], Any]) -> None:
        """Replace averaging: ``hook(state, bucket)`` is called with each full bucket, in the same order on all ranks.

        See `ddpflow.nn.parallel.comm_hooks` for what a hook gives back, and for ready-made ones. The bucket has
        PyTorch's methods ``index()``, ``buffer()``, ``gradients()``, ``parameters()``, ``is_last()``, ``set_buffer()``.
        On a GPU the hook, and the steps of the Work or Future that it gives, run on the group's communication stream.

        Args:
            state: Whatever the hook needs; None stands for the process group.
            hook: The function. It divides by the number of ranks itself.

        Raises:
            DtypeError: When the hook cannot be called.
            ModelError: When one is registered already.
        """
        if not callable(hook):
            raise DtypeError(f"a communication hook must be callable, not {type(hook).__name__}")
        if self._hook[1] is not allreduce_hook:
            raise ModelError("register_comm_hook can be called once only; a hook is registered already")
        self._hook = (self._group if state is None else state, hook)
        if self._reducer is not None:
            self._reducer.hook = self._launcher()

    def _follow_changes(self) -> None:
        """Plan anew when the model has changed, after all ranks agree that it did so in the same way."""
        changes = self._watch.changes()
        if not changes:
            return
        try:
            compare_models(self._group, describe(self.module), self._problem())
        except MismatchError as error:
            raise MismatchError(
                f"since it was wrapped, {'; '.join(changes[:4])}; but not so on all ranks: {error}"
            ) from error
        self._build()

    # --- use ----------------------------------------------------------------------------------------------------------

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward. In training it first follows changes of the model and brings buffers up to date."""
        reducer, run = self._reducer, self._lowered or self.module
        if reducer is None or not grad_mode.enabled:
            return run(*args, **kwargs)
        if self.training:
            self._follow_changes()
            reducer = self._reducer or reducer
            if self.broadcast_buffers and self._buffers_of_round != reducer.rounds:
                self._buffers_of_round = reducer.rounds
                sync_buffers(self._group, self._watch.buffers(), self.buffers_mode == "average")
        out = run(*args, **kwargs)
        # What the last step did not reach would stall its bucket until the end of backward; tied to the outputs, it is
        # known at the start.
        return tie(out, [reducer.params[i] for i in reducer.idle]) if reducer.idle else out

    @contextlib.contextmanager
    def no_sync(self, active: bool = True) -> Iterator[None]:
        """Backward passes inside keep gradients local, to be averaged by a later one. Read when backward runs.

        Args:
            active: False makes it do nothing, so that a loop needs no second branch.
        """
        reducer = self._reducer
        before = True if reducer is None else reducer.sync
        if reducer is not None and active:
            reducer.sync = False
        try:
            yield
        finally:
            if self._reducer is not None:
                self._reducer.sync = before

    @contextlib.contextmanager
    def accumulate(self, steps: int) -> Iterator[bool]:
        """Average only in every ``steps``-th use; yields True in that one, when the optimizer should step.

        Example:
            >>> from ddpflow.nn import Linear
            >>> ddp = DistributedDataParallel(Linear(3, 2))
            >>> for batch in range(4):
            ...     with ddp.accumulate(2) as last:
            ...         print(last)
            False
            True
            False
            True

        Raises:
            ValueRangeError: When ``steps`` is below 1.
        """
        if steps < 1:
            raise ValueRangeError(f"accumulate() takes a number of steps from 1 up, not {steps}")
        self._accumulated = (self._accumulated + 1) % steps
        last = self._accumulated == 0
        with self.no_sync(active=not last):
            yield last

    @contextlib.contextmanager
    def weighted(self, weight: float) -> Iterator[None]:
        """Backward passes inside are averaged by weight, such as the number of samples that the loss is a mean over.

        With every rank's loss the mean over its own ``weight`` samples, the gradient is that of the mean over all
        samples, however unevenly they are shared out. Every rank must use it; a rank without samples has weight 0.

        Args:
            weight: This rank's.

        Raises:
            ValueRangeError: When a weight is negative, or all are zero.
        """
        if not weight >= 0:
            raise ValueRangeError(f"the weight of a rank must not be negative, not {weight}")
        reducer = self._reducer
        if reducer is None:
            yield
            return
        before, reducer.weight = reducer.weight, float(weight)
        try:
            yield
        finally:
            reducer.weight = before

    def sync_gradients(self) -> None:
        """Average the gradients that were kept local, without another backward; every rank must call it."""
        if self._reducer is not None:
            self._reducer.flush()

    def plan(self) -> Plan:
        """The buckets in launch order, and after a step the times of its communication; prints as a table.

        Example:
            >>> from ddpflow.nn import Linear
            >>> DistributedDataParallel(Linear(3, 2)).plan().buckets  # alone there is nothing to communicate
            ()
        """
        if self._reducer is None:
            return Plan((), 1, None)
        record = self._reducer.record if self._reducer.rounds else None
        return make_plan(self._reducer.buckets, record, self._group.size())

    def check_consistency(self, optimizer: Any = None, *, every: int = 1) -> None:
        """Compare parameters, buffers and optimizer state across ranks, bit for bit, in every ``every``-th call.

        Every rank must call it equally often; it costs a pass over the model's memory and one small collective.

        Raises:
            MismatchError: On every rank; names the first entry that differs and the ranks on each side.
        """
        self._checks += 1
        if self._group.size() > 1 and self._checks % every == 0:
            check_consistency(self._group, self.module, optimizer)

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """A context in which ranks may have different numbers of batches; see `Join`."""
        return Join(
            [self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size
        )

    def join_group(self) -> Any:
        """The process group, for `Join`."""
        return self._group

    def enter_join(self, group: Any) -> None:
        """Communicate through a `Join`'s group."""
        self._use_group(group)

    def leave_join(self, last: int | None) -> None:
        """Go back to the group itself, with the model of the rank that worked longest."""
        group = self._group._group
        self._use_group(group)
        if last is not None:
            broadcast_tensors(group, self._tensors(), "the joined model", last)

    def _use_group(self, group: Any) -> None:
        state, hook = self._hook
        self._hook = (group if state is self._group else state, hook)
        self._group = group
        if self._reducer is not None:
            self._reducer.group, self._reducer.hook = group, self._launcher()

    def _tensors(self) -> list[Any]:
        """What all ranks hold alike."""
        return [t for named in (managed_parameters(self.module), managed_buffers(self.module)) for _, t in named]

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(
        module: Module, params_and_buffers_to_ignore: Iterable[str]
    ) -> None:
        """Name, before wrapping, parameters and buffers that each rank keeps for itself (PyTorch's name)."""
        ignore(module, params_and_buffers_to_ignore)

    def extra_repr(self) -> str:
        """Divisor and buckets in short."""
        size = self._group.size()
        if self._reducer is None:
            return "one rank: nothing to average"
        sizes = [b.nbytes / _MB for b in self._reducer.buckets]
        return f"mean over {size} ranks, {len(sizes)} buckets of up to {max(sizes):.3g} MiB"
