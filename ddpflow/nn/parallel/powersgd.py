"""PowerSGD: gradients sent as the product of two thin matrices, with what is lost kept for the next step.

Source: Vogels, Karimireddy and Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed Optimization",
2019, algorithm 2.
"""

from typing import Any

import numpy as np

from ddpflow.comm.reduce import ReduceOp
from ddpflow.comm.work import Work
from ddpflow.comm.world import current_group
from ddpflow.device import array_module
from ddpflow.errors import ValueRangeError
from ddpflow.nn.parallel.comm_hooks import allreduce_hook

__all__ = ["PowerSGDState", "powerSGD_hook"]


class PowerSGDState:
    """What PowerSGD remembers from step to step, and its options, under PyTorch's names.

    Args:
        process_group: The ranks.
        matrix_approximation_rank: Columns of the thin matrices; larger is closer and sends more.
        start_powerSGD_iter: Steps with the plain mean first, while gradients change fast.
        min_compression_rate: A gradient is sent whole when compression would not make it smaller by this factor.
        use_error_feedback: Add what compression lost to the next step's gradient.
        warm_start: Start from the last step's matrices instead of random ones.
        orthogonalization_epsilon: As in PyTorch; not needed, the factorization here is a Householder QR.
        random_seed: Of the first matrices; the same on all ranks.

    Raises:
        ValueRangeError: When the rank or the number of first steps makes no sense.
    """

    def __init__(
        self,
        process_group: Any,
        matrix_approximation_rank: int = 1,
        start_powerSGD_iter: int = 1000,
        min_compression_rate: float = 2,
        use_error_feedback: bool = True,
        warm_start: bool = True,
        orthogonalization_epsilon: float = 0,
        random_seed: int = 0,
    ) -> None:
        if matrix_approximation_rank < 1:
            raise ValueRangeError(f"matrix_approximation_rank must be at least 1, not {matrix_approximation_rank}")
        if start_powerSGD_iter < 0:
            raise ValueRangeError(f"start_powerSGD_iter must not be negative, not {start_powerSGD_iter}")
        self.process_group = current_group() if process_group is None else process_group
        self.matrix_approximation_rank = matrix_approximation_rank
        self.start_powerSGD_iter = start_powerSGD_iter
        self.min_compression_rate = min_compression_rate
        self.use_error_feedback = use_error_feedback
        self.warm_start = warm_start
        self.iter = 0
        self.sent_bytes = 0
        self.whole_bytes = 0
        self._rng = np.random.default_rng(random_seed)
        self._errors: dict[int, list[Any]] = {}
        self._factors: dict[int, list[Any]] = {}

    def compression_stats(self) -> tuple[float, int, int]:
        """How many times smaller the communication was, and the bytes without and with compression."""
        rate = self.whole_bytes / self.sent_bytes if self.sent_bytes else 0.0
        return rate, self.whole_bytes, self.sent_bytes


def powerSGD_hook(state: PowerSGDState, bucket: Any) -> Work:
    """A communication hook: ``ddp.register_comm_hook(PowerSGDState(group, 4, 100), powerSGD_hook)``.

    Gradients of two and more dimensions are taken as matrices (rows by the rest) and sent as two factors; vectors, and
    matrices that would not get smaller, are sent whole. The result is equal on all ranks.
    """
    if bucket.is_last():
        state.iter += 1
    step = state.iter - 1 if bucket.is_last() else state.iter
    if step < state.start_powerSGD_iter:
        return allreduce_hook(state.process_group, bucket)
    return _LowRank(state, bucket)


class _LowRank(Work):
    """The exchange of one bucket: ``P = M Q`` and what is sent whole first, then ``Q = M^T P`` in `wait`.

    The second all-reduce is launched in `wait`, never in `progress`: so all ranks launch it at the same place.
    """

    __slots__ = ("_bucket", "_done", "_first", "_matrices", "_p", "_state", "_whole")
    _first: Any

    def __init__(self, state: PowerSGDState, bucket: Any) -> None:
        self._state, self._bucket, self._done = state, bucket, False
        xp = array_module(bucket.flat)
        rank = state.matrix_approximation_rank
        self._matrices: list[tuple[int, Any, int]] = []
        self._whole: list[int] = []
        errors = state._errors.setdefault(bucket.index(), [None] * len(bucket.views))
        factors = state._factors.setdefault(bucket.index(), [None] * len(bucket.views))
        for i, view in enumerate(bucket.views):
            rows = view.shape[0] if view.ndim > 1 else 0
            columns = view.size // rows if rows else 0
            r = min(rank, rows, columns)
            if not rows or (rows + columns) * r * state.min_compression_rate >= view.size:
                self._whole.append(i)
                continue
            matrix = view.reshape(rows, columns)
            if state.use_error_feedback and errors[i] is not None:
                matrix += errors[i]
            if factors[i] is None or not state.warm_start:
                factors[i] = xp.asarray(state._rng.standard_normal((columns, r)).astype(view.dtype))
            factors[i] = xp.linalg.qr(factors[i])[0]
            self._matrices.append((i, matrix, r))
        products = [matrix @ factors[i] for i, matrix, _ in self._matrices]
        parts = [p.reshape(-1) for p in products] + [bucket.views[i].reshape(-1) for i in self._whole]
        self._p = xp.concatenate(parts)
        self._first = state.process_group.all_reduce(
            self._p, ReduceOp.AVG, async_op=True, tag=f"{bucket.tag}, first factor"
        )
        state.whole_bytes += bucket.nbytes
        state.sent_bytes += self._p.nbytes

    def wait(self, timeout: Any = None) -> bool:
        """Finish both exchanges and put the approximation into the bucket."""
        if self._done:
            return True
        state, bucket = self._state, self._bucket
        self._first.wait(timeout)
        xp = array_module(bucket.flat)
        errors, factors = state._errors[bucket.index()], state._factors[bucket.index()]
        at, left = 0, []
        for _, matrix, r in self._matrices:
            p = self._p[at : at + matrix.shape[0] * r].reshape(matrix.shape[0], r)
            left.append(xp.linalg.qr(p)[0])
            at += p.size
        for i in self._whole:
            view = bucket.views[i]
            view[...] = self._p[at : at + view.size].reshape(view.shape)
            at += view.size
        if self._matrices:
            rights = [matrix.T @ p for (_, matrix, _), p in zip(self._matrices, left, strict=True)]
            q = xp.concatenate([right.reshape(-1) for right in rights])
            state.process_group.all_reduce(q, ReduceOp.AVG, tag=f"{bucket.tag}, second factor")
            state.sent_bytes += q.nbytes
            at = 0
            for (i, matrix, r), p in zip(self._matrices, left, strict=True):
                factors[i] = q[at : at + matrix.shape[1] * r].reshape(matrix.shape[1], r).copy()
                at += factors[i].size
                approximation = p @ factors[i].T
                if state.use_error_feedback:
                    errors[i] = matrix - approximation
                matrix[...] = approximation
        self._done = True
        return True

    def progress(self) -> bool:
        """Moves the first exchange on."""
        self._first.progress()
        return self._done

    def exception(self) -> BaseException | None:
        """Returns the first exchange's error; the second's is raised by ``wait``."""
        error: BaseException | None = self._first.exception()
        return error
