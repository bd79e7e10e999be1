"""DistributedDataParallel: averages, groups, construction, life cycle."""

import copy
import pickle
import threading

import numpy as np
import pytest

import ddpflow.comm as dist
from ddpflow.autograd.tensor import Tensor
from ddpflow.comm.subgroups import new_group
from ddpflow.comm.world import current_group
from ddpflow.errors import DtypeError, MismatchError, ModelError, ValueRangeError
from ddpflow.nn.module import Module
from ddpflow.nn.parallel.distributed import DistributedDataParallel as DDP
from ddpflow.nn.parameter import Parameter
from tests.nn.parallel.models import Remember, Weights, grads, tensor, total

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


def _all_reduce(rank, in_thread):
    x = tensor([1.0, 2.0]) * (rank + 1.0) if dist.get_world_size() == 4 else tensor([[1.0, 2.0], [3.0, 4.0]][rank])

    def call():
        dist.all_reduce(x, group=group)

    group = current_group()
    if in_thread:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    else:
        call()
    return x.tolist()


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize(("size", "expected"), [(2, [4.0, 6.0]), (4, [10.0, 20.0])])
def test_the_sums_of_all_ranks_keep_every_element(world, size, expected, in_thread):
    """All elements are summed, not just the first; a collective may come from a second thread."""
    assert world(_all_reduce, size, in_thread) == [expected] * size


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
