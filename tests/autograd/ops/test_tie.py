"""Ties of results to parameters that had no part in them."""

import numpy as np
import pytest

import ddpflow as flow
from ddpflow.autograd import grad
from ddpflow.autograd.ops.tie import select_first


def test_the_first_argument_comes_back_and_the_others_get_zeros():
    """The memory is the same; hooks on the tied tensors fire, with a gradient of zeros in their shape and dtype."""
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    spare = [flow.ones(2, 3, requires_grad=True), flow.ones((), dtype=flow.float64, requires_grad=True)]
    fired = []
    for p in spare:
        p.register_post_accumulate_grad_hook(lambda p: fired.append(p.dtype))
    y = x * 2
    tied = select_first(y, *spare)
    assert tied.array is y.array
    tied.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
    assert [p.grad.tolist() for p in spare] == [[[0.0] * 3] * 2, 0.0]
    assert fired == [flow.float32, flow.float64]


def test_a_tied_tensor_that_is_also_used_gets_its_own_gradient():
    """Zeros add nothing, whichever arrives first; an existing gradient is kept."""
    w = flow.tensor([3.0], requires_grad=True)
    select_first(w * w, w).sum().backward()
    assert w.grad.tolist() == [6.0]
    other = flow.tensor([1.0], requires_grad=True)
    select_first(other * 1.0, w).sum().backward()
    assert w.grad.tolist() == [6.0]


def test_the_tie_is_a_view():
    """A write to the tied tensor is a write to the first argument, for the graph too."""
    x = flow.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1.0
    tied = select_first(y, flow.ones(1, requires_grad=True))
    tied.mul_(5.0)
    y.sum().backward()
    assert x.grad.tolist() == [5.0, 5.0]


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_of_gradients(create_graph):
    """The tie passes through, and the zeros are real tensors."""
    x, s = (
        flow.tensor([2.0], dtype=flow.float64, requires_grad=True),
        flow.ones(2, dtype=flow.float64, requires_grad=True),
    )
    g, z = grad(select_first(x * x * x, s).sum(), [x, s], create_graph=create_graph)
    np.testing.assert_allclose(g.tolist(), [12.0])
    assert z.tolist() == [0.0, 0.0]
    if create_graph:
        (h,) = grad(g.sum(), [x])
        np.testing.assert_allclose(h.tolist(), [12.0])
