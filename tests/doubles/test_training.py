"""Data-parallel training on the CuPy stand-in: results, order of streams, and what makes the host wait."""

import warnings

import numpy as np
import pytest

import ddpflow
import ddpflow.comm as dist
from ddpflow import nn, optim
from ddpflow.comm.work import ChainedWork
from ddpflow.errors import DeviceError
from ddpflow.nn import functional as F
from ddpflow.nn.parallel import DistributedDataParallel
from tests.doubles.fake_cupy import installed
from tests.doubles.timeline import state
from tests.doubles.worlds import ALONE, BOTH, run_gpu_ranks
from tests.gpu.bodies import OPTIMIZERS, TinyGPT, close, integers, numbers, on_host, small_model


def single_process(steps):
    """The CPU's training on the whole batch."""
    ddpflow.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))
    optimizer = optim.AdamW(model.parameters(), 0.01)
    x, y = numbers(8, 6), integers(3, 8)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return [p.detach().array for p in model.parameters()]


def sharded(rank, steps, options):
    """The same training with half of the batch on each GPU."""
    ddpflow.manual_seed(5 if rank == 0 else 99)  # the first rank's values count
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)).cuda()
    ddp = DistributedDataParallel(model, **options)
    optimizer = optim.AdamW(ddp.parameters(), 0.01)
    x, y = numbers(8, 6)[rank::2].cuda(), integers(3, 8)[rank::2].cuda()
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(ddp(x), y).backward()
        optimizer.step()
    for bucket in ddp._reducer.buckets:
        assert bucket.flat.device.id == rank
    ddp.check_consistency(optimizer)
    return [on_host(p.detach().array) for p in ddp.parameters()]


@pytest.mark.parametrize("backend", [BOTH, ALONE])
@pytest.mark.parametrize("options", [{}, {"bucket_cap_mb": 1e-4}, {"unused": "none"}, {"static_graph": True}], ids=str)
def test_two_gpus_do_as_one_process(backend, options):
    """Gradients of shards, averaged by NCCL in buckets on the devices, give the whole batch's weights."""
    ends = run_gpu_ranks(sharded, 2, backend, args=(3, options))
    for ours, theirs, single in zip(*ends, single_process(3), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        close(ours, single, 1e-4, "weights")


def test_features_of_ddp():
    """no_sync, unused parameters, buffers, weights, compression, batch statistics and ZeRO work on devices."""

    def body(rank):
        from ddpflow.nn import SyncBatchNorm
        from ddpflow.nn.parallel.compression import bf16_compress_hook, fp16_compress_hook

        ddpflow.manual_seed(5)
        ddp = DistributedDataParallel(small_model().cuda(), find_unused_parameters=True)
        x, y = numbers(7, 6, seed=rank).cuda(), integers(3, 7).cuda()
        with ddp.no_sync():
            F.cross_entropy(ddp(x), y).backward()
        F.cross_entropy(ddp(x), y).backward()
        with ddp.weighted(rank + 1.0):
            F.cross_entropy(ddp(x), y).backward()
        results = [p.grad.clone() for p in ddp.parameters()]
        for hook in (fp16_compress_hook, bf16_compress_hook):
            other = DistributedDataParallel(small_model().cuda())
            other.register_comm_hook(None, hook)
            F.cross_entropy(other(x), y).backward()
            results += [p.grad for p in other.parameters()]
        synced = DistributedDataParallel(SyncBatchNorm.convert_sync_batchnorm(small_model()).cuda())
        F.cross_entropy(synced(x), y).backward()
        results += [p.grad for p in synced.parameters()]
        sharded_state = optim.ZeroRedundancyOptimizer(synced.parameters(), optim.AdamW, lr=0.01)
        sharded_state.step()
        results += [p.detach() for p in synced.parameters()]
        return [on_host(r.array) for r in results]

    for ours, theirs in zip(*run_gpu_ranks(body, 2), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_compute_waits_only_at_the_end_of_backward(monkeypatch):
    """While backward runs, buckets are launched and the compute stream waits for none of them."""
    from ddpflow.comm.backends.nccl_work import NcclWork

    waits = []
    real = NcclWork.wait
    monkeypatch.setattr(NcclWork, "wait", lambda self, timeout=None: waits.append(self) or real(self, timeout))

    def body(rank):
        ddpflow.manual_seed(5)
        model = nn.Sequential(*[nn.Linear(6, 6) for _ in range(4)]).cuda()
        ddp = DistributedDataParallel(model, bucket_cap_mb=1e-4)
        x = numbers(8, 6, seed=rank).cuda()
        seen = []
        out = ddp(x).sum()
        dist.barrier()
        waits.clear()
        first = next(iter(model.parameters()))
        first.register_hook(lambda g: seen.append((len(ddp._reducer._works), len(waits))) or None)
        dist.barrier()
        waits.clear()
        out.backward()
        return seen, len(ddp._reducer.buckets)

    for ((launched, waited),), buckets in run_gpu_ranks(body, 2):
        assert launched >= buckets - 2 and buckets >= 4 and waited <= 2  # the two barriers' own


def test_hooks_run_on_the_communication_stream():
    """What a hook computes before and after its collectives runs beside backward, and the default stream waits once."""

    def body(rank):
        from ddpflow.nn.parallel.compression import bf16_compress_hook
        from ddpflow.nn.parallel.powersgd import PowerSGDState, powerSGD_hook

        def doubled(state, bucket):
            work = state.all_reduce(bucket.flat, async_op=True)
            return ChainedWork(work, lambda: bucket.set_buffer(bucket.flat * 2))

        streams, x = [], numbers(7, 6, seed=rank).cuda()
        low_rank = PowerSGDState(None, start_powerSGD_iter=0)
        for given, hook in ((None, bf16_compress_hook), (low_rank, powerSGD_hook), (None, doubled)):
            ddp = DistributedDataParallel(nn.Sequential(nn.Linear(6, 40), nn.Linear(40, 3)).cuda())
            ddp.register_comm_hook(given, hook)
            ddp(x).sum().backward()
            (bucket,) = ddp._reducer.buckets
            flats = [bucket.flat, *[copy.flat for copy in bucket._copies.values()]]
            flats += [a for arrays in (*low_rank._errors.values(), *low_rank._factors.values()) for a in arrays]
            streams.append({flat._memory.written[0] for flat in flats if flat is not None})
            bucket.flat + 1  # the default stream has waited
        (communicator,) = dist.current_group()._transport(x.array)._communicators.values()
        return [found == {communicator.stream} for found in streams]

    assert run_gpu_ranks(body, 2) == [[True, True, True]] * 2


MODELS = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)),
        lambda: numbers(4, 6),
        lambda: integers(3, 4),
    ),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)
        ),
        lambda: numbers(2, 3, 8, 8),
        lambda: integers(3, 2),
    ),
    "gpt": (TinyGPT, lambda: integers(11, 2, 6), lambda: integers(11, 2, 6)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["SGD momentum", "AdamW"])
def test_no_hidden_wait_in_a_training_step(name, kind):
    """Forward, backward, clipping and the optimizer's step launch work and never make the host wait."""
    with installed(), warnings.catch_warnings():
        model, inputs, targets = (part() for part in MODELS[name])
        model, x, y = model.cuda(), inputs.cuda(), targets.cuda()
        optimizer = OPTIMIZERS[kind](model.parameters())

        def step():
            optimizer.zero_grad()
            out = model(x)
            F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        step()
        state().syncs.clear()
        step()
        assert state().syncs == []


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_mixed_precision(dtype):
    """Autocast and GradScaler train on a device as on the CPU, within the half type's rounding."""
    ends = []
    with installed():
        for place in ("cpu", "cuda"):
            ddpflow.manual_seed(5)
            model = small_model().to(place)
            optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
            scaler = ddpflow.amp.GradScaler(place, init_scale=128.0)
            x, y = numbers(7, 6).to(place), integers(3, 7).to(place)
            for _ in range(3):
                optimizer.zero_grad()
                with ddpflow.autocast(place, getattr(ddpflow, dtype)):
                    out = model(x)
                    assert out.dtype == getattr(ddpflow, dtype)
                    loss = F.cross_entropy(out, y)
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                scaler.step(optimizer)
                scaler.update()
            ends.append([on_host(p.detach().array) for p in model.parameters()])
    for cpu, gpu in zip(*ends, strict=True):
        close(gpu, cpu, 3e-2, dtype)


def test_exchange_without_a_copy():
    """A tensor made of a CuPy array shares its memory, and hands it out as an array interface."""
    with installed():
        import cupy

        array = cupy.arange(4, dtype=np.float32)
        tensor = ddpflow.as_tensor(array)
        tensor += 1
        assert array.get().tolist() == [1, 2, 3, 4]
        assert tensor.__cuda_array_interface__["data"] == array.__cuda_array_interface__["data"]
        with pytest.raises(DeviceError, match="call cpu"):
            tensor.numpy()
        assert tensor.cpu().numpy().tolist() == [1, 2, 3, 4]


def test_checkpoints_move_between_devices(tmp_path):
    """What was saved on a device loads on the CPU, and the other way round."""
    with installed():
        model = small_model().cuda()
        ddpflow.save(model.state_dict(), tmp_path / "model")
        on_cpu = small_model()
        on_cpu.load_state_dict(ddpflow.load(tmp_path / "model", map_location="cpu"))
        ddpflow.save(on_cpu.state_dict(), tmp_path / "back")
        model.load_state_dict(ddpflow.load(tmp_path / "back"))
        for a, b in zip(model.parameters(), on_cpu.parameters(), strict=True):
            assert a.is_cuda and not b.is_cuda
            np.testing.assert_array_equal(on_host(a.detach().array), b.detach().array)


@pytest.mark.parametrize("backend", [BOTH, ALONE])
def test_uneven_work(backend):
    """Inside join() a rank that has finished answers the others' collectives on the device."""

    def body(rank):
        ddpflow.manual_seed(5)
        ddp = DistributedDataParallel(small_model().cuda())
        optimizer = optim.SGD(ddp.parameters(), 0.1)
        with ddp.join():
            for k in range(2 + 2 * rank):
                optimizer.zero_grad()
                F.cross_entropy(ddp(numbers(7, 6, seed=k).cuda()), integers(3, 7).cuda()).backward()
                optimizer.step()
        return [on_host(p.detach().array) for p in ddp.parameters()]

    for ours, theirs in zip(*run_gpu_ranks(body, 2, backend), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_more_of_ddp():
    """PowerSGD, mixed precision, averaged parameters, optimizer state and differentiable collectives on devices."""

    def body(rank):
        from ddpflow.nn.parallel import collectives
        from ddpflow.nn.parallel.mixed_precision import MixedPrecision
        from ddpflow.nn.parallel.powersgd import PowerSGDState, powerSGD_hook

        ddpflow.manual_seed(5)
        x, y = numbers(7, 6, seed=rank).cuda(), integers(3, 7).cuda()
        results = []
        ddp = DistributedDataParallel(nn.Sequential(nn.Linear(6, 40), nn.Linear(40, 3)).cuda())
        ddp.register_comm_hook(PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2), powerSGD_hook)
        optimizer = optim.Adam(ddp.parameters(), 0.01 * (rank + 1))
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(ddp(x), y).backward()
            results = [p.grad.clone() for p in ddp.parameters()]
            optimizer.step()
        optim.average_parameters(ddp.parameters())
        optim.broadcast_optimizer_state(optimizer)
        results += [p.detach() for p in ddp.parameters()]
        results += [optimizer.state[p]["exp_avg"] for p in ddp.parameters()]
        low = DistributedDataParallel(
            small_model().cuda(), mixed_precision=MixedPrecision(param_dtype=ddpflow.bfloat16)
        )
        F.cross_entropy(low(x), y).backward()
        results += [p.grad for p in low.parameters()]
        z = ddpflow.full((2, 3), rank + 1.0, device="cuda").requires_grad_()
        (
            collectives.all_reduce(z).sum() + collectives.all_gather(z).sum() + collectives.broadcast(z, 0).sum()
        ).backward()
        own = z.grad
        dist.all_reduce(own)
        return [on_host(r.array) for r in [*results, own]]

    for ours, theirs in zip(*run_gpu_ranks(body, 2), strict=True):
        np.testing.assert_array_equal(ours, theirs)
