"""Every op on the CuPy stand-in: same values and gradients as on NumPy, and nothing that CuPy lacks or refuses.

It proves nothing about CUDA; see `tests.doubles.fake_cupy`.
"""

import importlib

import numpy as np
import pytest

import ddpflow
from tests.autograd.samples import REGISTRY, cases
from tests.doubles.fake_cupy import installed

# Ops left out, and why.
LEFT_OUT = {
    "diagonal": "the stand-in's diagonals are read-only, CuPy's are not",
    "index": "its samples hold NumPy index arrays",
    "moved": "it moves between devices",
    "place_diagonal": "the stand-in's diagonals are read-only, CuPy's are not",
    "place_rows": "its samples hold NumPy index arrays",
    "place_sum": "its samples hold NumPy index arrays",
    "poisson": "it draws from the rates on the host",
    "scatter": "its samples hold NumPy index arrays",
}
RANDOM = {"bernoulli", "draw_keep", "multinomial", "rand_like", "randint_like", "randn_like"}


@pytest.fixture
def cupy():
    """The stand-in with one device."""
    with installed(devices=1):
        yield importlib.import_module("cupy")


@pytest.mark.parametrize("name", sorted(REGISTRY.keys() - LEFT_OUT.keys() - RANDOM))
def test_equals_numpy(cupy, name):
    """Outputs and gradients agree to float32 rounding."""
    for number, case in enumerate(cases(REGISTRY[name])):
        host = case.tensors(case.typed(np.float32))
        device = [
            ddpflow.Tensor(cupy.asarray(a.array), requires_grad=a.requires_grad) if isinstance(a, ddpflow.Tensor) else a
            for a in host
        ]
        outs = case.run(host)
        case.kwargs = {
            k: ddpflow.Tensor(cupy.asarray(v.array)) if isinstance(v, ddpflow.Tensor) else v
            for k, v in case.kwargs.items()
        }
        found = case.run(device)
        for results, ones in ((outs, np.ones_like), (found, cupy.ones_like)):
            chosen = [out for out in results if out.requires_grad]
            if chosen:
                ddpflow.autograd.backward(chosen, [ddpflow.Tensor(ones(out.array)) for out in chosen])
        pairs = list(zip(outs, found, strict=True))
        pairs += [(a.grad, b.grad) for a, b in zip(host, device, strict=True) if getattr(a, "grad", None) is not None]
        for a, b in pairs:
            assert isinstance(b.array, cupy.ndarray), f"sample {number}: left the device"
            np.testing.assert_allclose(cupy.asnumpy(b.array), a.array, rtol=2e-4, atol=2e-5, err_msg=f"sample {number}")
