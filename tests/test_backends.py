"""Switches of PyTorch's backends."""

import pytest

from ddpflow import backends


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
