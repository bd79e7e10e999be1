"""A collective in flight on one rank: a small machine that ``step`` moves on, and that never waits itself.

Its stages:

    LAUNCHED   its fingerprint is in the slot (ARRIVED); its data may still be in use by an earlier collective
    READY      its data may be read: a small message lies in the slot's inline buffer, a large one where the caller has
               it (registered memory) or nowhere yet
    STAGED     large and not registered everywhere: passing piece by piece through the staging chunks; the first piece
               of an all-reduce may be there before, while peers are still to come
    TRAILING   own part done; peers may still read or write this rank's registered memory (DONE)

The way is chosen by what all ranks see in all slots, so all choose the same: inline if the data fits, else direct if it
is registered memory on every rank that it is read from, else staged.
"""

from typing import Any

import numpy as np

from ddpflow.comm.backends.shm_arena import address_of
from ddpflow.comm.backends.shm_control import (
    ARRIVED,
    COMPLETED,
    CONSUMED,
    COUNT,
    DONE,
    MAIL_COUNT,
    PLACE,
    POSTED,
    READY,
    SIGNATURE,
    SLOT_WORDS,
    STEPS,
)
from ddpflow.comm.backends.shm_engine import BLOCKED, ENDED, TRAILING, Engine, ShmWork
from ddpflow.comm.backends.shm_moves import AllReduce, AllToAll, Move
from ddpflow.comm.signature import Call, Signature

__all__ = ["SEQ_MASK", "Operation", "Vacancy", "pack_signature", "unpack_signature"]

_LAUNCHED, _READY, _STAGED, _TRAILING, _ENDED = range(5)
SEQ_MASK = (1 << 31) - 1  # a job may well make more than 2**31 collectives


def pack_signature(call: Call, dtype: int, op: int) -> int:
    """Packs all of a call's fingerprint but the count into one word; of the sequence number the lower 31 bits."""
    return (call.seq & SEQ_MASK) << 32 | (call.root + 1) << 16 | (op + 1) << 10 | dtype << 5 | call.kind


def unpack_signature(word: int, count: int) -> Signature:
    """Returns the fingerprint that a peer has put into its slot."""
    return Signature(
        kind=word & 31,
        seq=word >> 32,
        dtype=word >> 5 & 31,
        length=count,
        op=(word >> 10 & 63) - 1,
        root=(word >> 16 & 0xFFFF) - 1,
    )


class Operation(ShmWork):
    """A collective in flight.

    Args:
        engine: what moves it on.
        call: the call.
        move: its array work; None for a barrier.
        signature: see ``pack_signature``.
        count: the fingerprint's count.
    """

    __slots__ = (
        "_at",
        "_bounds",
        "_chunks",
        "_count",
        "_drained",
        "_first",
        "_inline",
        "_length",
        "_move",
        "_number",
        "_posted",
        "_room",
        "_signature",
        "_stage",
        "_steps",
        "_taken",
        "_value",
        "_word",
    )

    def __init__(self, engine: Engine, call: Call, move: Move | None, signature: int, count: int) -> None:
        self.engine, self.call, self.state, self.error = engine, call, BLOCKED, None
        self._move, self._signature, self._count, self._stage = move, signature, count, _LAUNCHED
        self._inline = move is None or (
            move.n * move.width * move.array.itemsize <= engine.inline_bytes and type(move) is not AllToAll
        )
        self._steps = 0
        self._bounds: list[tuple[int, int]] | None = None

    def launch(self) -> None:
        """Puts the fingerprint into the slot, and the data as well unless an earlier collective still uses it.

        The caller holds the engine's lock and has made sure that the slot is free.
        """
        engine, words = self.engine, self.engine.words
        self._number = number = engine.launched
        engine.launched = number + 1
        self._at = number % engine.ring * SLOT_WORDS
        slot = engine.own_slots + self._at
        words[slot + SIGNATURE] = self._signature
        words[slot + COUNT] = self._count
        if not self._inline:
            self._say_where(slot)
        flight = engine.flight
        if not flight or self._is_apart():
            self._make_ready(slot)
        else:
            engine.control.announce(slot + ARRIVED, number + 1)
        flight.append(self)

    def _say_where(self, slot: int) -> None:
        """Tells the peers where the own data lies; in an all_to_all also how many pieces there are of it."""
        engine, move = self.engine, self._move
        assert move is not None
        if type(move) is AllToAll:
            engine.words[slot + PLACE], engine.words[slot + STEPS] = -1, self._pieces_of(move)
        else:
            engine.words[slot + PLACE] = engine.arena.offset_of(move.array)

    def take_over(self, number: int) -> None:
        """Goes on with collective ``number``, which is ready already."""
        self._number, self._at, self._stage = number, number % self.engine.ring * SLOT_WORDS, _READY
        self.engine.flight.append(self)

    def _make_ready(self, slot: int) -> None:
        """Lets the peers read the own data."""
        move, engine = self._move, self.engine
        if self._inline:
            if move is not None and move.fills:
                move.fill(engine.inline_buffers(move.array.dtype)[self._number % engine.ring][engine.index], 0, move.n)
        elif type(move) is AllToAll:
            for rank, count in enumerate(move.counts):
                engine.words[engine.layout.mail(engine.index, rank) + MAIL_COUNT] = count
        if engine.fence is not None:
            engine.fence()
        engine.words[slot + ARRIVED] = engine.words[slot + READY] = self._number + 1
        self._stage = _READY

    def _is_apart(self) -> bool:
        """Whether no collective in flight touches this one's memory."""
        if type(self._move) is AllToAll:  # the counts have one place only
            return False
        own = self._memory()
        others = [span for work in self.engine.flight if isinstance(work, Operation) for span in work._memory()]
        return not any(first < end and begin < last for first, last in own for begin, end in others)

    def _memory(self) -> list[tuple[int, int]]:
        """Returns the ranges of addresses that the operation reads or writes."""
        if self._bounds is None:
            move = self._move
            arrays = [] if move is None else [a for a in (move.array, move.out) if a is not None]
            self._bounds = [(a, a + x.nbytes) for a, x in ((address_of(x), x) for x in arrays)]
        return self._bounds

    # Steps

    def step(self) -> int:
        """Goes as far as it can."""
        stage = self._stage
        if stage == _READY:
            self.state = self._begin()
        elif stage == _STAGED:
            self.state = self._pass_pieces()
        elif stage == _TRAILING:
            self.state = self._trail()
        elif stage == _ENDED:
            self.state = ENDED
        elif self.engine.flight[0] is self:  # all earlier ones have ended
            self._make_ready(self.engine.own_slots + self._at)
            self.state = self._begin()
        return self.state

    def _begin(self) -> int:
        """Waits for all ranks to be ready with the same call, and does what can be done at once."""
        engine, at, value, move = self.engine, self._at, self._number + 1, self._move
        words = engine.words
        if type(move) is AllReduce and not (self._inline or self._steps) and words[engine.own_slots + at + PLACE] < 0:
            # It will be staged for certain: the first piece may as well be there when the peers come.
            self._begin_pieces(move)
            self._fill_piece(move)
        for start in engine.other_slots:
            slot = start + at
            if words[slot + READY] < value:
                self._word, self._value = slot + READY, value
                return BLOCKED
            if engine.fence is not None:
                engine.fence()
            if words[slot + SIGNATURE] != self._signature or words[slot + COUNT] != self._count:
                rank = engine.slots.index(start)
                raise engine.calls_differ(self.call, self._own_signature(), rank, self._signature_of(rank))
        if move is None:
            self._stage = _ENDED
            return ENDED
        if self._inline:
            engine.quietly(move.drain, engine.inline_buffers(move.array.dtype)[self._number % engine.ring], 0, move.n)
            self._stage = _ENDED
            return ENDED
        for rank in move.origins:
            if words[engine.slots[rank] + at + PLACE] < 0:
                if not self._steps:
                    self._begin_pieces(move)
                self._stage = _STAGED
                return self._pass_pieces()
        own, view, n, dtype = engine.index, engine.peer_arenas.view, move.n * move.width, move.array.dtype
        slots = engine.slots
        views = [move.array if r == own else view(r, words[slots[r] + at + PLACE], n, dtype) for r in move.sources]
        engine.quietly(move.direct, views)
        engine.control.announce(engine.own_slots + at + DONE, value)
        self._stage = _TRAILING
        return self._trail()

    def _trail(self) -> int:
        """Waits for the peers that use this rank's memory."""
        engine, value = self.engine, self._number + 1
        assert self._move is not None
        for rank in self._move.readers:
            word = engine.slots[rank] + self._at + DONE
            if engine.words[word] < value and rank != engine.index:
                self._word, self._value = word, value
                return TRAILING
        if engine.fence is not None:
            engine.fence()
        self._stage = _ENDED
        return ENDED

    def _begin_pieces(self, move: Move) -> None:
        engine, words = self.engine, self.engine.words
        self._steps = steps = self._pieces_of(move)
        self._length = move.n
        if type(move) is AllToAll:
            for rank, expected in enumerate(move.out_counts):
                sent = words[engine.layout.mail(rank, engine.index) + MAIL_COUNT]
                if sent != expected:
                    sender = f"rank {engine.spec.ranks[rank]}"
                    raise engine.contents_differ(
                        self.call, f"expects {expected} elements from {sender} but gets {sent}"
                    )
            self._steps = steps = max(words[slots + self._at + STEPS] for slots in engine.slots)
            self._length = steps * self._room
        self._first = engine.next_chunk
        engine.next_chunk += steps
        self._posted = self._drained = self._taken = 0
        self._chunks = engine.chunks(move.array.dtype)

    def _pieces_of(self, move: Move) -> int:
        """Returns how many pieces this rank's part takes."""
        self._room = room = self.engine.layout.chunk_bytes // move.array.itemsize // move.width
        return max(1, -(-move.n // room))

    def _pass_pieces(self) -> int:
        """Passes pieces through the staging chunks: fill, drain; or offer, reduce and collect shards."""
        engine, move, first, steps = self.engine, self._move, self._first, self._steps
        assert move is not None
        drain, collect = move.drain, None
        if type(move) is AllReduce:
            drain, collect = move.reduce_shard, move.collect_shards
        while True:
            moved = self._posted < steps and self._fill_piece(move)
            drained, taken = self._drained, self._taken
            if drained < self._posted and self._all_at(POSTED, first + drained + 1):
                engine.quietly(drain, self._buffers(drained), *self._piece(drained))
                self._drained = drained = drained + 1
                engine.control.announce(engine.own_header + CONSUMED, first + drained)
                moved = True
            if taken < drained and (collect is None or self._all_at(CONSUMED, first + taken + 1)):
                if collect is not None:
                    collect(self._buffers(taken)[engine.index], *self._piece(taken))
                self._taken = taken = taken + 1
                if taken == steps:
                    self._stage = _ENDED
                    return ENDED
            elif not moved:
                return BLOCKED

    def _fill_piece(self, move: Move) -> bool:
        """Fills another chunk, if one is free; returns whether it was."""
        engine, posted, first = self.engine, self._posted, self._first
        n_chunks = len(self._chunks)
        if posted >= self._taken + n_chunks or not self._all_at(CONSUMED, first + posted + 1 - n_chunks):
            return False
        if move.fills:
            fill = move.offer_shards if type(move) is AllReduce else move.fill
            fill(self._buffers(posted)[engine.index], *self._piece(posted))
        self._posted = posted = posted + 1
        engine.control.announce(engine.own_header + POSTED, first + posted)
        return True

    def _buffers(self, step: int) -> list[np.ndarray]:
        """Returns the chunks of all ranks for a piece."""
        return self._chunks[(self._first + step) % len(self._chunks)]

    def _piece(self, step: int) -> tuple[int, int]:
        start = step * self._room
        return start, min(start + self._room, self._length)

    def _all_at(self, kind: int, value: int) -> bool:
        """Whether all peers' words have come so far; else notes the one to wait for."""
        engine = self.engine
        words = engine.words
        for header in engine.other_headers:
            if words[header + kind] < value:
                self._word, self._value = header + kind, value
                return False
        if engine.fence is not None:
            engine.fence()
        return True

    # For the engine, when this takes long

    def block(self) -> tuple[int, int]:
        """Returns the word of the peer that it waits for."""
        return self._word, self._value

    def behind(self) -> list[int]:
        """Returns the ranks whose part is lacking."""
        engine = self.engine
        if self._stage == _STAGED:
            return sorted({rank for ranks in self._behind_with_pieces() for rank in ranks})
        if self._stage == _TRAILING:
            assert self._move is not None
            return [r for r in self._move.readers if r != engine.index and not self._has(r, DONE)]
        return [r for r in engine.others if not self._has(r, READY)]

    def missing(self) -> list[int]:
        """Returns the ranks that have not even made the call, or else those that have come least far with it."""
        absent = [r for r in self.engine.others if not self._has(r, ARRIVED)]
        if not absent and self._stage == _STAGED:  # who does not fill is to blame, not who cannot take for lack of that
            return next(filter(None, self._behind_with_pieces()), [])
        return absent or self.behind()

    def _behind_with_pieces(self) -> list[list[int]]:
        """Returns the ranks that are behind with filling, with reducing shards, and with making room."""
        engine, words = self.engine, self.engine.words
        needed = [(POSTED, self._drained + 1), (CONSUMED, self._posted + 1 - engine.layout.n_chunks)]
        if type(self._move) is AllReduce:
            needed.insert(1, (CONSUMED, self._taken + 1))
        lowest = [(kind, self._first + steps) for kind, steps in needed]
        return [[r for r in engine.others if words[engine.headers[r] + kind] < value] for kind, value in lowest]

    def withdraw(self) -> None:
        """Takes the own data back; that this rank had arrived stays to be seen."""
        self.engine.words[self.engine.own_slots + self._at + READY] = 0

    def check_calls(self) -> None:
        """Raises the recorded error if a rank that has arrived made another call."""
        engine = self.engine
        for rank in engine.others:
            if self._has(rank, ARRIVED):
                theirs = self._signature_of(rank)
                if theirs != self._own_signature():
                    raise engine.calls_differ(self.call, self._own_signature(), rank, theirs)

    def result(self) -> Any:
        """Returns the output array."""
        move = self._move
        return None if move is None else move.array if move.out is None else move.out

    def _has(self, rank: int, word: int) -> bool:
        is_there: bool = self.engine.words[self.engine.slots[rank] + self._at + word] > self._number
        return is_there

    def _own_signature(self) -> Signature:
        return unpack_signature(self._signature, self._count)

    def _signature_of(self, rank: int) -> Signature:
        slot = self.engine.slots[rank] + self._at
        return unpack_signature(self.engine.words[slot + SIGNATURE], self.engine.words[slot + COUNT])


class Vacancy(ShmWork):
    """Waits until the ring has room for another collective."""

    __slots__ = ()

    def __init__(self, engine: Engine, call: Call) -> None:
        self.engine, self.call, self.state, self.error = engine, call, BLOCKED, None

    def step(self) -> int:
        """Ends when all ranks are done with the collective that has the slot."""
        self.state = ENDED if self.engine.slot_is_free() else BLOCKED
        return self.state

    def block(self) -> tuple[int, int]:
        """Returns the counter of the slowest rank."""
        engine = self.engine
        slowest = min(engine.headers, key=lambda header: engine.words[header + COMPLETED])
        return slowest + COMPLETED, engine.launched - engine.ring + 1

    def behind(self) -> list[int]:
        """Returns the ranks that still need the slot."""
        engine, value = self.engine, self.engine.launched - self.engine.ring + 1
        return [r for r in engine.others if engine.words[engine.headers[r] + COMPLETED] < value]
