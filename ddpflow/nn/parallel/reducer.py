"""The state machine of data-parallel gradients: "gradient ready" events in, in-order bucket launches out.

One *round* is one outermost backward pass. Parameters report through their post-accumulate hooks; a bucket whose
parameters have all reported is launched once its predecessor was. The end of the pass fills in what did not report,
launches the rest and waits. Slots and launch order are fixed by the order of registration, never by arrival, so all
ranks launch the same collectives in the same order.

All state belongs to the round, and the round is told by the engine's pass: a backward that ended in an exception leaves
nothing behind that the next one would trip over.

Several reducers may share a group, and one backward may go through several models, in another order on each rank. Only
the oldest reducer of a group launches during backward; the others launch at its end, in order of age.
"""

import warnings
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

from ddpflow.autograd.base import meta_of, wrap
from ddpflow.autograd.passes import Pass, running
from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.work import Work
from ddpflow.errors import AutogradError
from ddpflow.nn.parallel.bucket import Bucket
from ddpflow.nn.parallel.sync import weight_factor
from ddpflow.nn.parallel.timing import Recorder

__all__ = ["Reducer"]

_next_number = count().__next__
_reducers_of: weakref.WeakKeyDictionary[Any, "weakref.WeakSet[Reducer]"] = weakref.WeakKeyDictionary()


class Reducer:
    """Keeps the gradients of some parameters averaged over a group.

    Args:
        params: The parameters that require grad, in order of registration.
        names: Their names.
        plan: What `plan_buckets` made of them.
        group: The process group.
        hook: What to do with a full bucket.
        unused: What becomes of parameters that a backward did not reach: ``"zero"`` averages zeros in, ``"none"``
            leaves ``grad`` None where no rank reached them, ``"error"`` raises.
        static_graph: Count in the first round how often each parameter reports (more than once when checkpointed code
            is run backward inside backward), and wait for as many reports from then on.

    Attributes:
        sync: False while gradients are to stay local; read when a gradient is ready.
        weight: This rank's weight in the mean, such as its number of samples; None for equal weights.
        idle: The parameters that the last round did not reach.
        rounds: How many rounds were reduced.
        record: Times of the latest round.
    """

    def __init__(
        self,
        params: Sequence[Any],
        names: Sequence[str],
        plan: Sequence[Sequence[int]],
        group: Any,
        hook: Callable[[Bucket], Work],
        unused: str = "zero",
        static_graph: bool = False,
    ) -> None:
        self.params = list(params)
        self.names = list(names)
        self.group = group
        self.hook = hook
        self.unused = unused
        self.static_graph = static_graph
        self.sync = True
        self.weight: float | None = None
        self._factor = 1.0
        self.idle: list[int] = []
        self.rounds = 0
        self.buckets = [
            Bucket(k, indices, [names[i] for i in indices], [params[i] for i in indices], group, k == len(plan) - 1)
            for k, indices in enumerate(plan)
        ]
        self._place = {i: (bucket, slot) for bucket in self.buckets for slot, i in enumerate(bucket.indices)}
        self._sizes = [len(bucket.indices) for bucket in self.buckets]
        self._expected = [1] * len(params)
        self._local: set[int] = set()  # reached while sync was off, since the last round
        self._warned = False
        self.record = Recorder(len(self.buckets))
        self._works: list[Work] = []
        self._pass: Pass | None = None
        self._number = _next_number()
        self._fellows = _reducers_of.setdefault(group, weakref.WeakSet())
        self._fellows.add(self)
        handles = [p.register_post_accumulate_grad_hook(self._reporter(i)) for i, p in enumerate(params)]
        self._let_go = weakref.finalize(self, _let_go, self.params, self.buckets, handles)
        self._let_go.atexit = False

    def detach(self) -> None:
        """Take the hooks off the parameters; their gradients stay."""
        self._fellows.discard(self)
        self._let_go()

    def flush(self) -> None:
        """Average the gradients as they are, outside of backward."""
        self._begin(None)
        self._local.update(i for i, p in enumerate(self.params) if p._grad is not None)
        self._launch_rest()
        self._wait()

    # --- the round ----------------------------------------------------------------------------------------------------

    def _reporter(self, index: int) -> Callable[[Any], None]:
        """The hook of one parameter: its gradient is final for this pass."""
        bucket, slot = self._place[index]
        place, view, own = bucket.number, bucket.views[slot], bucket.grads[slot]
        meta_of(self.params[index]).home = own
        reference = weakref.ref(self)  # or parameters and reducer would keep each other alive after the wrapper is gone

        def report(param: Any) -> None:
            self = reference()
            if self is None:
                return
            if not self.sync:
                self._local.add(index)
                return
            current = running.passes[0]
            if self._pass is not current:
                self._begin(current)
            zero = param.meta.zero_grad
            if not zero:
                self._reached[index] = 1
            elif zero == 2:
                self._blank.add(index)
            if param._grad is not own or own.array is not view:
                bucket.take(slot, param)
            self._left[index] = left = self._left[index] - 1
            if not left:
                self._missing[place] = missing = self._missing[place] - 1
                if not missing:
                    self.record.ready[place] = self.record.now()
                    if place == len(self._works) and not self._held:
                        self._launch()
            elif left < 0:
                self._late.add(place)
            if self._works:
                self._works[-1].progress()

        return report

    def _begin(self, current: Pass | None) -> None:
        """The first report of a round."""
        for work in self._works:  # of a round that was given up
            work.wait()
        self._pass = current
        self._left = self._expected.copy()  # reports still to come from each parameter
        self._late: set[int] = set()  # buckets with more reports than expected
        self._reached = bytearray(len(self.params))
        self._blank: set[int] = set()  # whose gradient was None before zeros took its place
        self._missing = self._sizes.copy()
        self._works = []
        self.record = Recorder(len(self.buckets))
        is_oldest = len(self._fellows) == 1 or all(r._number >= self._number for r in self._fellows)
        self._held = not is_oldest or (self.static_graph and not self.rounds)
        self._factor = 1.0 if self.weight is None else weight_factor(self.group, self.weight)
        if current is not None:
            end = next((c for c in current.callbacks if c.__class__ is _End), None)
            if end is None:
                current.callbacks.append(end := _End())
            end.reducers.append(self)
            current.on_nested.append(self._settle)
            current.on_error.append(self._give_up)

    def _launch(self) -> None:
        """Launch buckets in order, as long as the next one is full."""
        k = len(self._works)
        while k < len(self.buckets) and not self._missing[k]:
            self.record.launched[k] = self.record.now()
            if self._factor != 1.0:
                self.buckets[k].flat *= self._factor
            self._works.append(self.hook(self.buckets[k]))
            k += 1

    def _settle(self) -> None:
        """A backward starts inside this one, and may add to gradients that are under way: land those, launch no more.

        With a static graph it is known how many reports to wait for, so nothing under way can be added to.
        """
        if self.static_graph and self.rounds:
            return
        self._held = True
        for work in self._works:
            work.wait()

    def _give_up(self) -> None:
        """The pass ended in an exception: gradients that are still under way must not be where the next one adds to.

        Their buckets are taken back in the next round; to wait here could be to wait for ranks that never got so far.
        """
        for bucket in self.buckets[: len(self._works)]:
            for i, view, grad in zip(bucket.indices, bucket.views, bucket.grads, strict=True):
                param = self.params[i]
                if param._grad is grad:
                    param._grad = wrap(view.copy())
                meta_of(param).home = None
        self._pass = None

    def _launch_rest(self) -> None:
        for i in self._local:
            self._reached[i] = 1
        self._local.clear()
        self.idle = [i for i, reached in enumerate(self._reached) if not reached] if 0 in self._reached else []
        if self.idle and self.unused == "error":
            raise AutogradError(
                self._idle_text()
                + ": use them in the loss, freeze them with requires_grad_(False), or choose unused='zero'"
            )
        self._early = len(self._works)
        for bucket, missing in zip(self.buckets, self._missing, strict=True):
            for slot, i in enumerate(bucket.indices if missing else ()):
                if self._left[i] == self._expected[i]:
                    if self.params[i]._grad is None:
                        self._blank.add(i)
                    bucket.take(slot, self.params[i])
        self._missing = [0] * len(self.buckets)
        self._launch()

    def _wait(self) -> None:
        """Wait for all buckets, then settle what unused parameters are left with."""
        before = self.record.backward = self.record.now()
        for k, work in enumerate(self._works):
            work.wait()
            after = self.record.now()
            self.record.waited[k] = after - before
            before = after
        for k in sorted(self._late):
            if k < self._early:
                # It went out before all of its gradient was there. Averaging again is right: what is equal on all ranks
                # stays as it is.
                self.hook(self.buckets[k]).wait()
        if self.unused == "none":
            self._restore_unused()
        elif self.idle and not self._warned:
            self._warned = True
            warnings.warn(
                self._idle_text() + "; zeros are averaged in for them (unused='none' leaves their grad None)",
                stacklevel=2,
            )
        if self.static_graph and not self.rounds:
            self._expected = [max(1, 1 - left) for left in self._left]
        self._works = []
        self._pass = None
        self.rounds += 1
        self.group.count_step()

    def _restore_unused(self) -> None:
        """Give back the None to parameters that no rank reached; all ranks learn it from one small all-reduce."""
        used = np.frombuffer(self._reached, np.uint8)
        self.group.all_reduce(used, ReduceOp.MAX, tag="which parameters were used")
        for i in self._blank:
            if not used[i]:
                self.params[i]._grad = None

    def _idle_text(self) -> str:
        names = [self.names[i] for i in self.idle]
        shown = ", ".join(names[:8]) + (f", ... {len(names) - 8} more" if len(names) > 8 else "")
        rank = self.group.ranks[self.group.rank()]
        return (
            f"rank {rank}: {shown} ({len(names)} of {len(self.names)} parameters) received no gradient in this backward"
        )


def _let_go(params: list[Any], buckets: list[Bucket], handles: list[Any]) -> None:
    """The end of a reducer: its hooks are taken out, and gradients no longer come to lie in its buckets."""
    for handle in handles:
        handle.remove()
    for bucket in buckets:
        for i, grad in zip(bucket.indices, bucket.grads, strict=True):
            if params[i].meta.home is grad:
                params[i].meta.home = None


class _End:
    """The end of a backward pass: every reducer that took part launches what it has left, then each waits."""

    def __init__(self) -> None:
        self.reducers: list[Reducer] = []

    def __call__(self) -> None:
        self.reducers.sort(key=lambda reducer: reducer._number)
        for reducer in self.reducers:
            reducer._launch_rest()
        for reducer in self.reducers:
            reducer._wait()
