"""The op suite, layers, optimizers and training steps on the CuPy stand-in, compared with the CPU.

It shows that they use only what CuPy has, and never mix. It proves nothing about CUDA; tests/gpu runs the same bodies.
"""

import pytest

from tests.autograd.samples import REGISTRY
from tests.doubles.fake_cupy import installed
from tests.gpu import bodies


@pytest.fixture(autouse=True)
def gpu():
    """A machine with a pretended GPU."""
    with installed() as state:
        yield state


@pytest.mark.parametrize("name", [name for name in sorted(REGISTRY) if name not in bodies.LEFT_OUT])
def test_op(name):
    """Values and gradients of an op are the CPU's."""
    bodies.check_op(REGISTRY[name], "float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves(dtype):
    """Half types give the CPU's values, with the same accumulation in float32."""
    for name, definition in sorted(REGISTRY.items()):
        if name not in bodies.NO_HALF and (dtype, name) not in bodies.NO_HALF:
            with installed():
                bodies.check_op(definition, dtype)


@pytest.mark.parametrize("name", bodies.MODULES)
def test_module(name):
    """Outputs, gradients and buffers of a layer or loss are the CPU's."""
    bodies.check_module(name)


@pytest.mark.parametrize("name", bodies.OPTIMIZERS)
def test_optimizer(name):
    """Steps on the GPU end where steps on the CPU do."""
    bodies.check_optimizer(name)
