"""Switches of PyTorch's backends."""

import pytest

import ddpflow
from ddpflow import backends
from ddpflow.errors import ValueRangeError


def test_switches_can_be_set_and_read():
    """A script's settings are taken; a misspelt one is not."""
    try:
        backends.cudnn.benchmark = True
        backends.cuda.matmul.allow_tf32 = True
        assert backends.cudnn.benchmark and backends.cuda.matmul.allow_tf32
    finally:
        backends.cudnn.benchmark = backends.cuda.matmul.allow_tf32 = False
    with pytest.raises(AttributeError, match="benchmark"):
        backends.cudnn.benchmrk = True


def test_what_is_not_here():
    """Backends that do not exist here say so."""
    assert not backends.mps.is_available() and not backends.mps.is_built() and not backends.mkl.is_available()
    assert backends.cpu.get_cpu_capability() == "DEFAULT"
    backends.cuda.enable_flash_sdp(True)
    assert "allow_tf32" in backends.cuda.matmul.names()


def test_one_precision_under_three_names():
    """The two switches of products and `set_float32_matmul_precision` are one."""
    matmul = backends.cuda.matmul
    assert not matmul.allow_tf32 and matmul.fp32_precision == "ieee"
    try:
        ddpflow.set_float32_matmul_precision("medium")
        assert matmul.allow_tf32 and matmul.fp32_precision == "tf32"
        matmul.fp32_precision = "ieee"
        assert ddpflow.get_float32_matmul_precision() == "highest" and not matmul.allow_tf32
        matmul.allow_tf32 = True
        assert ddpflow.get_float32_matmul_precision() == "high" and matmul.fp32_precision == "tf32"
        with pytest.raises(ValueRangeError, match="tf32, ieee or none"):
            matmul.fp32_precision = "bf16"
    finally:
        matmul.allow_tf32 = False
