"""Memory shared with PyTorch by DLPack on the CPU."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make parity)")

import ddpflow

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    "name", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "complex64"]
)
def test_there_and_back(name):
    """A tensor of either library is one of the other on the same memory, with its dtype, shape and strides."""
    theirs = torch.arange(6).reshape(2, 3).to(getattr(torch, name)).t()
    ours = ddpflow.from_dlpack(theirs)
    assert ours.dtype == getattr(ddpflow, name) and ours.stride() == theirs.stride() == (1, 3)
    assert ours.data_ptr() == theirs.data_ptr() and ours.tolist() == theirs.tolist()
    back = torch.from_dlpack(ours)
    assert back.dtype == theirs.dtype and back.data_ptr() == theirs.data_ptr() and torch.equal(back, theirs)


def test_writes_are_seen():
    """What one side writes the other reads."""
    ours = ddpflow.arange(4.0)
    theirs = torch.from_dlpack(ours)
    theirs[1:] += 5
    ours *= 2
    assert theirs.tolist() == ours.tolist() == [0, 12, 14, 16]


def test_gradients_stay():
    """Both refuse to give a tensor that requires grad."""
    for give, take in ((ddpflow, torch), (torch, ddpflow)):
        with pytest.raises(Exception, match="grad"):
            take.from_dlpack(give.ones(2, requires_grad=True))
