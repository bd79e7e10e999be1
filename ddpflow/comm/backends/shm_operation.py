"""A collective in flight on one rank: a small machine that ``step`` moves on, and that never waits itself.

Its stages:

    LAUNCHED   its fingerprint is in the slot (ARRIVED); its data may still be in use by an earlier collective
    READY      its data may be read: a small message lies in the slot's inline buffer, a large one where the caller has
               it (registered memory) or nowhere yet
    STAGED     large and not registered everywhere: passing piece by piece through the staging chunks
    TRAILING   own part done; peers may still read or write this rank's registered memory (DONE)

The way is chosen by what all ranks see in all slots, so all choose the same: inline if the data fits, else direct if it
is registered memory on every rank that it is read from, else staged.
"""

from typing import Any

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
    REDUCED,
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
# From this many ranks on, a staged all-reduce is cheaper in two rounds than when everybody reduces everything.
_SHARDED_FROM = 4


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
        "_count",
        "_drained",
        "_first",
        "_inline",
        "_length",
        "_move",
        "_number",
        "_posted",
        "_reduced",
        "_room",
        "_signature",
        "_stage",
        "_steps",
        "_value",
        "_word",
    )

    def __init__(self, engine: Engine, call: Call, move: Move | None, signature: int, count: int) -> None:
        self.engine, self.call, self.state, self.error = engine, call, BLOCKED, None
        self._move, self._signature, self._count, self._stage = move, signature, count, _LAUNCHED
        self._inline = move is None or (
            move.n * move.width * move.array.itemsize <= engine.inline_bytes and type(move) is not AllToAll
        )
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
        move = self._move
        if move is not None and not self._inline:
            words[slot + PLACE] = -1 if type(move) is AllToAll else engine.arena.offset_of(move.array)
            self._room = engine.layout.chunk_bytes // move.array.itemsize // move.width
            words[slot + STEPS] = max(1, -(-move.n // self._room))
        flight = engine.flight
        if not flight or self._is_apart():
            self._make_ready(slot)
        else:
            engine.control.announce(slot + ARRIVED, number + 1)
        flight.append(self)

    def take_over(self, number: int) -> None:
        """Goes on with collective ``number``, which is ready already."""
        self._number, self._at, self._stage = number, number % self.engine.ring * SLOT_WORDS, _READY
        self.engine.flight.append(self)

    def _make_ready(self, slot: int) -> None:
        """Lets the peers read the own data."""
        move, engine = self._move, self.engine
        if move is not None:
            if type(move) is AllToAll:
                for rank, count in enumerate(move.counts):
                    engine.words[engine.layout.mail(engine.index, rank) + MAIL_COUNT] = count
            elif self._inline and move.fills:
                move.fill(engine.inline_buffers(move.array.dtype)[self._number % engine.ring][engine.index], 0, move.n)
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
        engine, at, value = self.engine, self._at, self._number + 1
        words = engine.words
        for slots in engine.other_slots:
            slot = slots + at
            if words[slot + READY] < value:
                self._word, self._value = slot + READY, value
                return BLOCKED
            if engine.fence is not None:
                engine.fence()
            if words[slot + SIGNATURE] != self._signature or words[slot + COUNT] != self._count:
                rank = engine.slots.index(slots)
                raise engine.calls_differ(self.call, self._own_signature(), rank, self._signature_of(rank))
        move = self._move
        if move is None:
            self._stage = _ENDED
            return ENDED
        if self._inline:
            move.drain(engine.inline_buffers(move.array.dtype)[self._number % engine.ring], 0, move.n)
            self._stage = _ENDED
            return ENDED
        places = [words[slots + at + PLACE] for slots in engine.slots]
        if min(places[rank] for rank in move.origins) >= 0:
            n, dtype, view = move.n * move.width, move.array.dtype, engine.peer_arenas.view
            move.direct([move.array if r == engine.index else view(r, places[r], n, dtype) for r in move.sources])
            engine.control.announce(engine.own_slots + at + DONE, value)
            self._stage = _TRAILING
            return self._trail()
        self._begin_pieces(move)
        return self._pass_pieces()

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
        if isinstance(move, AllToAll):
            for rank, expected in enumerate(move.out_counts):
                sent = words[engine.layout.mail(rank, engine.index) + MAIL_COUNT]
                if sent != expected:
                    sender = f"rank {engine.spec.ranks[rank]}"
                    raise engine.contents_differ(
                        self.call, f"expects {expected} elements from {sender} but gets {sent}"
                    )
        self._steps = max(words[slots + self._at + STEPS] for slots in engine.slots)
        self._length = self._steps * self._room if isinstance(move, AllToAll) else move.n
        self._first = engine.next_chunk
        engine.next_chunk += self._steps
        self._posted = self._reduced = self._drained = 0
        self._stage = _STAGED

    def _pass_pieces(self) -> int:
        """Passes pieces through the staging chunks: fill, (reduce the own shard,) drain."""
        engine, move, first = self.engine, self._move, self._first
        assert move is not None
        chunks = engine.chunks(move.array.dtype)
        n_chunks, own = len(chunks), engine.headers[engine.index]
        sharded = type(move) is AllReduce and engine.size >= _SHARDED_FROM
        while True:
            moved = False
            posted = self._posted
            if posted < min(self._steps, self._drained + n_chunks) and self._all_at(CONSUMED, posted + 1 - n_chunks):
                if move.fills:
                    move.fill(chunks[(first + posted) % n_chunks][engine.index], *self._piece(posted))
                engine.control.announce(own + POSTED, first + posted + 1)
                self._posted, moved = posted + 1, True
            if sharded and self._reduced < self._posted and self._all_at(POSTED, self._reduced + 1):
                assert isinstance(move, AllReduce)
                move.reduce_shard(chunks[(first + self._reduced) % n_chunks], *self._piece(self._reduced))
                engine.control.announce(own + REDUCED, first + self._reduced + 1)
                self._reduced, moved = self._reduced + 1, True
            if self._drained < self._posted and self._all_at(REDUCED if sharded else POSTED, self._drained + 1):
                pieces, (start, stop) = chunks[(first + self._drained) % n_chunks], self._piece(self._drained)
                if isinstance(move, AllReduce) and sharded:
                    move.collect_shards(pieces, start, stop)
                else:
                    move.drain(pieces, start, stop)
                self._drained, moved = self._drained + 1, True
                engine.control.announce(own + CONSUMED, first + self._drained)
                if self._drained == self._steps:
                    self._stage = _ENDED
                    return ENDED
            if not moved:
                return BLOCKED

    def _piece(self, step: int) -> tuple[int, int]:
        start = step * self._room
        return start, min(start + self._room, self._length)

    def _all_at(self, kind: int, steps: int) -> bool:
        """Whether all peers have come so far; else notes the word to wait for."""
        engine, value = self.engine, self._first + steps
        for rank in engine.others:
            word = engine.headers[rank] + kind
            if engine.words[word] < value:
                self._word, self._value = word, value
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
        """Returns the ranks that are behind with filling, with reducing shards, and with taking pieces."""
        engine, words = self.engine, self.engine.words
        needed = [(POSTED, self._drained + 1), (CONSUMED, self._posted + 1 - engine.layout.n_chunks)]
        if type(self._move) is AllReduce and engine.size >= _SHARDED_FROM:
            needed.insert(1, (REDUCED, self._drained + 1))
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
