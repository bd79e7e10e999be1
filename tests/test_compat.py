"""Names that scripts call and that have little to do here."""

import pytest

import ddpflow
from ddpflow.errors import ValueRangeError


def test_compile_returns_its_argument():
    """As a call and as a decorator, with any options."""

    def function():
        return 3

    assert ddpflow.compile(function) is function and ddpflow.compile(function, mode="max-autotune") is function
    assert ddpflow.compile(fullgraph=True)(function) is function


def test_precision_is_remembered():
    """The wish is kept, and what is no precision refused."""
    assert ddpflow.get_float32_matmul_precision() == "highest"
    ddpflow.set_float32_matmul_precision("high")
    assert ddpflow.get_float32_matmul_precision() == "high"
    ddpflow.set_float32_matmul_precision("highest")
    with pytest.raises(ValueRangeError):
        ddpflow.set_float32_matmul_precision("low")
    ddpflow.use_deterministic_algorithms(True)
    assert ddpflow.are_deterministic_algorithms_enabled()


def test_questions():
    """What a tensor is."""
    x = ddpflow.zeros(2, 3)
    assert ddpflow.is_tensor(x) and not ddpflow.is_tensor(x.numpy())
    assert ddpflow.is_floating_point(x) and not ddpflow.is_floating_point(x.long())
    assert ddpflow.is_complex(x.cfloat()) and not ddpflow.is_complex(x)
    assert ddpflow.numel(x) == 6 and ddpflow.is_nonzero(ddpflow.tensor([2])) is True
    assert ddpflow.typename(x) == "ddpflow.FloatTensor" and ddpflow.typename(3) == "builtins.int"


def test_dtype_questions():
    """Promotion and casts by PyTorch's rules."""
    assert ddpflow.promote_types(ddpflow.int32, ddpflow.float16) == ddpflow.float16
    assert ddpflow.result_type(ddpflow.tensor([1]), 1.5) == ddpflow.float32
    assert ddpflow.result_type(ddpflow.tensor([1], dtype=ddpflow.int8), ddpflow.tensor(300)) == ddpflow.int8
    assert ddpflow.can_cast(ddpflow.int64, ddpflow.float16) and not ddpflow.can_cast(ddpflow.float32, ddpflow.int64)
    assert not ddpflow.can_cast(ddpflow.int8, ddpflow.uint8) and ddpflow.can_cast(ddpflow.bool, ddpflow.uint8)
