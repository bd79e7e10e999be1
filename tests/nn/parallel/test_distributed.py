"""DistributedDataParallel: averages, order, unused parameters, buffers, changes of the model, life cycle."""

import copy
import pickle
import warnings

import numpy as np
import pytest

from ddpflow.autograd import engine
from ddpflow.autograd.mode import no_grad
from ddpflow.autograd.tensor import Tensor
from ddpflow.comm.subgroups import new_group
from ddpflow.comm.world import current_group
from ddpflow.errors import AutogradError, CommError, DtypeError, MismatchError, ModelError, ValueRangeError
from ddpflow.nn.module import Module
from ddpflow.nn.parallel.distributed import DistributedDataParallel as DDP
from ddpflow.nn.parameter import Parameter
from ddpflow.testing import run_ranks
from tests.nn.parallel.models import Weights, grads, tensor, total


@pytest.fixture(params=["thread", "shm"])
def world(request):
    """A function that runs a rank function on n ranks, as threads and as processes."""

    def run(fn, n=2, *args, **options):
        return run_ranks(fn, n, request.param, args=args, **options)

    return run


# --- the values that the first DDP of this design was tested with -----------------------------------------------------


def _basic(rank):
    ddp = DDP(Weights([1.0, 1.0]))
    found = []
    for _ in range(2):
        total(ddp(tensor([rank + 1.0, rank + 1.0]))).backward()
        found.append(ddp.module.w0.grad.tolist())
    return found


def test_gradients_are_means_and_accumulate(world):
    """Ranks with inputs 1 and 2 both hold 1.5, and 3 after a second backward."""
    assert world(_basic) == [[[1.5, 1.5], [3.0, 3.0]]] * 2


def _unused(rank, mode):
    ddp = DDP(Weights(1.0, 2.0, 3.0), unused=mode)
    x = tensor(1.0 if rank == 0 else 3.0)
    total(ddp(x, use=[0, 1] if rank == 0 else [0])).backward()
    return grads(ddp.module)


@pytest.mark.filterwarnings("ignore:.*received no gradient")
@pytest.mark.parametrize(("mode", "never"), [("zero", 0.0), ("none", None)])
def test_a_parameter_that_one_rank_used_is_averaged_over_all(world, mode, never):
    """Used on all ranks: the mean; on one: its half; on none: zero, or None where that was asked for."""
    assert world(_unused, 2, mode) == [{"w0": 2.0, "w1": 0.5, "w2": never}] * 2


def _out_of_order(rank, frozen):
    ddp = DDP(Weights(1.0, 2.0, 3.0, frozen=frozen), bucket_cap_mb=1e-6)
    w1, w2, w3 = ddp.module.w0, ddp.module.w1, ddp.module.w2
    x = tensor(1.0)
    y = x * w1 * w2 * w3 if rank == 0 else x * w3 * w2 * w1
    total(y * (rank + 1.0)).backward()
    return grads(ddp.module)


@pytest.mark.parametrize("frozen", [(), (0,)])
def test_ranks_may_use_parameters_in_another_order(world, frozen):
    """The launch order does not depend on the order of use, nor on frozen parameters before the others."""
    expected = {"w0": None if frozen else 9.0, "w1": 4.5, "w2": 3.0}
    assert world(_out_of_order, 2, frozen) == [expected] * 2


def _ten_parameters(rank, cap):
    ddp = DDP(Weights(*[float(1 + i % 2) for i in range(10)]), bucket_cap_mb=cap)
    y = tensor(rank + 1.0)
    for p in ddp.module.parameters():
        y = y * p
    total(y).backward()
    return list(grads(ddp.module).values())


@pytest.mark.parametrize("cap", [None, 1e-6, 24 * 8 / 2**20])
def test_products_of_ten_parameters_in_buckets(world, cap):
    """Parameters 1, 2, 1, 2, ...: gradients 48 and 24, whatever the buckets."""
    assert world(_ten_parameters, 2, cap) == [[48.0, 24.0] * 5] * 2


class Remember(Module):
    """Returns buffer + x and keeps x in the buffer."""

    def __init__(self, values):
        super().__init__()
        self.register_buffer("last", tensor(values))
        self.w = Parameter(tensor(1.0))

    def forward(self, x):
        """Returns the buffer plus x (and w, times zero)."""
        out = self.last + x + self.w * 0.0
        self.last = Tensor(x.array.copy())
        return out


def _buffers(rank, broadcast):
    ddp = DDP(Remember(np.array([1.0, 2.0]) * (rank + 1)), broadcast_buffers=broadcast, init_sync=False)
    x = tensor([2.0, 3.0]) * (rank + 1.0)
    found = []
    for _ in range(2):
        y = ddp(x)
        found.append(y.tolist())
        total(y).backward()
    return found


@pytest.mark.parametrize("broadcast", [True, False])
def test_buffers_are_the_first_ranks_in_each_training_step(world, broadcast):
    """With broadcasting rank 1 computes on rank 0's buffers, without on its own."""
    rank0 = [[3.0, 5.0], [4.0, 6.0]]
    rank1 = [[5.0, 8.0], [6.0, 9.0]] if broadcast else [[6.0, 10.0], [8.0, 12.0]]
    assert world(_buffers, 2, broadcast) == [rank0, rank1]


class Nested(Module):
    """Returns nested containers with floating and integer tensors."""

    def __init__(self):
        super().__init__()
        self.w = Parameter(tensor(2.0))
        self.spare = Parameter(tensor(1.0))

    def forward(self, x, y):
        """Returns ``([w * x, y + 1], {"z": y + 2})``."""
        return [self.w * x, y + 1], {"z": y + 2}


def _nested(rank):
    ddp = DDP(Nested())
    found = []
    for y in (Tensor(np.array([1, 2])), tensor([1.5], np.float32), tensor([2.5]).requires_grad_()):
        for _ in range(2):  # the second time the spare parameter is tied to the outputs
            (a, b), d = ddp(tensor(rank + 1.0), y)
            a.backward()
        found.append((type(d), b.tolist(), d["z"].tolist(), b.dtype.name, b.requires_grad, d["z"].requires_grad))
    return found, grads(ddp.module)


@pytest.mark.filterwarnings("ignore:.*received no gradient")
def test_nested_outputs_keep_structure_dtype_and_requires_grad(world):
    """Lists and dicts come out as they went in; integers pass; each leaf's requires_grad is its own."""
    found, gradients = world(_nested)[1]
    assert found == [
        (dict, [2, 3], [3, 4], "int64", False, False),
        (dict, [2.5], [3.5], "float32", False, False),
        (dict, [3.5], [4.5], "float64", True, True),
    ]
    assert gradients == {"w": 9.0, "spare": 0.0}


# --- the group --------------------------------------------------------------------------------------------------------


def _subgroup(rank):
    group = new_group([1, 3])
    module = Weights(2.0)
    if rank in (1, 3):
        ddp = DDP(module, process_group=group)
        total(ddp(tensor(rank + 1.0))).backward()
        return module.w0.grad.item()
    total(module(tensor(rank + 1.0))).backward()
    return module.w0.grad.item()


def test_the_groups_size_divides(world):
    """Ranks 1 and 3 of 4 hold the mean of 2 and 4; ranks 0 and 2 keep their own."""
    assert world(_subgroup, 4) == [1.0, 3.0, 3.0, 3.0]


def _mean_of_four(rank):
    ddp = DDP(Weights(1.0))
    total(ddp(tensor(rank + 1.0))).backward()
    return ddp.module.w0.grad.item(), repr(ddp)


def test_four_ranks_and_the_divisor_in_the_repr(world):
    """The mean of 1, 2, 3, 4; the repr says that it is one, over how many."""
    for value, text in world(_mean_of_four, 4):
        assert value == 2.5
        assert "mean over 4 ranks, 1 bucket" in text


def test_a_world_of_one_is_the_plain_module():
    """Without a launcher there are no hooks, no buckets, and the gradients are the local ones."""
    module = Weights(3.0, 4.0)
    ddp = DDP(module)
    total(ddp(tensor(5.0))).backward()
    assert grads(module) == {"w0": 5.0, "w1": 5.0}
    assert "one rank" in repr(ddp)
    with ddp.no_sync():
        total(ddp(tensor(1.0))).backward()
    ddp.sync_gradients()
    assert grads(module) == {"w0": 6.0, "w1": 6.0}


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


# --- construction -----------------------------------------------------------------------------------------------------


def _different_start(rank):
    module = Remember([1.0 + rank, 2.0])
    module.w.array[...] = 5.0 + rank
    module.extra = Parameter(tensor(np.arange(6).reshape(2, 3) + 100 * rank, np.float32), requires_grad=False)
    ddp = DDP(module)
    return ddp.w.item(), ddp.extra.tolist(), ddp.last.tolist(), ddp.w.requires_grad, ddp.extra.requires_grad


def test_all_ranks_start_with_the_first_ranks_values(world):
    """Parameters, frozen ones and buffers are rank 0's on all ranks; requires_grad stays."""
    expected = (5.0, [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], [1.0, 2.0], True, False)
    assert world(_different_start, 3) == [expected] * 3


def _different_models(rank, case):
    module = Weights([1.0, 2.0], [3.0])
    if rank == 1:
        if case == "shape":
            module.w1 = Parameter(tensor([3.0, 4.0]))
        elif case == "dtype":
            module.w1 = Parameter(tensor([3.0], np.float32))
        elif case == "name":
            module = Module()
            module.w0 = Parameter(tensor([1.0, 2.0]))
            module.other = Parameter(tensor([3.0]))
        elif case == "order":
            module = Module()
            module.w1 = Parameter(tensor([3.0]))
            module.w0 = Parameter(tensor([1.0, 2.0]))
        elif case == "frozen":
            module.w1.requires_grad_(False)
        elif case == "more":
            module.w2 = Parameter(tensor(1.0))
        elif case == "tied":
            module.w1 = module.w0
        elif case == "buffer":
            module.register_buffer("b", tensor(1.0))
    DDP(module)


@pytest.mark.parametrize(
    ("case", "texts"),
    [
        ("shape", ["w1: shape (1,), float64", "w1: shape (2,), float64"]),
        ("dtype", ["w1: shape (1,), float64", "w1: shape (1,), float32"]),
        ("name", ["w1: shape", "other: shape"]),
        ("order", ["w0: shape (2,)", "w1: shape (1,)"]),
        ("frozen", ["requires_grad=True", "requires_grad=False"]),
        ("more", ["nothing (it has 2", "w2: shape ()"]),
        ("tied", ["w1: shape (1,)", "the same as w0"]),
        ("buffer", ["nothing (it has 2", "buffer b"]),
    ],
)
def test_different_models_are_told_on_every_rank_with_both_sides(world, case, texts):
    """The first difference is shown with both ranks' text, the same on both."""
    errors = world(_different_models, 2, case, return_exceptions=True)
    for error in errors:
        assert isinstance(error, MismatchError)
        for text in texts:
            assert text in str(error)


def _bad_model(rank, case):
    module = Weights(1.0, 2.0)
    if case == "frozen on one" and rank == 1:
        module.requires_grad_(False)
    elif case == "frozen":
        module.requires_grad_(False)
    elif case == "wrapped twice":
        module.inner = DDP(Weights(1.0))
    DDP(module)


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("frozen", "no parameter of the model requires grad"),
        ("frozen on one", "rank 1: no parameter"),
        ("wrapped twice", "inner"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused_on_every_rank(world, case, text):
    """A problem of one rank's model is raised on all ranks, with that rank's number."""
    for error in world(_bad_model, 2, case, return_exceptions=True):
        assert isinstance(error, ModelError) and isinstance(error, ValueError)
        assert text in str(error)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"bucket_cap_mb": 0}, ValueRangeError, "bucket_cap_mb"),
        ({"first_bucket_mb": -1}, ValueRangeError, "first_bucket_mb"),
        ({"unused": "ones"}, ValueRangeError, "unused='ones'"),
        ({"device_ids": [0, 1]}, ValueRangeError, "device_ids"),
    ],
)
def test_bad_options_are_named(options, error, text):
    """Each option that makes no sense is named."""
    with pytest.raises(error, match=text):
        DDP(Weights(1.0), **options)


def test_only_modules_are_wrapped():
    """Something else than a module is a TypeError."""
    with pytest.raises(DtypeError, match="wraps an nn.Module"):
        DDP(tensor(1.0))


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


# --- life cycle -------------------------------------------------------------------------------------------------------


def _copies(rank, way):
    module = Weights(2.0)
    ddp = DDP(module, bucket_cap_mb=3)
    before = current_group().seq
    other = copy.deepcopy(ddp) if way == "deepcopy" else pickle.loads(pickle.dumps(ddp))
    silent = current_group().seq == before
    total(other(tensor(rank + 1.0))).backward()
    return silent, other.module.w0.grad.item(), module.w0.grad is None, other.bucket_cap_mb


@pytest.mark.parametrize("way", ["deepcopy", "pickle"])
def test_copies_are_wrapped_alike_and_making_them_is_no_collective(world, way):
    """A deep copy and an unpickled copy average by themselves and share nothing with the first."""
    assert world(_copies, 2, way) == [(True, 1.5, True, 3)] * 2


class Attributes(Weights):
    """Has a plain attribute, a method and a property that fails inside."""

    hidden_size = 12

    def decode(self, x):
        """Returns w0 * x."""
        return self.w0 * x

    @property
    def broken(self):
        """Raises an AttributeError of its own."""
        return self.inner_thing


def test_attributes_are_read_through_with_honest_errors():
    """Attributes and methods of the wrapped module are there; errors name what is missing where."""
    ddp = DDP(Attributes(3.0))
    assert ddp.hidden_size == 12 and ddp.decode(tensor(2.0)).item() == 6.0
    with pytest.raises(AttributeError, match="inner_thing"):
        ddp.broken  # noqa: B018
    with pytest.raises(AttributeError, match="'DistributedDataParallel'.*'Attributes'.*'nothing_like_it'"):
        ddp.nothing_like_it  # noqa: B018


def test_state_dicts_have_plain_names_and_prefixed_ones_load():
    """A checkpoint is interchangeable between the wrapper, the module, and PyTorch's prefixed form."""
    ddp = DDP(Weights(1.0, 2.0))
    assert list(ddp.state_dict()) == ["w0", "w1"]
    ddp.load_state_dict({"module.w0": tensor(5.0), "module.w1": tensor(6.0)})
    plain = Weights(0.0, 0.0)
    plain.load_state_dict(ddp.state_dict())
    assert [p.item() for p in plain.parameters()] == [5.0, 6.0]
