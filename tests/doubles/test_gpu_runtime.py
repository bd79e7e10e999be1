"""tests/gpu/test_runtime.py on the CuPy stand-in, so that it holds no mistakes of its own."""

import pytest

from ddpflow import backends
from tests.doubles.fake_cupy import installed
from tests.gpu import test_runtime

# The stand-in computes in float32 whatever it is told; what it is told is checked in tests/test_precision.py.
LEFT_OUT = {"test_tf32"}


@pytest.mark.parametrize("name", [n for n in dir(test_runtime) if n.startswith("test_") and n not in LEFT_OUT])
def test_on_the_stand_in(name, monkeypatch):
    """Each of its tests."""
    monkeypatch.setattr(test_runtime, "BIG", 64)
    with installed():
        getattr(test_runtime, name)()
    assert not backends.cuda.matmul.allow_tf32
