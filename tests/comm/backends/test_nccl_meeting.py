"""The unique id on its way, and ranks that would share a GPU."""

import json

import pytest

from ddpflow.comm.backends.nccl_meeting import check_places, encode_id, host_name, id_forms, place_text
from ddpflow.errors import BackendUnavailable, CommError


def place(bus, host="one", device=0, count=2):
    """What a rank tells."""
    return json.dumps({"host": host, "bus": bus, "device": device, "count": count}).encode()


def test_unique_ids_survive():
    """Signed and unsigned chars give the same 128 bytes, and the bytes give themselves."""
    unsigned = [(7 * i + 129) % 256 for i in range(128)]
    signed = [value - 256 if value > 127 else value for value in unsigned]
    assert encode_id(signed) == encode_id(unsigned) == bytes(unsigned) == encode_id(bytes(unsigned))
    with pytest.raises(CommError, match="128 bytes, not 3"):
        encode_id(b"abc")


def test_forms_for_every_cupy():
    """CuPy 14 takes bytes, CuPy 13 a tuple of chars, which have a sign on some processors and none on others."""
    raw = bytes(range(128, 256))
    as_bytes, signed, unsigned = id_forms(raw)
    assert as_bytes == raw and signed == tuple(range(-128, 0)) and bytes(unsigned) == raw
    assert encode_id(signed) == raw


def test_one_gpu_for_each_rank():
    """Equal bus ids on one host are refused; on two hosts, or when it was asked for, they are fine."""
    check_places([0, 1], [place("a"), place("b")])
    check_places([0, 1], [place("a"), place("a", host="two")])
    check_places([0, 1], [place("a"), place("a")], shared_ok=True)
    with pytest.raises(BackendUnavailable, match=r"rank 0 and rank 3 are both on GPU 0 \(a\); call ddpflow"):
        check_places([0, 3], [place("a"), place("a")])


def test_more_ranks_than_gpus():
    """The remedy is another one then."""
    places = [place("a", count=1), place("a", count=1)]
    with pytest.raises(BackendUnavailable, match="2 ranks of this host share 1 GPUs: start at most 1"):
        check_places([0, 1], places)


def test_place_of_this_process():
    """It names the host as all processes on it do."""
    found = json.loads(place_text("0000:17:00.0", 1, 4))
    assert found == {"host": host_name(), "bus": "0000:17:00.0", "device": 1, "count": 4}
