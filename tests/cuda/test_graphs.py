"""CUDA graphs on the CuPy stand-in, which notes what a capturing stream is given and does it at each replay only."""

import gc
import time

import numpy as np
import pytest

import ddpflow
import ddpflow.comm as dist
from ddpflow import cuda, nn, optim
from ddpflow.errors import CommError, DeviceError
from ddpflow.nn import functional as F
from ddpflow.nn.parallel import DistributedDataParallel
from tests.doubles.fake_cupy import installed
from tests.doubles.timeline import StreamOrderError, state
from tests.doubles.worlds import run_gpu_ranks
from tests.gpu.bodies import close, integers, numbers, on_host, small_model


@pytest.fixture
def gpu():
    """A machine with a pretended GPU."""
    with installed() as machine:
        yield machine


def test_capture_and_replay(gpu):
    """Nothing happens in the capture; each replay computes with what its inputs hold then, and makes no one wait."""
    x = ddpflow.arange(3.0).cuda()
    total = ddpflow.zeros(3).cuda()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        assert cuda.is_current_stream_capturing()
        y = x * 2 + ddpflow.ones(3, device="cuda")
        total += y
    assert not cuda.is_current_stream_capturing()
    assert total.tolist() == [0, 0, 0] and np.isnan(y.cpu().numpy()).all()
    gpu.syncs.clear()
    launches = gpu.launches
    graph.replay()
    assert gpu.launches == launches + 1 and gpu.syncs == []
    x.copy_(ddpflow.tensor([5.0, 6.0, 7.0]))
    graph.replay()
    assert y.tolist() == [11, 13, 15] and total.tolist() == [12, 16, 20]


CAPTURABLE = {
    "SGD": lambda params: optim.SGD(params, 0.1, momentum=0.9, weight_decay=0.01),
    "AdamW": lambda params: optim.AdamW(params, 0.01, capturable=True),
    "Adam": lambda params: optim.Adam(params, 0.01, amsgrad=True, capturable=True),
}


def training(place, kind):
    """A model with an optimizer, its inputs, and a function that makes a step."""
    ddpflow.manual_seed(5)
    model = small_model().to(place)
    optimizer = CAPTURABLE[kind](model.parameters())
    x, y = numbers(7, 6).to(place), integers(3, 7).to(place)

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return model, x, step


@pytest.mark.parametrize("kind", CAPTURABLE)
def test_a_whole_step(gpu, kind):
    """Forward, backward, clipping and the optimizer's step: replays end where eager steps and the CPU's end."""
    model, x, step = training("cuda", kind)
    twin, other, eager = training("cuda", kind)
    on_cpu, third, host = training("cpu", kind)
    for first in (step, eager, host):
        first()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        loss = step()
    for k in range(3):
        for inputs in (x, other, third):
            inputs.copy_(numbers(7, 6, seed=k))
        host()
        graph.replay()
        expected = eager()
        assert loss.item() == expected.item()
    ends = [[on_host(t.detach().array) for t in (*m.parameters(), *m.buffers())] for m in (model, twin, on_cpu)]
    for ours, theirs, cpu in zip(*ends, strict=True):
        np.testing.assert_array_equal(ours, theirs)
        close(ours, cpu, 1e-4, kind)


def test_random_numbers_are_drawn_anew(gpu):
    """A generator that was started before goes on from replay to replay; one cannot be started inside."""
    graph = cuda.CUDAGraph()
    with pytest.raises(DeviceError, match="draw from it once before"), cuda.graph(graph):
        ddpflow.rand(4, device="cuda")
    ddpflow.manual_seed(3)
    expected = [ddpflow.rand(4, device="cuda").tolist() for _ in range(3)]
    ddpflow.manual_seed(3)
    first = ddpflow.rand(4, device="cuda").tolist()
    with cuda.graph(graph):
        drawn = ddpflow.rand(4, device="cuda")
    seen = []
    for _ in range(3):
        graph.replay()
        seen.append(drawn.tolist())
    assert first == expected[0] and len({str(s) for s in seen}) == 3
    with pytest.raises(DeviceError, match="start it anew"), cuda.graph(cuda.CUDAGraph()):
        ddpflow.manual_seed(3)


def data_parallel(rank, captured, hook):
    """Steps of a rank on its part of the batches, the last three replayed or not; and what the host waited for."""
    ddpflow.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)).cuda()
    ddp = DistributedDataParallel(model, bucket_cap_mb=1e-4)
    if hook is not None:
        ddp.register_comm_hook(None, hook)
    optimizer = optim.SGD(ddp.parameters(), 0.1, momentum=0.9)
    x, y = numbers(4, 6, seed=rank).cuda(), integers(3, 4, seed=rank).cuda()

    def step():
        optimizer.zero_grad()
        F.cross_entropy(ddp(x), y).backward()
        optimizer.step()

    step()
    graph = cuda.CUDAGraph()
    if captured:
        with cuda.graph(graph):
            step()
    state().syncs.clear()
    for k in range(3):
        x.copy_(numbers(4, 6, seed=10 * k + rank).cuda())
        (graph.replay if captured else step)()
    waits = list(state().syncs)
    step()  # captured or not, an eager step may follow
    return waits, [on_host(p.detach().array) for p in ddp.parameters()]


@pytest.mark.parametrize("compressed", [False, True])
def test_data_parallel_step(compressed):
    """With the all-reduces of all buckets inside, replays on two ranks end at the weights of eager steps."""
    from ddpflow.nn.parallel.compression import fp16_compress_hook

    hook = fp16_compress_hook if compressed else None
    (waits, one), (_, two) = run_gpu_ranks(data_parallel, 2, args=(True, hook))
    (_, eager), _ = run_gpu_ranks(data_parallel, 2, args=(False, hook))
    assert waits == []
    for a, b, c in zip(one, two, eager, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


def test_the_watchdog_looks_after_replays():
    """A replay whose peer does not come ends at the group's deadline on both ranks, and later replays say why."""

    def body(rank):
        x = ddpflow.ones(3).cuda()
        dist.all_reduce(x)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            work = dist.all_reduce(x, async_op=True)
            work.wait()
        assert not work.is_completed()
        graph.replay()
        assert x.tolist() == [4, 4, 4]
        if rank == 0:
            graph.replay()
        backend = dist.current_group()._transport(x.array)
        while backend.failure is None:
            time.sleep(0.01)
        with pytest.raises(CommError) as caught:
            graph.replay()
        return str(caught.value)

    zero, one = run_gpu_ranks(body, 2, group_timeout_s=1.0)
    assert "all_reduce (replay of a CUDA graph)" in zero and "in 1 s" in zero
    assert "rank 0 gave up waiting in all_reduce (replay of a CUDA graph)" in one


def test_collectives_that_cannot_be_captured():
    """The first one on a GPU, where ranks meet, and those of NumPy arrays say so; the group stays whole."""

    def body(rank):
        x = ddpflow.ones(3).cuda()
        for value, text in ((x, "cannot be captured"), (ddpflow.ones(3), "NumPy")):
            with pytest.raises(CommError, match=text), cuda.graph(cuda.CUDAGraph()):
                dist.all_reduce(value)
            if value is x:
                dist.all_reduce(x)
        dist.all_reduce(x)
        return x.tolist()

    assert run_gpu_ranks(body, 2, "nccl_threads") == [[4.0, 4.0, 4.0]] * 2


@pytest.mark.parametrize(
    "forbidden",
    [
        lambda x: x.sum().item(),
        lambda x: x.cpu(),
        lambda x: print(x),
        lambda x: x[x > 1],
        lambda x: x.nonzero(),
        lambda x: cuda.current_stream().synchronize(),
        lambda x: bool((x > 0).all()),
    ],
    ids=["item", "cpu", "print", "boolean index", "nonzero", "synchronize", "bool"],
)
def test_what_makes_the_host_wait_is_refused(gpu, forbidden):
    """The error says what may not be captured; nothing was done, and the stream can be used and captured again."""
    x = ddpflow.arange(3.0).cuda()
    graph = cuda.CUDAGraph()
    with pytest.raises(DeviceError, match=r"CUDA says cudaErrorStreamCapture.*nothing may make the host wait"):
        with cuda.graph(graph):
            x += 1
            forbidden(x)
    with pytest.raises(DeviceError, match="nothing was captured"):
        graph.replay()
    assert x.tolist() == [0, 1, 2]
    with cuda.graph(graph):
        x += 1
    graph.replay()
    assert x.tolist() == [1, 2, 3]


def test_an_error_of_the_step_passes(gpu):
    """What the step itself raises is raised, and the capture is given up."""
    with pytest.raises(ZeroDivisionError), cuda.graph(cuda.CUDAGraph()):
        raise ZeroDivisionError
    assert not cuda.is_current_stream_capturing() and (ddpflow.ones(2).cuda() + 1).tolist() == [2, 2]


def test_streams_that_fork(gpu):
    """A stream that waits for the capturing one joins the capture, and must be waited for before its end."""
    x, side = ddpflow.arange(3.0).cuda(), cuda.Stream()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            y = x * 2
        cuda.current_stream().wait_stream(side)
        z = y + 1
    graph.replay()
    assert z.tolist() == [1, 3, 5]
    with pytest.raises(DeviceError, match="Unjoined"), cuda.graph(cuda.CUDAGraph()):
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            x * 2
    before = cuda.Event()
    before.record()
    with pytest.raises(DeviceError, match="Isolation"), cuda.graph(cuda.CUDAGraph()):
        before.wait()


def test_data_from_main_memory(gpu):
    """A copy from main memory is refused with the remedy; into pinned memory a graph copies at each replay."""
    x, host = ddpflow.arange(3.0).cuda(), ddpflow.empty(3, pin_memory=True)
    with pytest.raises(DeviceError, match="copy_ into it before each replay"), cuda.graph(cuda.CUDAGraph()):
        x.copy_(ddpflow.ones(3))
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        x += 1
        host.copy_(x, non_blocking=True)
        dropped = x.to("cpu", non_blocking=True)
    del dropped  # the graph keeps it: each replay writes there
    gc.collect()
    for k in (1, 2):
        graph.replay()
        cuda.synchronize()
        assert host.tolist() == [k, k + 1, k + 2]


def test_optimizers_that_count(gpu):
    """Adam's count of steps stands on the host, and state that is made inside would start anew: both are refused."""
    model = nn.Linear(3, 2).cuda()
    model(numbers(4, 3).cuda()).sum().backward()
    adam = optim.Adam(model.parameters(), 0.1)
    sgd = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for optimizer in (adam, sgd):
        with pytest.raises(DeviceError, match="would start anew"), cuda.graph(cuda.CUDAGraph()):
            optimizer.step()
    adam = optim.Adam(model.parameters(), 0.1)
    adam.step()
    with pytest.raises(DeviceError, match="Adam counts its steps"), cuda.graph(cuda.CUDAGraph()):
        adam.step()
    with cuda.graph(cuda.CUDAGraph()):
        optim.SGD(model.parameters(), 0.1).step()
    capturable = optim.Adam(model.parameters(), 0.1, capturable=True)
    capturable.load_state_dict(adam.state_dict())  # of one that counts on the host: the next step moves the count
    assert capturable.state[model.weight]["step"] == 1
    capturable.param_groups[0]["capturable"] = True
    with pytest.raises(DeviceError, match="capturable=True"), cuda.graph(cuda.CUDAGraph()):
        capturable.step()
    capturable.step()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        capturable.step()
    graph.replay()
    graph.replay()
    assert capturable.state[model.weight]["step"].item() == 4


def test_the_graph_keeps_its_memory(gpu):
    """What a step allocates comes from a pool of the graph, which lives as long as it; outputs stay readable."""
    x = ddpflow.arange(3.0).cuda()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        y = (x * 2 + 1) * 3
    gc.collect()
    ddpflow.zeros(3).cuda()
    graph.replay()
    assert y.tolist() == [3, 9, 15] and graph.pool() is not None
    second = cuda.CUDAGraph()
    with cuda.graph(second, pool=graph.pool()):
        z = y + 1
    second.replay()
    assert z.tolist() == [4, 10, 16]
    assert type(cuda.graph_pool_handle()) is type(graph.pool())
    graph.reset()
    assert graph.pool() is None
    with pytest.raises(DeviceError, match="nothing was captured"):
        graph.replay()


def test_the_double_sees_inputs_that_are_gone():
    """An input that was dropped before a replay is found: nothing in these tests passes by luck."""
    with pytest.raises(AssertionError, match="handed back"), installed():
        x = ddpflow.arange(3.0).cuda()
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            y = x * 2
        del x
        graph.replay()
        del y


def test_the_double_sees_races_in_a_capture(gpu):
    """A missing wait between two captured streams is found, as it is between streams that do not capture."""
    x, side = ddpflow.arange(3.0).cuda(), cuda.Stream()
    with pytest.raises(StreamOrderError, match="without waiting"), cuda.graph(cuda.CUDAGraph()):
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            y = x * 2
        y + 1
    assert (x * 2).tolist() == [0, 2, 4]


def test_misuse(gpu):
    """Captures do not nest, the default stream is not captured, and a graph is captured once."""
    graph, other = cuda.CUDAGraph(), cuda.CUDAGraph()
    with pytest.raises(DeviceError, match="default stream"):
        graph.capture_begin()
    with pytest.raises(DeviceError, match="without capture_begin"):
        graph.capture_end()
    with pytest.raises(DeviceError, match="relaxed, thread_local, global"):
        graph.capture_begin(capture_error_mode="strict")
    x = ddpflow.arange(3.0).cuda()
    with cuda.graph(other):
        x += 1
    with cuda.stream(cuda.Stream()):
        graph.capture_begin(capture_error_mode="thread_local")
        x *= 2
        with pytest.raises(DeviceError, match="captures a CUDA graph already"):
            other.capture_begin()
        with pytest.raises(DeviceError, match="cannot be captured"):
            other.replay()
        graph.capture_end()
    with pytest.raises(DeviceError, match="captured already"), cuda.graph(graph):
        pass
    other.replay()
    graph.replay()
    assert x.tolist() == [2, 4, 6]
