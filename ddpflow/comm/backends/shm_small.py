"""The short way of small all-reduces: what ``Operation`` does for them, in one straight line.

A small all-reduce is all overhead: a few hundred additions take 0.2 microseconds, and every Python call or attribute
look-up between launch and result some 0.05. If nothing else is in flight and the peers answer within some microseconds,
there is no need for a machine that can stop anywhere; else an ``Operation`` takes over from where this has come to.
"""

from typing import Any

import numpy as np

from ddpflow.comm.backends.shm_control import ARRIVED, COUNT, READY, SIGNATURE, SLOT_WORDS
from ddpflow.comm.backends.shm_engine import Engine
from ddpflow.comm.backends.shm_moves import AllReduce
from ddpflow.comm.backends.shm_operation import SEQ_MASK, Operation, pack_signature
from ddpflow.comm.reduce import ReduceOp, combine_in_rank_order, ufunc_of_two
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
        self._looks = range(_LOOKS if engine.waiter.may_spin else 1)
        rows = [row * SLOT_WORDS for row in range(engine.ring)]
        # For each slot of the ring: the words that this rank writes, and of each peer those that it reads.
        self._own = [_words_of(engine.own_slots + row) for row in rows]
        self._others = [[_words_of(slots + row) for slots in engine.other_slots] for row in rows]
        # For the lengths, dtypes and ops met last: what needs no second look.
        self._known: dict[tuple[int, np.dtype[Any], ReduceOp], _Known] = {}

    def all_reduce(self, array: np.ndarray, op: ReduceOp, call: Call) -> Work | None:
        """Replaces ``array`` by the reduction over all ranks; None, with nothing done, where it is not for this way."""
        engine, n = self._engine, array.size
        known = self._known.get((n, array.dtype, op))
        if known is None:
            if array.nbytes > engine.inline_bytes:
                return None
            known = self._learn(n, array.dtype, op)
        with engine.lock:
            if engine.flight or engine.messages or not engine.slot_is_free():
                return None
            try:
                number, words, fence = engine.launched, engine.words, engine.fence
                row = number % engine.ring
                signature, ufunc, rows = known
                buffers = rows[row]
                buffers[engine.index][:] = array
                arrived, ready, fingerprint, count = self._own[row]
                words[fingerprint] = signature = (call.seq & SEQ_MASK) << 32 | signature
                words[count] = n
                if fence is not None:
                    fence()
                words[arrived] = words[ready] = engine.launched = number + 1
                for _, ready, fingerprint, count in self._others[row]:
                    for _ in self._looks:
                        if words[ready] > number:
                            break
                    else:
                        break
                    if fence is not None:
                        fence()
                    if words[fingerprint] != signature or words[count] != n:
                        break
                else:
                    if ufunc is not None:
                        engine.quietly(ufunc, *buffers, out=array)
                    else:
                        engine.quietly(combine_in_rank_order, buffers, array, op)
                    engine.count_completed(call.seq)
                    return CompletedWork(array)
                work = Operation(engine, call, AllReduce(array, op, engine.size, engine.index), signature, n)
                work.take_over(number)
                engine.advance()
                return work
            except BaseException as error:  # Ctrl-C in the middle
                engine.fail_own(error)
                raise

    def _learn(self, n: int, dtype: np.dtype[Any], op: ReduceOp) -> "_Known":
        """Makes ready for another length, dtype or op."""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        signature = pack_signature(Call(Kind.ALL_REDUCE, 0, "", 0.0), dtype_code(dtype), op)
        ufunc = ufunc_of_two(dtype, op) if self._engine.size == 2 else None
        rows = [[buffer[:n] for buffer in row] for row in self._engine.inline_buffers(dtype)]
        self._known[n, dtype, op] = known = signature, ufunc, rows
        return known


# The signature but for the sequence number; the ufunc that is all there is to the reduction, if one is; and for each
# slot the ranks' inline buffers.
_Known = tuple[int, np.ufunc | None, list[list[np.ndarray]]]


def _words_of(slot: int) -> tuple[int, int, int, int]:
    return slot + ARRIVED, slot + READY, slot + SIGNATURE, slot + COUNT
