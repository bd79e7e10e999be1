"""Gradients sent at half precision."""

import numpy as np
import pytest

from ddpflow.nn.parallel import comm_hooks, compression
from ddpflow.nn.parallel.distributed import DistributedDataParallel as DDP
from tests.nn.parallel.models import Weights, grads, tensor, total


def _run(rank, name):
    ddp = DDP(Weights([1.0, 2.0], 3.0, dtype=np.float32), bucket_cap_mb=1e-6, comm_hook=getattr(compression, name))
    flats = []
    for _ in range(2):
        ddp.module.zero_grad()
        total(ddp(tensor([rank + 1.0, 0.1 * (rank + 1)], np.float32))).backward()
        flats.append([copy.flat.ctypes.data for b in ddp._reducer.buckets for copy in b._copies.values()])
    return grads(ddp.module), flats[0] == flats[1] and len(flats[0]) == 2


@pytest.mark.parametrize(("name", "tolerance"), [("fp16_compress_hook", 1e-3), ("bf16_compress_hook", 1e-2)])
def test_means_at_half_precision(world, name, tolerance):
    """Close to the mean, equal bits on both ranks, and the half copies are made once."""
    pytest.importorskip("ml_dtypes", reason="bfloat16 needs the extra bf16")
    (first, steady), (second, _) = world(_run, 2, name)
    assert first == second and steady
    np.testing.assert_allclose(first["w0"], [1.5, 0.15], rtol=tolerance)
    np.testing.assert_allclose(first["w1"], 1.65, rtol=tolerance)


def _wrapped(rank):
    ddp = DDP(Weights([1.0, 2.0], dtype=np.float32))
    seen = []

    def summing(group, bucket):
        seen.append(bucket.buffer().dtype.name)
        return comm_hooks.sum_hook(group, bucket)

    ddp.register_comm_hook(None, compression.fp16_compress_wrapper(summing))
    total(ddp(tensor([rank + 1.0, 10.0], np.float32))).backward()
    return grads(ddp.module)["w0"], seen, ddp.module.w0.grad.dtype.name


def test_compression_wraps_another_hook(world):
    """The inner hook sees a float16 bucket; the gradient stays float32."""
    assert world(_wrapped) == [([3.0, 20.0], ["float16"], "float32")] * 2
