"""What makes the host wait for a GPU, counted on the CuPy stand-in: docs/gpu.md lists it, and nothing else may."""

import warnings

import numpy as np
import pytest

import ddpflow
import ddpflow.comm as dist
from ddpflow import cuda, nn, optim
from ddpflow.dtype import as_numpy
from ddpflow.nn import functional as F
from ddpflow.nn.parallel import DistributedDataParallel
from tests.autograd.samples import REGISTRY, cases
from tests.doubles.fake_cupy import installed
from tests.doubles.timeline import state
from tests.doubles.worlds import run_gpu_ranks
from tests.gpu.bodies import (
    HOST_OPTIONS,
    LEFT_OUT,
    MODULES,
    OPTIMIZERS,
    integers,
    numbers,
    on_device,
    small_model,
    tensors_of,
)

# The operations that wait, and why; all others launch work and go on.
SIZED = {
    "argwhere",
    "bincount",
    "index",
    "unique",
    "unique_consecutive",
    "where_indices",
}  # results as large as values say
ANSWERS = {"equal"}  # a bool of Python
CHECKS = {"bernoulli", "multinomial"}  # probabilities that are none are an error
HOST = {"det", "histc", "median_of_all", "nanmedian_of_all"}  # part of the computation is Python's
ZEROS = {"cumprod", "prod"}  # backward: whether there are zeros
MASKS = {"place_sum"}  # the gradient of a boolean index


def waits_of(definition):
    """Whether forward and backward of an operation make the host wait, on any sample."""
    forward = backward = False
    for case in cases(definition):
        arrays = case.typed(as_numpy("float32"))
        if definition.name not in HOST_OPTIONS:
            case.specs = [on_device(s) if a is None else s for s, a in zip(case.specs, arrays, strict=True)]
            case.kwargs = {name: on_device(value) for name, value in case.kwargs.items()}
        args = case.tensors([None if a is None else on_device(a) for a in arrays])
        state().syncs.clear()
        outs = [out for out in case.run(args) if out.requires_grad]
        forward |= bool(state().syncs)
        seeds = [ddpflow.ones_like(out) for out in outs]
        state().syncs.clear()
        if outs:
            ddpflow.autograd.backward(outs, seeds)
        backward |= bool(state().syncs)
    return forward, backward


def test_operations():
    """Exactly the listed operations wait, where the list says: in forward, or in backward."""
    forward, backward = set(), set()
    with installed(), warnings.catch_warnings():
        for name in sorted(set(REGISTRY) - set(LEFT_OUT)):
            first, second = waits_of(REGISTRY[name])
            forward |= {name} if first else set()
            backward |= {name} if second else set()
    assert forward == SIZED | ANSWERS | CHECKS | HOST
    assert backward == ZEROS | MASKS


def test_layers_and_losses():
    """Only CTCLoss waits, for the lengths; the others do not, in neither direction."""
    found = set()
    for name, (make, inputs) in MODULES.items():
        with installed():
            module, xs = make().cuda(), [x.detach().cuda() for x in inputs()]
            for x in xs:
                if x.is_floating_point():
                    x.requires_grad_()
            state().syncs.clear()
            outs = [out for out in tensors_of(module(*xs)) if out.requires_grad]
            sum((out * out).sum() for out in outs).backward()
            found |= {name} if state().syncs else set()
    assert found == {"CTCLoss"}


@pytest.mark.parametrize("ignored", [[], [0, 2], range(4)])
def test_nll_loss(ignored):
    """The mean is NaN, and the gradient zero, where no sample counts; the host need not ask."""
    target = integers(3, 4)
    target[list(ignored)] = -100
    ends = []
    with installed():
        for place in ("cpu", "cuda"):
            x, y = numbers(4, 3).to(place).requires_grad_(), target.to(place)
            state().syncs.clear()
            loss = F.nll_loss(x, y)
            loss.backward()
            assert state().syncs == []
            ends.append([loss.item(), x.grad.cpu().numpy()])
    for one, other in zip(*ends, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert np.isnan(ends[0][0]) == (len(ignored) == 4)


def step(model, optimizer, x, y, scale=lambda loss: loss):
    """One step but for the optimizer's."""
    optimizer.zero_grad()
    scale(F.cross_entropy(model(x), y)).backward()


def test_optimizers():
    """No optimizer waits but LBFGS, which searches with Python's numbers, and one whose learning rate is on the GPU."""
    with installed():
        x, y = numbers(7, 6).cuda(), integers(3, 7).cuda()

        def waits(make):
            model = small_model().cuda()
            optimizer = make(model.parameters())
            for _ in range(2):
                step(model, optimizer, x, y)
                state().syncs.clear()
                optimizer.step(lambda: F.cross_entropy(model(x), y)) if make is optim.LBFGS else optimizer.step()
            return bool(state().syncs)

        assert [name for name, make in OPTIMIZERS.items() if waits(make)] == []
        assert waits(optim.LBFGS)
        assert waits(lambda params: optim.SGD(params, ddpflow.tensor(0.1).cuda()))


def test_grad_scaler():
    """Scaling and unscaling go on; whether to step is asked, once."""
    with installed():
        model, x, y = small_model().cuda(), numbers(7, 6).cuda(), integers(3, 7).cuda()
        optimizer, scaler = optim.SGD(model.parameters(), 0.1), ddpflow.amp.GradScaler("cuda")
        step(model, optimizer, x, y, scaler.scale)
        state().syncs.clear()
        step(model, optimizer, x, y, scaler.scale)
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        assert state().syncs == []
        scaler.step(optimizer)
        scaler.update()
        assert len(state().syncs) == 1


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.item(),
        lambda x: x.tolist(),
        lambda x: print(x),
        lambda x: bool(x),
        lambda x: float(x),
        lambda x: x.cpu(),
        lambda x: x.to("cpu"),
        lambda x: ddpflow.normal(0.0, x),
        lambda x: x.reshape(1).masked_select(ddpflow.tensor([True]).cuda()),
        lambda x: nn.utils.clip_grad_norm_([x], 1.0, error_if_nonfinite=True),
        lambda x: cuda.synchronize(),
        lambda x: cuda.current_stream().synchronize(),
        lambda x: ddpflow.ones(2).pin_memory().cuda(),
    ],
)
def test_what_reads_a_value(read):
    """Each of these waits; what is needed before does not."""
    with installed():
        x = ddpflow.tensor(2.0).cuda()
        x.requires_grad_().grad = x.detach() + 1
        x = x if "clip" in str(read.__code__.co_names) else x.detach()
        assert state().syncs == []
        read(x)
        assert state().syncs != []


def data_parallel(rank, options, convert, extra):
    """What a step of a data-parallel model makes the host wait for, after two first ones."""
    ddpflow.manual_seed(5)
    model = convert(small_model()).cuda()
    ddp = DistributedDataParallel(model, **options)
    optimizer = optim.SGD(ddp.parameters(), 0.1)
    x, y = numbers(7, 6, seed=rank).cuda(), integers(3, 7).cuda()
    for _ in range(3):
        dist.barrier()
        state().syncs.clear()
        dist.barrier()
        barriers = len(state().syncs)
        state().syncs.clear()
        step(ddp, optimizer, x, y)
        extra(ddp)
        optimizer.step()
        found = len(state().syncs)
        dist.barrier()
    return found, barriers


@pytest.mark.parametrize(
    ("options", "convert", "extra", "waits"),
    [
        ({}, lambda m: m, lambda ddp: None, False),
        ({"bucket_cap_mb": 1e-4, "static_graph": True}, lambda m: m, lambda ddp: None, False),
        ({"unused": "none"}, lambda m: m, lambda ddp: None, True),
        ({"detect_nonfinite": True}, lambda m: m, lambda ddp: None, True),
        ({}, nn.SyncBatchNorm.convert_sync_batchnorm, lambda ddp: None, True),
        ({}, lambda m: m, lambda ddp: dist.broadcast_object_list([ddp._reducer.rounds]), True),
        ({}, lambda m: m, lambda ddp: dist.all_reduce(np.ones(1)), True),
    ],
    ids=["plain", "buckets", "unused", "nonfinite", "sync batch norm", "objects", "NumPy"],
)
def test_data_parallel(options, convert, extra, waits):
    """A step waits only for options that ask values, and for collectives of NumPy arrays."""
    for found, _ in run_gpu_ranks(data_parallel, 2, "nccl_threads", args=(options, convert, extra)):
        assert bool(found) is waits
