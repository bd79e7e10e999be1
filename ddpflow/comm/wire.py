"""The store's wire format: length-prefixed frames of byte fields, behind a challenge that proves the job's token.

Handshake, before anything else is read: the server sends a magic word and a nonce; the client answers with its own
nonce and an HMAC of both; the server answers with its HMAC. Each side thus knows that the other holds the token; the
token never travels.
"""

import hashlib
import hmac
import os
import struct
from collections.abc import Sequence

from ddpflow.errors import CommError, ValueRangeError

__all__ = [
    "ANSWER_BYTES",
    "CHALLENGE_BYTES",
    "LARGEST_FRAME",
    "PROOF_BYTES",
    "answer",
    "challenge",
    "is_challenge",
    "pack",
    "proof",
    "take_frame",
    "unpack",
    "verify_answer",
    "verify_proof",
]

MAGIC = b"ddpflow-store-1\n"
LARGEST_FRAME = 64 << 20
_NONCE = 32
CHALLENGE_BYTES = len(MAGIC) + _NONCE
ANSWER_BYTES = _NONCE + 32
PROOF_BYTES = 32
_LENGTH = struct.Struct("!I")


def challenge() -> bytes:
    """Returns the server's first message."""
    return MAGIC + os.urandom(_NONCE)


def is_challenge(data: bytes) -> bool:
    """Whether a client's first bytes come from a store of this version."""
    return len(data) == CHALLENGE_BYTES and data.startswith(MAGIC)


def _digest(token: bytes, role: bytes, question: bytes, nonce: bytes) -> bytes:
    return hmac.new(token, role + question + nonce, hashlib.sha256).digest()


def answer(token: bytes, question: bytes) -> bytes:
    """Returns the client's answer to the server's challenge."""
    nonce = os.urandom(_NONCE)
    return nonce + _digest(token, b"client", question, nonce)


def verify_answer(token: bytes, question: bytes, data: bytes) -> bool:
    """Whether ``data`` is an answer made with the same token."""
    return hmac.compare_digest(data[_NONCE:], _digest(token, b"client", question, data[:_NONCE]))


def proof(token: bytes, question: bytes, data: bytes) -> bytes:
    """Returns the server's own proof for a client's answer ``data``."""
    return _digest(token, b"server", question, data[:_NONCE])


def verify_proof(token: bytes, question: bytes, data: bytes, received: bytes) -> bool:
    """Whether the server's proof ``received`` was made with the same token."""
    return hmac.compare_digest(received, proof(token, question, data))


def pack(fields: Sequence[bytes]) -> bytes:
    """Returns one frame: its length, then each field with its length.

    Raises:
        ValueRangeError: The frame would be larger than a receiver accepts.
    """
    body = b"".join(part for value in fields for part in (_LENGTH.pack(len(value)), value))
    if len(body) > LARGEST_FRAME:
        raise ValueRangeError(f"a store entry of {len(body)} bytes is larger than the limit of {LARGEST_FRAME} bytes")
    return _LENGTH.pack(len(body)) + body


def take_frame(buffer: bytearray) -> bytes | None:
    """Removes and returns the body of the first frame in ``buffer``, or None while it is incomplete.

    Raises:
        CommError: The announced length is beyond the limit: these bytes are no frame.
    """
    if len(buffer) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(buffer)
    if length > LARGEST_FRAME:
        raise CommError(f"a frame announces {length} bytes, more than the limit of {LARGEST_FRAME}")
    end = _LENGTH.size + length
    if len(buffer) < end:
        return None
    body = bytes(buffer[_LENGTH.size : end])
    del buffer[:end]
    return body


def unpack(body: bytes) -> list[bytes]:
    """Returns the fields of a frame's body.

    Raises:
        CommError: The lengths inside do not add up.
    """
    fields, at = [], 0
    while at < len(body):
        if at + _LENGTH.size > len(body):
            raise CommError("a frame ends inside a field's length")
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        if at + length > len(body):
            raise CommError("a frame ends inside a field")
        fields.append(body[at : at + length])
        at += length
    return fields
