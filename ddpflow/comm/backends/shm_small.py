"""The short way of small all-reduces: what ``Operation`` does for them, in one straight line.

A small all-reduce is all overhead: a few hundred additions take 0.2 microseconds, and every Python call or attribute
look-up between launch and result some 0.05. If nothing else is in flight and the peers answer within some microseconds,
there is no need for a machine that can stop anywhere; else an ``Operation`` takes over from where this has come to.
"""

import contextvars
from typing import Any

import numpy as np

from ddpflow.comm.backends.shm_control import ARRIVED, COUNT, READY, SIGNATURE, SLOT_WORDS
from ddpflow.comm.backends.shm_engine import Engine
from ddpflow.comm.backends.shm_moves import AllReduce
from ddpflow.comm.backends.shm_operation import SEQ_MASK, Operation, pack_signature
from ddpflow.comm.reduce import ReduceOp, combine_in_rank_order
from ddpflow.comm.signature import Call, Kind, dtype_code
from ddpflow.comm.work import CompletedWork, Work

__all__ = ["SmallReducer"]

# How often each peer's word is looked at before the slower way is taken: 2 or 3 microseconds. A caller that does not
# wait for the result should not be kept longer.
_LOOKS = 60
_MOST_KNOWN = 64


class SmallReducer:
    """All-reduces of arrays that fit into a slot's own buffer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._looks = _LOOKS if engine.waiter.may_spin else 1
        # For the lengths and dtypes met last: the part of the signature that is known, and the inline buffers.
        self._known: dict[tuple[int, np.dtype[Any]], tuple[int, list[list[np.ndarray]]]] = {}
        # Overflow is for a loss scaler to see, not for a warning. Entering this context costs a tenth of np.errstate.
        self._quiet = contextvars.copy_context()
        self._quiet.run(np.seterr, all="ignore")

    def all_reduce(self, array: np.ndarray, op: ReduceOp, call: Call) -> Work | None:
        """Replaces ``array`` by the reduction over all ranks; None, with nothing done, where it is not for this way."""
        engine = self._engine
        known = self._known.get((array.size, array.dtype))
        if known is None:
            if array.nbytes > engine.inline_bytes:
                return None
            known = self._learn(array.size, array.dtype)
        with engine.lock:
            if engine.flight or engine.messages or not engine.slot_is_free():
                return None
            try:
                return self._reduce(array, op, call, *known)
            except BaseException as error:  # Ctrl-C in the middle
                engine.fail_own(error)
                raise

    def _reduce(
        self, array: np.ndarray, op: ReduceOp, call: Call, signature: int, rows: list[list[np.ndarray]]
    ) -> Work:
        engine, n = self._engine, array.size
        words, fence, number = engine.words, engine.fence, engine.launched
        row = number % engine.ring
        at = row * SLOT_WORDS
        buffers = rows[row]
        buffers[engine.index][:] = array
        slot = engine.own_slots + at
        words[slot + SIGNATURE] = signature = (call.seq & SEQ_MASK) << 32 | (op + 1) << 10 | signature
        words[slot + COUNT] = n
        if fence is not None:
            fence()
        words[slot + ARRIVED] = words[slot + READY] = engine.launched = number + 1
        for slots in engine.other_slots:
            slot = slots + at
            ready = slot + READY
            for _ in range(self._looks):
                if words[ready] > number:
                    break
            else:
                break
            if fence is not None:
                fence()
            if words[slot + SIGNATURE] != signature or words[slot + COUNT] != n:
                break
        else:
            self._quiet.run(combine_in_rank_order, buffers, array, op)
            engine.count_completed(call.seq)
            return CompletedWork(array)
        work = Operation(engine, call, AllReduce(array, op, engine.size, engine.index), signature, n)
        work.take_over(number)
        engine.advance()
        return work

    def _learn(self, n: int, dtype: np.dtype[Any]) -> tuple[int, list[list[np.ndarray]]]:
        """Makes ready for arrays of another length or dtype."""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        signature = pack_signature(Call(Kind.ALL_REDUCE, 0, "", 0.0), dtype_code(dtype), -1)
        rows = [[buffer[:n] for buffer in row] for row in self._engine.inline_buffers(dtype)]
        self._known[n, dtype] = known = signature, rows
        return known
