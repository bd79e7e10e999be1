"""Pinned memory, TF32, CUDA graphs and shared memory on a real GPU; tests/doubles runs the same on the stand-in."""

import numpy as np
import pytest

import ddpflow
from ddpflow import backends, cuda, optim
from ddpflow.errors import DeviceError
from ddpflow.nn import functional as F
from tests.gpu.bodies import TinyGPT, integers

pytestmark = pytest.mark.gpu

BIG = 1 << 20


def test_copies_that_do_not_block():
    """Pinned memory goes to the GPU and back unharmed, also when both sides are dropped at once."""
    values = np.arange(BIG, dtype=np.float32)
    for k in range(4):
        there = (ddpflow.tensor(values) + k).pin_memory().to("cuda", non_blocking=True)
        back = (there * 2).to("cpu", non_blocking=True)
        kept = ddpflow.empty(BIG, pin_memory=True).copy_(there, non_blocking=True)
        cuda.current_stream().synchronize()
        assert back.is_pinned() and kept.is_pinned() and not ddpflow.tensor(values).is_pinned()
        np.testing.assert_array_equal(back.numpy(), (values + k) * 2)
        np.testing.assert_array_equal(kept.numpy(), values + k)


def test_a_blocking_copy_may_be_followed_by_a_write():
    """Without ``non_blocking`` the source may change at once, pinned or not."""
    for pinned in (False, True):
        source = ddpflow.zeros(BIG, pin_memory=pinned)
        sent = []
        for k in range(4):
            source.fill_(k)
            sent.append(source.cuda())
        assert [x.sum().item() for x in sent] == [k * BIG for k in range(4)]


def test_tf32():
    """TF32 changes products of float32, of matrices and of batches, by its rounding and no more, and only while on."""
    if cuda.get_device_capability() < (8, 0):
        pytest.skip("this GPU has no TF32")
    rng = np.random.default_rng(3)
    a, b = (ddpflow.tensor(rng.standard_normal(s).astype(np.float32)) for s in ((4, 256, 256), (4, 256, 256)))
    exact = a.double() @ b.double()
    a, b = a.cuda(), b.cuda()
    for product, expected in ((lambda: a @ b, exact), (lambda: a[0] @ b[0], exact[0])):
        errors = []
        for allowed in (False, True, False):
            backends.cuda.matmul.allow_tf32 = allowed
            errors.append(float((product().cpu().double() - expected).abs().max()))
        assert errors[0] == errors[2] < 1e-3 < errors[1] < 1e-1, errors


def steps(captured):
    """The weights after five steps, of which the last three are replays or not."""
    ddpflow.manual_seed(1)
    model = TinyGPT().cuda()
    optimizer = optim.AdamW(model.parameters(), 0.01, capturable=True)
    x = integers(11, 2, 6).cuda()

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).reshape(-1, 11), x.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(2):
        step()
    graph = cuda.CUDAGraph()
    if captured:
        with cuda.graph(graph):
            step()
    for k in range(3):
        x.copy_(integers(11, 2, 6, seed=k).cuda())
        (graph.replay if captured else step)()
    return [p.detach().cpu().numpy() for p in model.parameters()]


def test_a_captured_step():
    """Replays of a training step end at the weights of eager steps."""
    for ours, theirs in zip(steps(True), steps(False), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_a_captured_wait():
    """CUDA refuses a wait of the host inside a capture; afterwards the GPU works as before."""
    x = ddpflow.arange(4.0).cuda()
    with pytest.raises(DeviceError, match="nothing may make the host wait"), cuda.graph(cuda.CUDAGraph()):
        (x + 1).sum().item()
    assert (x + 1).tolist() == [1, 2, 3, 4]


def test_random_numbers_of_replays():
    """Each replay draws anew, and evenly."""
    ddpflow.rand(2, device="cuda")
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        x = ddpflow.rand(4096, device="cuda")
    seen = []
    for _ in range(3):
        graph.replay()
        seen.append(x.cpu().numpy())
    assert len({s.tobytes() for s in seen}) == 3
    assert all(0 <= s.min() < 0.01 and 0.99 < s.max() < 1 and 0.45 < s.mean() < 0.55 for s in seen)


def test_shared_memory():
    """CuPy, and PyTorch where it is installed, see our memory and we theirs."""
    import cupy

    ours = ddpflow.arange(4.0).cuda()
    theirs = cupy.from_dlpack(ours)
    theirs += 1
    assert ours.tolist() == [1, 2, 3, 4] and ddpflow.from_dlpack(theirs).data_ptr() == ours.data_ptr()
    try:
        import torch
    except ImportError:
        return
    if torch.cuda.is_available():
        third = torch.from_dlpack(ours)
        third *= 2
        back = ddpflow.as_tensor(third)
        assert back.data_ptr() == ours.data_ptr() and (back + 0).tolist() == [2, 4, 6, 8]
