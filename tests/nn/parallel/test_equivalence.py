"""The central property: gradients on N ranks over shards equal one process over the whole batch, with equal bits."""

import functools
import hashlib

import numpy as np
import pytest

import ddpflow as flow
from ddpflow import nn
from ddpflow.nn import functional as F
from ddpflow.nn.parallel import DistributedDataParallel as DDP
from ddpflow.testing import run_ranks

WHOLE = 12  # samples: divisible by 2, 3 and 4
CAPS = {"tiny": 1e-5, "default": None, "huge": 1e3}


def _cnn():
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(32, 5),
    )  # fmt: skip


class _Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class _GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(17, 16), nn.Embedding(9, 16)
        self.blocks = nn.Sequential(_Block(16, 2), _Block(16, 4))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 17, bias=False)
        self.head.weight = self.token.weight  # tied

    def forward(self, i):
        return self.head(self.norm(self.blocks(self.token(i) + self.position(flow.arange(i.shape[1])))))


def _setup(kind, dtype="float64"):
    """Returns the model, the whole batch and the loss; the same in every process."""
    flow.manual_seed(7)
    rng = np.random.default_rng(3)
    if kind == "cnn":
        model = _cnn()
        for m in model.modules():
            if isinstance(m, nn.BatchNorm2d):
                m.running_mean.copy_(flow.from_numpy(rng.standard_normal(m.num_features)))
                m.running_var.copy_(flow.from_numpy(rng.random(m.num_features) + 0.5))
        x = flow.from_numpy(rng.standard_normal((WHOLE, 2, 8, 8)).astype(dtype))
        y = flow.from_numpy(rng.integers(0, 5, WHOLE))
    else:
        model = _GPT()
        x, y = (flow.from_numpy(rng.integers(0, 17, (WHOLE, 9))) for _ in range(2))
    model = model.to(getattr(flow, dtype))
    if kind == "cnn":
        model.eval()  # frozen statistics: a batch norm over a shard is another function than over the whole batch
    return model, x, y


def _loss(scores, y):
    return F.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))


@functools.cache
def _reference(kind):
    """Gradients of one process over the whole batch, after one and after two backward passes with a step between."""
    model, x, y = _setup(kind)
    optimizer = flow.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    found = []
    for _ in range(2):
        optimizer.zero_grad()
        _loss(model(x), y).backward()
        found.append([p.grad.numpy().copy() for p in model.parameters()])
        optimizer.step()
    return found


def _on_ranks(rank, kind, size, cap, dtype="float64"):
    model, x, y = _setup(kind, dtype)
    ddp = DDP(model, bucket_cap_mb=cap)
    optimizer = flow.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    part = slice(rank * WHOLE // size, (rank + 1) * WHOLE // size)
    found = []
    for _ in range(2):
        optimizer.zero_grad()
        _loss(ddp(x[part]), y[part]).backward()
        found.append([p.grad.numpy().copy() for p in model.parameters()])
        optimizer.step()
    return found


def _digest(found):
    return hashlib.sha256(b"".join(g.tobytes() for step in found for g in step)).hexdigest()


@pytest.mark.parametrize("backend", ["thread", "shm"])
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("kind", ["cnn", "gpt"])
def test_shards_on_ranks_equal_the_whole_batch_in_one_process(kind, size, backend):
    """To 1e-12 in float64, bit-equal on all ranks and for tiny, default and huge buckets."""
    digests = set()
    for cap in CAPS.values():
        results = run_ranks(_on_ranks, size, backend, args=(kind, size, cap), timeout_s=60)
        for step, expected in zip(results[0], _reference(kind), strict=True):
            for g, e in zip(step, expected, strict=True):
                np.testing.assert_allclose(g, e, rtol=1e-12, atol=1e-12)
        digests.update(_digest(found) for found in results)
    assert len(digests) == 1


def test_float32_gradients_have_the_same_bits_for_every_bucket_size_and_run():
    """Sums are taken in rank order, element by element, whatever bucket an element lies in."""
    digests = set()
    for cap in [*CAPS.values(), None]:
        results = run_ranks(_on_ranks, 4, "shm", args=("gpt", 4, cap, "float32"), timeout_s=60)
        digests.update(_digest(found) for found in results)
    assert len(digests) == 1
