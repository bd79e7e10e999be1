"""Fingerprints of models and flat broadcasts."""

import tracemalloc

import numpy as np
import pytest

from ddpflow.autograd.tensor import Tensor
from ddpflow.comm.world import current_group
from ddpflow.errors import AutogradError, MismatchError, ModelError, ValueRangeError
from ddpflow.nn.module import Module
from ddpflow.nn.parallel import sync
from ddpflow.nn.parameter import Parameter
from ddpflow.testing import run_ranks
from tests.nn.parallel.models import Weights, tensor


def test_describe_has_a_line_for_everything_that_must_agree():
    """Names, shapes, dtypes, requires_grad, ties and buffers, in order of registration."""
    module = Module()
    module.b = Parameter(tensor(np.zeros((2, 3)), np.float32))
    module.a = Parameter(tensor(1.0), requires_grad=False)
    module.tied = module.b
    module.register_buffer("count", Tensor(np.array(0)))
    assert sync.describe(module) == [
        "b: shape (2, 3), float32, requires_grad=True",
        "a: shape (), float64, requires_grad=False",
        "tied: shape (2, 3), float32, requires_grad=True, the same as b",
        "buffer count: shape (), int64",
    ]


def _compare(rank, lines, problems):
    sync.compare_models(current_group(), lines[rank], problems[rank])


def test_the_first_difference_is_shown_with_both_sides():
    """Of three ranks the last differs in its second line: all say so, with the same text."""
    lines = [["a", "b", "c"], ["a", "b", "c"], ["a", "x", "y"]]
    texts = {str(e) for e in run_ranks(_compare, 3, args=(lines, [None] * 3), return_exceptions=True)}
    assert len(texts) == 1
    assert "entry 1 on rank 0 is [b], on rank 2 [x]" in texts.pop()


def test_a_problem_of_one_rank_is_raised_on_all():
    """Problems come before differences, with the rank that has them."""
    errors = run_ranks(_compare, 2, args=([["a"], ["b"]], [None, ModelError("nothing here")]), return_exceptions=True)
    assert all(isinstance(e, ModelError) and "rank 1: nothing here" in str(e) for e in errors)
    assert not any(isinstance(e, MismatchError) for e in errors)


def _broadcast(rank, chunk):
    before = sync.CHUNK_BYTES
    tensors = [
        tensor(np.arange(6).reshape(2, 3) + 10 * rank, np.float32),
        Tensor(np.array([1, 2, 3]) + rank),
        tensor(rank, np.float32),
        tensor(np.zeros((0, 2)), np.float32),
        tensor([5.0 + rank, 6.0], np.float64),
    ]
    strided = tensor(np.arange(12.0).reshape(3, 4) + rank).t()
    start = current_group().seq
    sync.CHUNK_BYTES = chunk
    try:
        sync.broadcast_tensors(current_group(), [*tensors, strided], "test")
    finally:
        sync.CHUNK_BYTES = before
    return [t.tolist() for t in [*tensors, strided]], current_group().seq - start


@pytest.mark.parametrize(("chunk", "collectives"), [(1 << 20, 3), (8, 5)])
def test_tensors_of_all_kinds_take_the_first_ranks_values(chunk, collectives):
    """One collective for each dtype, or as many as the chunks; shapes, strides and empty tensors survive."""
    results = run_ranks(_broadcast, 2, "shm", args=(chunk,))
    assert results[0][0] == results[1][0]
    assert results[0][0][:2] == [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], [1, 2, 3]]
    assert all(count == collectives for _, count in results)


def _old_graph(rank):
    buffer = tensor([2.0 + rank, 3.0])
    x = tensor([1.0, 1.0]).requires_grad_()
    y = (x * buffer).sum()
    sync.sync_buffers(current_group(), [buffer])
    y.backward()
    return x.grad.tolist(), buffer.tolist()


def test_a_graph_that_holds_old_buffers_stays_valid():
    """Buffers get new arrays: a graph made before the broadcast differentiates with the values it was made with."""
    assert run_ranks(_old_graph, 2) == [([2.0, 3.0], [2.0, 3.0]), ([3.0, 3.0], [2.0, 3.0])]


def test_many_parameters_need_few_collectives():
    """The first broadcast of 300 small parameters is one collective."""
    assert run_ranks(_many, 2) == [1, 1]


def _large(rank):
    weight = Tensor(np.arange(1 << 18, dtype=np.float32) + rank).requires_grad_()
    squares = (weight * weight).sum()
    tracemalloc.start()
    try:
        sync.broadcast_tensors(current_group(), [weight], "test")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    try:
        squares.backward()
        changed = False
    except AutogradError:
        changed = True
    return weight.array[[0, -1]].tolist(), peak < weight.nbytes // 4, changed


def test_a_large_tensor_is_received_where_it_lies():
    """No memory of its size is taken; on ranks whose values it replaces, a graph that saved those notices."""
    ends = [0.0, float((1 << 18) - 1)]
    assert run_ranks(_large, 2, "shm") == [(ends, True, False), (ends, True, True)]


def _many(rank):
    module = Weights(*[[1.0] * 10] * 300)
    start = current_group().seq
    sync.broadcast_tensors(current_group(), list(module.parameters()), "test")
    return current_group().seq - start


def _factor(rank, weights):
    return sync.weight_factor(current_group(), weights[rank])


def test_the_factors_of_weights():
    """Times the ranks' number, they are each weight's share of the sum; without any weight it is an error on all."""
    assert run_ranks(_factor, 3, args=([1.0, 0.0, 4.0],)) == [0.6, 0.0, 2.4]
    errors = run_ranks(_factor, 2, args=([0.0, 0.0],), return_exceptions=True)
    assert [type(e) for e in errors] == [ValueRangeError] * 2
