"""Every op, layer and optimizer on a real GPU, compared with the CPU: the bodies of tests/doubles."""

import pytest

from tests.autograd.samples import REGISTRY
from tests.gpu import bodies

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", [name for name in sorted(REGISTRY) if name not in bodies.LEFT_OUT])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_op(name, dtype):
    """Values and gradients of an op are the CPU's."""
    bodies.check_op(REGISTRY[name], dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves(dtype):
    """Half types give the CPU's values, with the same accumulation in float32."""
    for name, definition in sorted(REGISTRY.items()):
        if name not in bodies.NO_HALF and (dtype, name) not in bodies.NO_HALF:
            bodies.check_op(definition, dtype)


@pytest.mark.parametrize("name", bodies.MODULES)
def test_module(name):
    """Outputs, gradients and buffers of a layer or loss are the CPU's."""
    bodies.check_module(name)


@pytest.mark.parametrize("name", bodies.OPTIMIZERS)
def test_optimizer(name):
    """Steps on the GPU end where steps on the CPU do."""
    bodies.check_optimizer(name)
