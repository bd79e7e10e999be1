"""DistributedDataParallel: which backward passes are averaged, accumulation, unused parameters, changes."""

import warnings

import numpy as np
import pytest

from ddpflow.autograd import engine
from ddpflow.autograd.mode import no_grad
from ddpflow.autograd.tensor import Tensor
from ddpflow.comm.world import current_group
from ddpflow.errors import AutogradError, CommError
from ddpflow.nn.module import Module
from ddpflow.nn.parallel.distributed import DistributedDataParallel as DDP
from ddpflow.nn.parameter import Parameter
from ddpflow.testing import run_ranks
from tests.nn.parallel.models import Remember, Weights, grads, tensor, total

# --- when hooks fire --------------------------------------------------------------------------------------------------


def _several_backwards(rank):
    module = Weights(2.0)
    ddp = DDP(module)
    x = tensor(rank + 1.0)
    y1, y2 = ddp(x), ddp(x * 10.0)
    total(y1).backward(retain_graph=True)
    first = module.w0.grad.item()
    total(y2).backward()
    total(y1).backward()
    return first, module.w0.grad.item()


def test_every_outermost_backward_is_a_round(world):
    """Two forwards, three backwards, one of them twice through a graph: the mean of all sums."""
    assert world(_several_backwards) == [(1.5, 18.0)] * 2


def _inner_module(rank):
    module = Weights(2.0)
    ddp = DDP(module)
    total(module(tensor(rank + 1.0))).backward()
    assert ddp.module is module
    return module.w0.grad.item()


def test_a_backward_from_the_inner_module_is_averaged(world):
    """Hooks arm themselves: whoever ran forward, the gradient is the mean."""
    assert world(_inner_module) == [1.5, 1.5]


def _discarded_forwards(rank):
    module = Weights(2.0)
    ddp = DDP(module)
    for _ in range(3):
        ddp(tensor(7.0))
    total(ddp(tensor(rank + 1.0))).backward()
    return module.w0.grad.item(), ddp._reducer.rounds


def test_forwards_without_backward_are_free(world):
    """Discarded outputs leave no trace."""
    assert world(_discarded_forwards) == [(1.5, 1)] * 2


def _local_grad(rank):
    module = Weights(2.0)
    ddp = DDP(module)
    y = total(ddp(tensor(rank + 1.0)))
    (g,) = engine.grad(y, [module.w0], retain_graph=True)
    rounds = ddp._reducer.rounds
    y.backward()
    return g.item(), rounds, module.w0.grad.item(), ddp._reducer.rounds


def test_autograd_grad_stays_local_and_starts_no_round(world):
    """autograd.grad gives the local gradient; the later backward is the one round."""
    assert world(_local_grad) == [(1.0, 0, 1.5, 1), (2.0, 0, 1.5, 1)]


def _failing_backward(rank):
    module = Weights(2.0, 3.0)
    ddp = DDP(module, bucket_cap_mb=1e-6)
    y = ddp(tensor(rank + 1.0))

    def fail(gradient):
        raise KeyError("user hook")

    handle = module.w0.register_hook(fail)
    with pytest.raises(KeyError):
        total(y).backward()
    handle.remove()
    module.zero_grad()
    for _ in range(2):
        total(ddp(tensor(rank + 1.0))).backward()
    return grads(module)


def test_a_backward_that_raised_on_all_ranks_leaves_nothing_behind(world):
    """After an exception in a user's hook the next backward starts a clean round."""
    assert world(_failing_backward) == [{"w0": 3.0, "w1": 3.0}] * 2


def _failing_under_way(rank):
    module = Weights(2.0, 3.0)
    ddp = DDP(module, bucket_cap_mb=1e-6)
    first = tensor(rank + 1.0).requires_grad_()

    def fail(gradient):
        raise KeyError("user hook")

    handle = first.register_hook(fail)  # when both buckets are under way
    with pytest.raises(KeyError):
        total(ddp(first)).backward()
    handle.remove()
    kept = [p.grad.array for p in module.parameters()]
    module.zero_grad()
    flats = [b.flat for b in ddp._reducer.buckets]
    with ddp.no_sync():  # which does not wait for what is under way
        total(ddp(tensor(5.0 * (rank + 1.0)))).backward()
    local = [p.grad.array for p in module.parameters()]
    apart = not any(np.shares_memory(a, b) for a in kept + local for b in flats)
    values = grads(module)
    total(ddp(tensor(rank + 1.0))).backward()
    return apart, values, grads(module)


def test_gradients_stay_away_from_buckets_that_a_failed_backward_left_under_way(world):
    """Until the next round took the buckets back, gradients lie elsewhere, also after zero_grad."""
    locals_ = [{"w0": 5.0, "w1": 5.0}, {"w0": 10.0, "w1": 10.0}]
    means = {"w0": 1.5 + 7.5, "w1": 1.5 + 7.5}
    assert world(_failing_under_way, 2) == [(True, local, means) for local in locals_]


def _user_hooks(rank):
    module = Weights(2.0)
    before = module.w0.register_hook(lambda g: g * 2.0)
    ddp = DDP(module)
    seen = []
    module.w0.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    total(ddp(tensor(rank + 1.0))).backward()
    first = module.w0.grad.item()
    before.remove()
    module.w0.register_hook(lambda g: g * 3.0)
    module.zero_grad()
    total(ddp(tensor(rank + 1.0))).backward()
    return first, module.w0.grad.item(), len(seen)


def test_user_hooks_change_the_local_gradient_before_the_mean(world):
    """Hooks registered before and after wrapping see and change the local gradient; removed ones do not."""
    assert world(_user_hooks) == [(3.0, 4.5, 2)] * 2


def _two_models(rank):
    a, b = Weights(1.0, 2.0), Weights(3.0, 4.0)
    da, db = DDP(a, bucket_cap_mb=1e-6), DDP(b, bucket_cap_mb=1e-6)
    for _ in range(5):
        a.zero_grad()
        b.zero_grad()
        x = tensor(rank + 1.0)
        loss = total(da(x)) + total(db(x * 10.0)) if rank == 0 else total(db(x * 10.0)) + total(da(x))
        loss.backward()
    return grads(a), grads(b)


def test_two_models_in_one_backward_in_different_order(world):
    """Two wrapped models whose graphs meet in one loss, in another order on each rank."""
    assert world(_two_models) == [({"w0": 1.5, "w1": 1.5}, {"w0": 15.0, "w1": 15.0})] * 2


# --- accumulation -----------------------------------------------------------------------------------------------------


def _accumulated(rank, way):
    module = Weights(1.0, 1.0)
    ddp = DDP(module)
    xs = [tensor((rank + 1.0) * 10.0**i) for i in range(4)]
    use = [[0], [0, 1], [0], [0]]
    if way == "last outside":
        with ddp.no_sync():
            for x, u in zip(xs[:3], use[:3], strict=True):
                total(ddp(x, u)).backward()
        total(ddp(xs[3], use[3])).backward()
    elif way == "flush":
        with ddp.no_sync():
            for x, u in zip(xs, use, strict=True):
                total(ddp(x, u)).backward()
        ddp.sync_gradients()
    elif way == "around backward":
        for i, (x, u) in enumerate(zip(xs, use, strict=True)):
            y = total(ddp(x, u))
            with ddp.no_sync(active=i < 3):
                y.backward()
    else:
        for x, u in zip(xs, use, strict=True):
            y = total(ddp(x, u))
            with ddp.accumulate(4):
                y.backward()
    return grads(module)


@pytest.mark.parametrize("way", ["last outside", "flush", "around backward", "accumulate"])
def test_the_whole_sum_is_averaged(world, way):
    """Four micro-batches of which three stay local: the mean of the sums, also of what only a local one touched."""
    assert world(_accumulated, 2, way) == [{"w0": 1.5 * 1111, "w1": 15.0}] * 2


def _torn_views(rank, way):
    module = Weights([1.0, 2.0])
    ddp = DDP(module)
    x = tensor([rank + 1.0, rank + 2.0])
    with ddp.no_sync():
        total(ddp(x)).backward()
    p = module.w0
    if way == "none":
        module.zero_grad()
    elif way == "zero":
        module.zero_grad(set_to_none=False)
    elif way == "assign":
        p.grad = p.grad * 0.0
    elif way == "in place":
        p.grad.array -= p.grad.array.copy()
    for _ in range(2):
        total(ddp(x)).backward()
    return p.grad.tolist(), p.grad.array.base is not None


@pytest.mark.parametrize("way", ["none", "zero", "assign", "in place"])
def test_gradients_are_views_again_whatever_was_done_to_them(world, way):
    """zero_grad of both kinds, assignment and in-place changes give the same result, in the bucket."""
    assert world(_torn_views, 2, way) == [([3.0, 5.0], True)] * 2


# --- unused parameters ------------------------------------------------------------------------------------------------


def _unused_error(rank):
    ddp = DDP(Weights(1.0, 2.0, 3.0), unused="error")
    with pytest.raises(AutogradError) as error:
        total(ddp(tensor(1.0), use=[0, 2])).backward()
    return str(error.value)


def test_unused_error_names_the_parameters_at_the_end_of_that_backward(world):
    """The first backward raises with the names that got no gradient, and not the others."""
    for rank, text in enumerate(world(_unused_error)):
        assert f"rank {rank}: w1 (1 of 3 parameters)" in text
        assert "w0" not in text and "w2" not in text


def _unused_warning(rank):
    ddp = DDP(Weights(1.0, 2.0))
    texts = []
    for _ in range(3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            total(ddp(tensor(rank + 1.0), use=[0])).backward()
        texts.append([str(w.message) for w in caught if w.category is UserWarning])
    return texts, grads(ddp.module)


def test_zeros_are_averaged_in_with_one_warning(world):
    """The default warns once, with the names; the tie to the outputs changes no value."""
    for texts, gradients in run_ranks(_unused_warning, 2, "shm"):
        assert len(texts[0]) == 1 and "w1 (1 of 2 parameters)" in texts[0][0]
        assert texts[1:] == [[], []]
        assert gradients == {"w0": 4.5, "w1": 0.0}


def _conditional(rank, mode):
    module = Weights(1.0, 2.0, 3.0)
    ddp = DDP(module, unused=mode, bucket_cap_mb=1e-6)
    found = []
    for step in range(6):
        module.zero_grad()
        use = [0, 1] if (step + rank) % 2 else [0, 2]
        total(ddp(tensor(rank + 1.0), use)).backward()
        found.append(list(grads(module).values()))
    return found


@pytest.mark.filterwarnings("ignore:.*received no gradient")
@pytest.mark.parametrize("mode", ["zero", "none"])
def test_branches_that_differ_from_rank_to_rank_and_step_to_step(world, mode):
    """Each rank uses another branch in each step: every gradient is the mean over both ranks."""
    even = [1.5, 1.0, 0.5]  # rank 0 uses w2 (1 / 2), rank 1 uses w1 (2 / 2)
    odd = [1.5, 0.5, 1.0]
    assert world(_conditional, 2, mode) == [[even, odd] * 3] * 2


# --- evaluation and changes -------------------------------------------------------------------------------------------


def _lone_evaluation(rank):
    ddp = DDP(Remember([1.0, 2.0]))
    total(ddp(tensor([1.0, 1.0]))).backward()
    before = current_group().seq
    if rank == 0:
        ddp.eval()
        for _ in range(5):
            ddp(tensor([2.0, 2.0]))
        with no_grad():
            ddp.train()
            ddp(tensor([2.0, 2.0]))
    silent = current_group().seq == before
    ddp.module.zero_grad()
    total(ddp(tensor([rank + 1.0, 1.0]))).backward()
    return silent, ddp.w.grad.item()


def test_evaluation_on_one_rank_alone_issues_no_collective(world):
    """Rank 0 evaluates alone, then both train on."""
    assert world(_lone_evaluation) == [(True, 0.0)] * 2


def _freezing(rank):
    module = Weights(1.0, 2.0)
    ddp = DDP(module)
    found = []
    for step in range(6):
        module.zero_grad()
        module.w0.requires_grad_(not 2 <= step < 4)
        total(ddp(tensor(rank + 1.0))).backward()
        found.append(list(grads(module).values()))
    return found


def test_freezing_and_unfreezing_on_all_ranks_is_followed(world):
    """A parameter that is frozen after two steps and thawed after four gets the mean when it is trained."""
    assert world(_freezing) == [[[1.5, 1.5]] * 2 + [[None, 1.5]] * 2 + [[1.5, 1.5]] * 2] * 2


def _replacing(rank):
    module = Weights(1.0, 2.0)
    ddp = DDP(module)
    total(ddp(tensor(rank + 1.0))).backward()
    module.w0 = Parameter(tensor([1.0, 1.0]))
    module.w2 = Parameter(tensor(3.0))
    module.zero_grad()
    total(ddp(tensor(rank + 1.0))).backward()
    return grads(module)


def test_a_replaced_and_an_added_parameter_are_picked_up(world):
    """Parameters that are new since wrapping are averaged from the next forward on."""
    assert world(_replacing) == [{"w0": [1.5, 1.5], "w1": 3.0, "w2": 3.0}] * 2


def _freezing_one(rank):
    module = Weights(1.0, 2.0)
    ddp = DDP(module)
    if rank == 0:
        module.w1.requires_grad_(False)
    total(ddp(tensor(1.0))).backward()


def test_a_change_on_one_rank_is_an_error_that_names_it(world):
    """Freezing on rank 0 only: rank 0's error names the parameter, nobody hangs."""
    errors = world(_freezing_one, 2, return_exceptions=True, group_timeout_s=5.0)
    assert all(isinstance(error, CommError) for error in errors)
    assert "w1 was frozen" in str(errors[0])


# --- weights and averaged buffers -------------------------------------------------------------------------------------


def _weighted(rank, weights):
    ddp = DDP(Weights(1.0))
    samples = [[1.0, 2.0, 3.0], [10.0]][rank]
    loss = (ddp.module.w0 * tensor(samples)).mean()
    loss.backward(retain_graph=True)
    plain = ddp.module.w0.grad.item()
    ddp.module.zero_grad()
    with ddp.weighted(weights[rank]):
        loss.backward()
    return plain, ddp.module.w0.grad.item()


def test_sample_weighted_averaging_is_the_mean_over_all_samples(world):
    """Means 2 and 10 over 3 and 1 samples: plain DDP gives 6, weighted 4; a rank of weight 0 does not count."""
    assert world(_weighted, 2, [3, 1]) == [(6.0, 4.0)] * 2
    assert world(_weighted, 2, [0, 1]) == [(6.0, 10.0)] * 2


@pytest.mark.parametrize(("weights", "text"), [([-1, -1], "must not be negative"), ([0, 0], "add up to 0")])
def test_impossible_weights_are_refused(world, weights, text):
    """On every rank."""
    for error in world(_weighted, 2, weights, return_exceptions=True):
        assert isinstance(error, ValueError) and text in str(error)


class _Counting(Module):
    """Has a floating and an integer buffer."""

    def __init__(self, start):
        super().__init__()
        self.w = Parameter(tensor(1.0))
        self.register_buffer("mean", tensor(start))
        self.register_buffer("count", Tensor(np.array(int(start))))

    def forward(self, x):
        """Returns w * x."""
        return self.w * x


def _averaged_buffers(rank):
    ddp = DDP(_Counting(2.0 * rank + 1.0), buffers="average", init_sync=False)
    total(ddp(tensor(1.0))).backward()
    return ddp.mean.item(), ddp.count.item()


def test_buffers_can_be_averaged(world):
    """Floating buffers 1 and 3 become 2; integer ones are the first rank's."""
    assert world(_averaged_buffers, 2) == [(2.0, 1)] * 2
