"""The store's wire format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpflow.comm import wire
from ddpflow.errors import CommError, ValueRangeError


@given(st.lists(st.binary(max_size=50), max_size=8), st.integers(1, 7))
def test_frames_round_trip(fields, step):
    """Fields come back as they went, however the bytes are cut."""
    data = wire.pack(fields) + wire.pack([b"next"])
    buffer = bytearray()
    bodies = []
    for at in range(0, len(data), step):
        buffer += data[at : at + step]
        while (body := wire.take_frame(buffer)) is not None:
            bodies.append(wire.unpack(body))
    assert bodies == [fields, [b"next"]] and not buffer


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_read(data):
    """Any bytes are either fields or a CommError."""
    try:
        fields = wire.unpack(data)
    except CommError:
        return
    assert b"".join(len(f).to_bytes(4, "big") + f for f in fields) == data


def test_limits():
    """Oversized frames are refused on both sides."""
    with pytest.raises(ValueRangeError, match="limit"):
        wire.pack([bytes(wire.LARGEST_FRAME)])
    with pytest.raises(CommError, match="announces"):
        wire.take_frame(bytearray((wire.LARGEST_FRAME + 1).to_bytes(4, "big")))


def test_challenge():
    """Answer and proof hold for their own challenge, nonce and token only; the roles cannot be swapped."""
    question = wire.challenge()
    assert wire.is_challenge(question) and not wire.is_challenge(question[:-1]) and question != wire.challenge()
    answer = wire.answer(b"token", question)
    assert len(answer) == wire.ANSWER_BYTES and wire.verify_answer(b"token", question, answer)
    assert not wire.verify_answer(b"other", question, answer)
    assert not wire.verify_answer(b"token", wire.challenge(), answer)
    proof = wire.proof(b"token", question, answer)
    assert wire.verify_proof(b"token", question, answer, proof)
    assert not wire.verify_proof(b"other", question, answer, proof)
    assert proof != answer[32:]
