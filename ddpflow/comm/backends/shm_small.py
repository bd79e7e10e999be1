"""The short way of small all-reduces: what `Operation` does for them, in one straight line.

A small all-reduce is all overhead: a few hundred additions take 0.2 microseconds, and every Python call or attribute
look-up between launch and result some 0.05. If nothing else is in flight and the peers answer within some microseconds,
there is no need for a machine that can stop anywhere; else an `Operation` takes over from where this has come to.
"""

from typing import Any

import numpy as np

from ddpflow.comm.backends.shm_control import ARRIVED, COUNT, READY, SIGNATURE, SLOT_WORDS
from ddpflow.comm.backends.shm_engine import Engine
from ddpflow.comm.backends.shm_moves import AllReduce
from ddpflow.comm.backends.shm_operation import Operation, pack_signature
from ddpflow.comm.reduce import ReduceOp, reduce_in_rank_order
from ddpflow.comm.signature import Call, Kind, dtype_code
from ddpflow.comm.work import CompletedWork, Work

__all__ = ["SmallReducer"]

# How often each peer's word is looked at before the slower way is taken: 2 or 3 microseconds. A caller that does not
# wait for the result should not be kept longer.
_LOOKS = 60


class SmallReducer:
    """All-reduces of arrays that fit into a slot's own buffer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # For each dtype: the inline buffers, the most elements they hold, and the part of the signature that is known.
        self._known: dict[np.dtype[Any], tuple[list[list[np.ndarray]], int, int]] = {}
        self._looks = _LOOKS if engine.waiter.may_spin else 1

    def all_reduce(self, array: np.ndarray, op: ReduceOp, call: Call) -> Work | None:
        """Replaces `array` by the reduction over all ranks; None, with nothing done, where it is not for this way."""
        engine = self._engine
        dtype, n = array.dtype, array.size
        rows, most, signature = self._known.get(dtype) or self._learn(dtype)
        if n > most:
            return None
        with engine.lock:
            if engine.flight or engine.messages or not engine.slot_is_free():
                return None
            try:
                return self._reduce(array, op, call, rows, signature)
            except BaseException as error:  # Ctrl-C in the middle
                engine.fail_own(error)
                raise

    def _reduce(
        self, array: np.ndarray, op: ReduceOp, call: Call, rows: list[list[np.ndarray]], signature: int
    ) -> Work:
        engine, n = self._engine, array.size
        words, number = engine.words, engine.launched
        row = number % engine.ring
        at = row * SLOT_WORDS
        buffers = rows[row]
        buffers[engine.index][:n] = array
        slot = engine.own_slots + at
        words[slot + SIGNATURE] = signature = call.seq << 32 | (op + 1) << 10 | signature
        words[slot + COUNT] = n
        if engine.fence is not None:
            engine.fence()
        words[slot + ARRIVED] = words[slot + READY] = engine.launched = number + 1
        for slots in engine.other_slots:
            slot = slots + at
            ready = slot + READY
            for _ in range(self._looks):
                if words[ready] > number:
                    break
            else:
                break
            if engine.fence is not None:
                engine.fence()
            if words[slot + SIGNATURE] != signature or words[slot + COUNT] != n:
                break
        else:
            reduce_in_rank_order([buffer[:n] for buffer in buffers], array, op)
            engine.count_completed(call.seq)
            return CompletedWork(array)
        work = Operation(engine, call, AllReduce(array, op, engine.size, engine.index), signature, n)
        work.take_over(number)
        engine.advance()
        return work

    def _learn(self, dtype: np.dtype[Any]) -> tuple[list[list[np.ndarray]], int, int]:
        engine = self._engine
        call = Call(Kind.ALL_REDUCE, 0, "", 0.0)
        signature = pack_signature(call, dtype_code(dtype), -1)
        known = engine.inline_buffers(dtype), engine.inline_bytes // dtype.itemsize, signature
        self._known[dtype] = known
        return known
