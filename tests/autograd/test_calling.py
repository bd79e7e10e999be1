"""What the callers of operations share."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.calling import bind, explain, narrowed, not_a_tensor, repair
from ddpflow.errors import AutogradError, DtypeError, IndexRangeError, ShapeError
from ddpflow.factories import tensor


def test_bind_moves_tensors_to_their_places():
    """A tensor by keyword becomes positional, with defaults before it; other keywords stay."""
    definition = ddpflow.lerp.op
    x, end, weight = tensor([1.0]), tensor([2.0]), tensor(0.5)
    assert bind(definition, (x,), {"end": end, "weight": weight}) == ((x, end, weight), {})
    assert bind(ddpflow.sum.op, (x,), {"dim": 0}) == ((x,), {"dim": 0})
    (placed, rest) = bind(ddpflow.sum.op, (), {"input": x, "keepdim": True})
    assert placed == (x,) and rest == {"keepdim": True}


def test_bind_takes_numpys_names():
    """Axis and keepdims are renamed where the operation has dim and keepdim."""
    x = tensor([1.0])
    assert bind(ddpflow.sum.op, (x,), {"axis": 0, "keepdims": True})[1] == {"dim": 0, "keepdim": True}
    assert bind(ddpflow.round.op, (x,), {"axis": 0})[1] == {"axis": 0}


def test_repair():
    """A scalar becomes a 0-d array; what has CUDA's interface passes."""

    class OnGpu:
        __cuda_array_interface__ = {}

    made = repair(np.float32(2.0), None)
    assert type(made) is np.ndarray and made.shape == ()
    on_gpu = OnGpu()
    assert repair(on_gpu, None) is on_gpu


@pytest.mark.parametrize(
    ("raised", "expected"), [(ValueError, ShapeError), (IndexError, IndexRangeError), (TypeError, DtypeError)]
)
def test_explain(raised, expected):
    """NumPy's exceptions become ours, with name and shapes; our own pass."""
    found = explain(
        ddpflow.add.op if hasattr(ddpflow.add, "op") else ddpflow.mul.op, raised("why"), (np.ones((2, 3)), 5)
    )
    assert type(found) is expected and "mul(): why (tensor shapes: (2, 3))" in str(found)
    own = AutogradError("mine")
    assert explain(ddpflow.mul.op, own, ()) is own


def test_not_a_tensor():
    """The text names operation and type, and what to do."""
    assert str(not_a_tensor(ddpflow.exp.op, [1])) == "exp() takes a tensor, not list; make one with ddpflow.tensor(...)"


def test_narrowed():
    """A wide result beside a bfloat16 operand becomes bfloat16 again; everything else passes."""
    pytest.importorskip("ml_dtypes", reason="bfloat16 needs ml_dtypes (extra bf16)")
    like = tensor([1.0], dtype="bfloat16").array
    assert narrowed(np.ones(2, np.float32), like).dtype == like.dtype
    mask, wide = np.ones(2, bool), np.ones(2, np.float32)
    assert narrowed(mask, like) is mask and narrowed(wide, np.ones(1)) is wide


def test_bfloat16_beside_numbers():
    """Python numbers do not widen bfloat16, in operators, functions with options and where."""
    pytest.importorskip("ml_dtypes", reason="bfloat16 needs ml_dtypes (extra bf16)")
    x = tensor([1.0, -2.0], dtype="bfloat16", requires_grad=True)
    for y in (x * 2.5, 2.5 - x, x**2, x.clamp(-1.0, 1.0), ddpflow.where(x > 0, x, 0.5), x.sinc(), x / 3):
        assert y.dtype is ddpflow.bfloat16
    (x * 2.5).sum().backward()
    assert x.grad.dtype is ddpflow.bfloat16 and x.grad.tolist() == [2.5, 2.5]
