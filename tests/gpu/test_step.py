"""A training step on a real GPU: streams, memory and what the host waits for."""

import numpy as np
import pytest

import ddpflow
from ddpflow import cuda, optim
from ddpflow.nn import functional as F
from tests.gpu.bodies import TinyGPT, integers

pytestmark = pytest.mark.gpu


def test_a_step_on_another_stream_is_the_same():
    """The same seeds give the same weights on the default stream and on another."""
    ends = []
    for stream in (None, cuda.Stream()):
        ddpflow.manual_seed(1)
        with cuda.stream(stream):
            model = TinyGPT().cuda()
            optimizer = optim.AdamW(model.parameters(), 0.01)
            x = integers(11, 2, 6).cuda()
            for _ in range(3):
                optimizer.zero_grad()
                F.cross_entropy(model(x).reshape(-1, 11), x.reshape(-1)).backward()
                optimizer.step()
            ends.append([p.detach().cpu().numpy() for p in model.parameters()])
    for first, second in zip(*ends, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)


def test_memory_does_not_grow():
    """Training steps give back what they take."""
    model = TinyGPT().cuda()
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    x = integers(11, 2, 6).cuda()
    used = []
    for _ in range(6):
        optimizer.zero_grad()
        F.cross_entropy(model(x).reshape(-1, 11), x.reshape(-1)).backward()
        optimizer.step()
        used.append(cuda.memory_allocated())
    assert used[-1] <= used[2]
    free, total = cuda.mem_get_info()
    assert 0 < free <= total and cuda.max_memory_allocated() >= used[-1]


def test_events_measure_time():
    """Time between two events of a stream."""
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    x = ddpflow.ones(512, 512, device="cuda") @ ddpflow.ones(512, 512, device="cuda")
    end.record()
    assert start.elapsed_time(end) > 0 and float(x[0, 0]) == 512
