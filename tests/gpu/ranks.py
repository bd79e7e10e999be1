"""What the ranks of tests/gpu/test_nccl.py run: training over NCCL, compared with the CPU; prints OK on each rank."""

import os
import sys

import numpy as np

import ddpflow
import ddpflow.comm as dist
from ddpflow import nn, optim
from ddpflow.nn import functional as F
from ddpflow.nn.parallel import DistributedDataParallel
from tests.gpu.bodies import close, integers, numbers, on_host


def model():
    """The same on every rank and device."""
    ddpflow.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))


def steps(net, x, y):
    """Three steps of AdamW; the weights on the host."""
    optimizer = optim.AdamW(net.parameters(), 0.01)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    return [on_host(p.detach().array) for p in net.parameters()]


def collectives(rank, size):
    """Sums, averages, gathers and messages of several dtypes."""
    for name in ("float32", "float16", "int64", "int16", "bool"):
        x = ddpflow.tensor(np.arange(5) % 2 + rank).to(getattr(ddpflow, name)).cuda()
        expected = sum((np.arange(5) % 2 + r).astype(x.cpu().numpy().dtype) for r in range(size))
        dist.all_reduce(x)
        np.testing.assert_array_equal(on_host(x.array), expected.astype(on_host(x.array).dtype))
    x = ddpflow.full((4,), float(rank), device="cuda")
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert x.tolist() == [(size - 1) / 2] * 4
    outs = [ddpflow.zeros(3, device="cuda") for _ in range(size)]
    dist.all_gather(outs, ddpflow.full((3,), float(rank), device="cuda"))
    assert [out.tolist() for out in outs] == [[float(r)] * 3 for r in range(size)]
    dist.barrier()


def main():
    """Joins the world, checks, and leaves."""
    dist.init_process_group(sys.argv[1], timeout=60)
    rank, size = dist.get_rank(), dist.get_world_size()
    ddpflow.cuda.set_device(int(os.environ["LOCAL_RANK"]) % ddpflow.cuda.device_count())
    collectives(rank, size)
    x, y = numbers(8, 6), integers(3, 8)
    expected = steps(model(), x, y)
    found = steps(DistributedDataParallel(model().cuda()), x[rank::size].cuda(), y[rank::size].cuda())
    for ours, single in zip(found, expected, strict=True):
        close(ours, single, 1e-4, "weights")
    dist.destroy_process_group()
    print(f"OK {rank} of {size}")


if __name__ == "__main__":
    main()
