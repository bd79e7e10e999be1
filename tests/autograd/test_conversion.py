"""Other dtypes and devices: PyTorch's ways to ask for them."""

import numpy as np
import pytest

import ddpflow
from ddpflow.errors import DeviceError, DtypeError

SHORT = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "char": "int8",
    "byte": "uint8",
    "bool": "bool",
    "cfloat": "complex64",
    "cdouble": "complex128",
}


@pytest.mark.parametrize("name", SHORT)
def test_short_forms(name):
    """x.float() and its relatives; a tensor that has the dtype already is returned itself."""
    x = ddpflow.tensor([0.0, 1.75, 2.0], dtype=ddpflow.float64)
    made = getattr(x, name)()
    assert made.dtype.name == SHORT[name]
    np.testing.assert_array_equal(made.numpy(), x.numpy().astype(SHORT[name]))
    assert getattr(made, name)() is made


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: x.to(ddpflow.float32),
        lambda x: x.to("cpu", ddpflow.float32),
        lambda x: x.to(ddpflow.device("cpu"), dtype=ddpflow.float32),
        lambda x: x.to(dtype=ddpflow.float32, device="cpu", non_blocking=True),
        lambda x: x.to(ddpflow.zeros(1)),
        lambda x: x.to("float32"),
        lambda x: x.type(ddpflow.float32),
        lambda x: x.type("ddpflow.FloatTensor"),
        lambda x: x.type(ddpflow.FloatTensor),
        lambda x: x.type_as(ddpflow.zeros(1)),
        lambda x: x.astype(np.float32),
    ],
)
def test_ways_to_ask(ask):
    """All give float32, with a gradient that comes back in float64."""
    x = ddpflow.tensor([1.0, 2.0], dtype=ddpflow.float64, requires_grad=True)
    made = ask(x)
    assert made.dtype == ddpflow.float32
    made.sum().backward()
    assert x.grad.dtype == ddpflow.float64 and x.grad.tolist() == [1, 1]


def test_nothing_to_do():
    """The tensor itself comes back, unless a copy is asked for."""
    x = ddpflow.zeros(2)
    assert x.to("cpu") is x.cpu() is x.to(ddpflow.float32) is x.pin_memory() is x
    copy = x.to("cpu", copy=True)
    assert copy is not x and not np.shares_memory(copy.numpy(), x.numpy())


def test_type_names():
    """``type()`` names what isinstance tests and ``type(name)`` take."""
    assert ddpflow.zeros(1).type() == "ddpflow.FloatTensor"
    assert ddpflow.tensor([1]).type() == "ddpflow.LongTensor"
    assert ddpflow.tensor([True]).type() == "ddpflow.BoolTensor"


def test_bad_wishes():
    """A dtype or device that does not exist, or has no hardware here."""
    x = ddpflow.zeros(2)
    with pytest.raises(DtypeError):
        x.to("float31")
    with pytest.raises(DeviceError):
        x.to(device="tpu")
    with pytest.raises(DtypeError):
        x.new("text")
    with pytest.raises(AttributeError):
        x.to_nowhere()


def test_bfloat16():
    """With ml_dtypes, bfloat16 is a dtype like the others: arithmetic, promotion, gradients."""
    pytest.importorskip("ml_dtypes", reason="bfloat16 needs the package ml_dtypes")
    x = ddpflow.tensor([1.0, 2.5, -3.0], requires_grad=True)
    y = x.bfloat16()
    assert y.dtype == ddpflow.bfloat16 and str(y.dtype) == "ddpflow.bfloat16"
    assert (y + ddpflow.ones(3)).dtype == ddpflow.float32 and (y * 2).dtype == ddpflow.bfloat16
    (y * y).sum().backward()
    assert x.grad.tolist() == [2, 5, -6]
    assert ddpflow.rand(100, dtype=ddpflow.bfloat16).float().max().item() < 1


def test_kinds():
    """What PyTorch scripts ask of a tensor, and the one request that is refused."""
    x = ddpflow.arange(6.0).reshape(2, 3)
    assert x.is_cpu and x.get_device() == -1 and x.is_signed() and not x.byte().is_signed()
    assert x.layout == ddpflow.strided and not x.is_sparse and not x.is_pinned() and not x.is_shared()
    assert x.is_same_size(x + 1) and not x.is_same_size(x.T)
    assert x.storage_offset() == 0 and x[1, 2:].storage_offset() == 5
    with pytest.raises(DeviceError, match="DistributedDataParallel"):
        x.share_memory_()


def test_bfloat16_becomes_what_is_asked_for():
    """Casts from bfloat16 are not taken for NumPy's widening of it; the gradient comes back as bfloat16."""
    x = ddpflow.tensor([1.5, -2.25], dtype=ddpflow.bfloat16, requires_grad=True)
    for wider in (x.float(), x.to(ddpflow.float32), x.type(ddpflow.float32)):
        assert wider.dtype == ddpflow.float32 and wider.tolist() == [1.5, -2.25]
    assert x.double().dtype == ddpflow.float64 and x.half().dtype == ddpflow.float16
    (x.float() * 3).sum().backward()
    assert x.grad.dtype == ddpflow.bfloat16 and x.grad.tolist() == [3, 3]
