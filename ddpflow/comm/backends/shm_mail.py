"""Messages between two ranks: send and receive through a small ring of chunks from each rank to each other.

A sender copies its message into the ring as far as there is room, and is done when all of it is in. A receiver empties
the rings of its peers: a message for which a receive is posted goes straight into that array, another one is kept until
it is asked for. So messages of different tags may be received in any order, and two ranks that send to each other first
and receive later do not block each other.
"""

from collections import deque
from typing import Any

import numpy as np

from ddpflow.comm.backends.shm_control import (
    FAILED,
    LEFT,
    MAIL_CHUNKS,
    MAIL_HEADER_WORDS,
    MAIL_HEADERS,
    MAIL_READ,
    MAIL_SENT,
)
from ddpflow.comm.backends.shm_engine import BLOCKED, ENDED, NEVER, Engine, ShmWork
from ddpflow.comm.signature import Call, dtype_code, dtype_from_code

__all__ = ["Mail", "Receive", "Send"]

# Words of a chunk's header: whether a message begins with it, its tag, dtype and elements; bytes in this chunk.
_BEGINS, _TAG, _DTYPE, _COUNT, _BYTES = range(5)


class _Message:
    """A message that has begun to come in."""

    __slots__ = ("count", "data", "dtype", "filled", "sender", "tag")

    def __init__(self, sender: int, tag: int, dtype: int, count: int) -> None:
        self.sender, self.tag, self.dtype, self.count = sender, tag, dtype, count
        self.data: np.ndarray | None = None
        self.filled = 0

    @property
    def is_whole(self) -> bool:
        """Whether all of it is there."""
        return self.filled == self.count * dtype_from_code(self.dtype).itemsize


class Mail:
    """The messages of one rank."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.sending: dict[int, deque[Send]] = {r: deque() for r in engine.others}
        self._receives: list[Receive] = []
        self._kept: list[_Message] = []
        self._incoming: dict[int, _Message] = {}
        layout = engine.layout
        self._boxes = [
            [engine.control.bytes[layout.box(s, r) :][: layout.box_bytes] for r in range(engine.size)]
            for s in range(engine.size)
        ]
        self._reserved: set[int] = set()

    def post(self, receive: "Receive") -> None:
        """Takes a receive: the oldest kept message that fits, or the next one that comes."""
        for message in self._kept:
            if receive.accepts(message):
                self._kept.remove(message)
                receive.take(message)
                return
        self._receives.append(receive)

    def put(self, peer: int, work: "Send") -> bool:
        """Copies as much of a message into the peer's ring as there is room for; returns whether all of it is in."""
        engine, layout, words = self.engine, self.engine.layout, self.engine.words
        own, theirs = layout.mail(engine.index, peer), layout.mail(peer, engine.index)
        if peer not in self._reserved:
            start = layout.box(engine.index, peer)
            engine.control.file.reserve(start, start + layout.box_bytes)
            self._reserved.add(peer)
        data, box = work.data, self._boxes[engine.index][peer]
        while work.sent < data.size or not work.begun:
            sent = words[own + MAIL_SENT]
            if sent - words[theirs + MAIL_READ] >= MAIL_CHUNKS:
                return False
            slot = sent % MAIL_CHUNKS
            n = min(layout.mail_bytes, data.size - work.sent)
            box[slot * layout.mail_bytes : slot * layout.mail_bytes + n] = data[work.sent : work.sent + n]
            header = own + MAIL_HEADERS + slot * MAIL_HEADER_WORDS
            words[header + _BEGINS], words[header + _TAG] = not work.begun, work.tag
            words[header + _DTYPE], words[header + _COUNT] = work.dtype, work.count
            words[header + _BYTES] = n
            engine.control.announce(own + MAIL_SENT, sent + 1)
            work.sent, work.begun = work.sent + n, True
        return True

    def collect(self) -> None:
        """Empties the rings of all peers."""
        engine = self.engine
        for peer in engine.others:
            sent, read = self.counters(peer, engine.index)
            while engine.words[read] < engine.words[sent]:
                if engine.fence is not None:
                    engine.fence()
                self._take_chunk(peer, engine.words[read])
                engine.control.announce(read, engine.words[read] + 1)

    def counters(self, sender: int, receiver: int) -> tuple[int, int]:
        """Returns the words that count the chunks sent and read."""
        layout = self.engine.layout
        return layout.mail(sender, receiver) + MAIL_SENT, layout.mail(receiver, sender) + MAIL_READ

    def is_delivered(self) -> bool:
        """Whether every peer that is still there has read all that was sent to it."""
        engine = self.engine
        for peer in engine.others:
            sent, read = self.counters(engine.index, peer)
            gone = engine.control.state(peer) in (LEFT, FAILED) or not engine.peers.processes[peer].is_alive()
            if not gone and (self.sending[peer] or engine.words[read] < engine.words[sent]):
                return False
        return True

    def _take_chunk(self, peer: int, number: int) -> None:
        engine, layout, words = self.engine, self.engine.layout, self.engine.words
        slot = number % MAIL_CHUNKS
        header = layout.mail(peer, engine.index) + MAIL_HEADERS + slot * MAIL_HEADER_WORDS
        if words[header + _BEGINS]:
            message = _Message(peer, words[header + _TAG], words[header + _DTYPE], words[header + _COUNT])
            self._incoming[peer] = message
            self._route(message)
        message, n = self._incoming[peer], words[header + _BYTES]
        assert message.data is not None
        box = self._boxes[peer][engine.index]
        message.data[message.filled : message.filled + n] = box[slot * layout.mail_bytes :][:n]
        message.filled += n

    def _route(self, message: _Message) -> None:
        """Decides where a message goes that begins to come in."""
        for receive in self._receives:
            if receive.accepts(message):
                self._receives.remove(receive)
                receive.take(message)
                break
        else:
            self._kept.append(message)
        if message.data is None:
            message.data = np.empty(message.count * dtype_from_code(message.dtype).itemsize, np.uint8)


class Send(ShmWork):
    """A message on its way out."""

    __slots__ = ("begun", "count", "data", "dtype", "mail", "peer", "sent", "tag")

    ordered = False

    def __init__(self, mail: Mail, call: Call, array: np.ndarray, peer: int, tag: int) -> None:
        self.engine, self.call, self.state, self.error = mail.engine, call, BLOCKED, None
        self.mail, self.peer, self.tag = mail, peer, tag
        self.data, self.dtype, self.count = array.view(np.uint8), dtype_code(array.dtype), array.size
        self.sent, self.begun = 0, False
        mail.sending[peer].append(self)

    def step(self) -> int:
        """Copies what fits, in the order of the sends to this peer."""
        queue = self.mail.sending[self.peer]
        if queue[0] is self and self.engine.control.state(self.peer) not in (LEFT, FAILED):
            if self.mail.put(self.peer, self):
                queue.popleft()
                self.state = ENDED
            else:
                self.mail.collect()  # the peer may be blocked by what it sends to this rank
        return self.state

    def block(self) -> tuple[int, int]:
        """Returns the peer's count of chunks read; one that is gone will read no more."""
        if self.engine.control.state(self.peer) in (LEFT, FAILED):
            return 0, NEVER
        sent, read = self.mail.counters(self.engine.index, self.peer)
        return read, self.engine.words[sent] - MAIL_CHUNKS + 1

    def behind(self) -> list[int]:
        """Returns the receiver."""
        return [self.peer]


class Receive(ShmWork):
    """A message that is waited for."""

    __slots__ = ("_straight", "array", "mail", "message", "peer", "tag")

    ordered = False

    def __init__(self, mail: Mail, call: Call, array: np.ndarray, peer: int | None, tag: int) -> None:
        self.engine, self.call, self.state, self.error = mail.engine, call, BLOCKED, None
        self.mail, self.array, self.peer, self.tag = mail, array, peer, tag
        self.message: _Message | None = None
        self._straight = False
        mail.post(self)

    def accepts(self, message: _Message) -> bool:
        """Whether a message is the one that is asked for."""
        return self.tag == message.tag and self.peer in (None, message.sender)

    def take(self, message: _Message) -> None:
        """Makes a message this receive's own; one that only begins to come in goes straight into the array."""
        self.message = message
        if message.data is None and self._fits(message):
            message.data = self.array.view(np.uint8)
            self._straight = True

    def _fits(self, message: _Message) -> bool:
        return message.count == self.array.size and message.dtype == dtype_code(self.array.dtype)

    def step(self) -> int:
        """Empties the peers' rings until the message is whole."""
        self.mail.collect()
        message = self.message
        if message is not None and not self._fits(message):
            sender = self.engine.spec.ranks[message.sender]
            theirs = f"{dtype_from_code(message.dtype).name}[{message.count}]"
            own = f"{self.array.dtype.name}[{self.array.size}]"
            raise self.engine.contents_differ(self.call, f"expects {own} but was sent {theirs} by rank {sender}")
        if message is not None and message.is_whole:
            if not self._straight and message.data is not None:
                self.array.view(np.uint8)[:] = message.data
            self.state = ENDED
        return self.state

    def block(self) -> tuple[int, int]:
        """Returns the peer's count of chunks sent; for any source there is no single word to look at."""
        peer = self.peer if self.message is None else self.message.sender
        if peer is None:
            return self.mail.counters(self.engine.others[0], self.engine.index)[0], NEVER
        sent, read = self.mail.counters(peer, self.engine.index)
        return sent, self.engine.words[read] + 1

    def behind(self) -> list[int]:
        """Returns the sender; for any source all ranks once none is left that could send."""
        if self.peer is not None or self.message is not None:
            return [self.message.sender if self.message is not None else self.peer or 0]
        states = [self.engine.control.state(r) for r in self.engine.others]
        return self.engine.others if all(state == LEFT for state in states) else []

    def missing(self) -> list[int]:
        """Returns whoever could have sent."""
        return self.behind() or self.engine.others

    def result(self) -> Any:
        """Returns the array."""
        return self.array

    def source_rank(self) -> int:
        """Returns the sender's global rank, or -1 while there is none."""
        return -1 if self.message is None else self.engine.spec.ranks[self.message.sender]
