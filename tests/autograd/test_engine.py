"""The backward pass: order, accumulation, hooks, callbacks, freeing, errors."""
# ruff: noqa: D102 (the methods of a Function are its two formulas)

import gc
import weakref

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import Function, backward, grad
from ddpflow.autograd.base import meta_of
from ddpflow.autograd.ops.tie import select_first
from ddpflow.autograd.passes import outermost_pass
from ddpflow.errors import AutogradError, ShapeError
from ddpflow.factories import tensor


def leaf(*values, dtype=None):
    """A leaf that collects a gradient."""
    return tensor(list(values), requires_grad=True, dtype=dtype)


class Noted(Function):
    """Identity that notes its name when its backward runs."""

    @staticmethod
    def forward(ctx, x, name, notes):
        ctx.note = lambda: notes.append(name)
        return x * 1

    @staticmethod
    def backward(ctx, g):
        ctx.note()
        return g, None, None


def test_a_chain_of_100000_operations_works():
    """Backward is no recursion: the depth of the graph is not limited, nor is freeing it."""
    x = leaf(1.0, 2.0)
    y = x
    for _ in range(100_000):
        y = y + 1.0
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    del y


def test_ready_nodes_run_newest_first():
    """Of the nodes that could run, the one made last runs first, whatever the order in which they are combined."""
    notes = []
    x = leaf(1.0)
    a = Noted.apply(x, "a", notes)
    b = Noted.apply(x, "b", notes)
    c = Noted.apply(a, "c", notes)
    d = Noted.apply(x, "d", notes)
    (b + d + c + a).backward()
    assert notes == ["d", "c", "b", "a"]


def test_a_leaf_is_finished_once_after_its_last_use():
    """A leaf used three times gets one sum, and its hooks run once with it."""
    x = leaf(2.0)
    seen = []
    x.register_hook(lambda g: seen.append(g.tolist()))
    x.register_post_accumulate_grad_hook(lambda p: seen.append(("grad", p.grad.tolist())))
    (x * 3 + x * x + x).sum().backward()
    assert seen == [[8.0], ("grad", [8.0])]


def test_gradients_add_up_over_backwards():
    """A second backward adds to grad in place of the same tensor."""
    x = leaf(1.0, 2.0)
    (x * 2).sum().backward()
    first = x.grad
    (x * 3).sum().backward()
    assert x.grad is first
    assert x.grad.tolist() == [5.0, 5.0]


def test_gradients_do_not_alias():
    """Add hands one array to both inputs; their grads are two arrays all the same, and not the given gradient."""
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    seed = tensor([10.0, 20.0])
    (x + y).backward(seed)
    assert not np.shares_memory(x.grad.array, y.grad.array)
    assert not np.shares_memory(x.grad.array, seed.array)
    x.grad.array[0] = 77.0
    assert y.grad.tolist() == [10.0, 20.0] == seed.tolist()


def test_a_sum_of_gradients_does_not_write_to_one_of_them():
    """Adding up what arrives at a shared result leaves the arrays of others alone."""
    x, y = leaf(1.0, 2.0), leaf(1.0, 1.0)
    shared = x * 1
    seed = tensor([1.0, 1.0])
    total = (shared + y) + (shared + y) + shared
    total.backward(seed)
    assert x.grad.tolist() == [3.0, 3.0]
    assert y.grad.tolist() == [2.0, 2.0]
    assert seed.tolist() == [1.0, 1.0]


def test_hooks_of_a_result_see_and_replace_its_gradient():
    """A hook on a result runs once, with the whole gradient; what it returns goes on."""
    x = leaf(1.0, 2.0)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    (y * 3 + y).sum().backward()
    assert seen == [[4.0, 4.0]]
    assert x.grad.tolist() == [80.0, 80.0]


def test_a_leaf_hook_may_replace_the_gradient():
    """What a leaf's hook returns is what is added to grad; None leaves it."""
    x = leaf(1.0, 2.0)
    x.register_hook(lambda g: None)
    x.register_hook(lambda g: g * 0.5)
    (x * 4).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_handles_remove_hooks():
    """A removed hook runs no more; removing twice is harmless; a handle is a context manager."""
    x = leaf(1.0)
    calls = []
    first = x.register_hook(lambda g: calls.append("hook"))
    second = x.register_post_accumulate_grad_hook(lambda p: calls.append("post"))
    with x.register_hook(lambda g: calls.append("inside")):
        (x * 1).backward()
    first.remove()
    first.remove()
    (x * 1).backward()
    second.remove()
    (x * 1).backward()
    assert calls == ["hook", "inside", "post", "post"]


def test_an_exception_in_a_hook_leaves_the_engine_usable():
    """A hook's exception ends that pass and is raised; the next pass is a new one."""
    x = leaf(1.0)
    handle = x.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        (x * 1).backward()
    assert outermost_pass() is None
    handle.remove()
    (x * 1).backward()
    assert x.grad.tolist() == [1.0]


def test_freed_graph():
    """A second backward says which operation's values are gone, and what the two remedies are."""
    x = leaf(1.0, 2.0)
    y = (x.exp()).sum()
    y.backward()
    with pytest.raises(AutogradError, match=r"retain_graph=True.*hidden state.*detach\(\)"):
        y.backward()


def test_retain_graph():
    """With retain_graph backward can run again, and adds the same once more."""
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4.0, 8.0]


def test_two_losses_share_a_graph():
    """A shared part works for a second loss when the first backward retained it."""
    x = leaf(1.0, 2.0)
    shared = x * x
    (shared * 3).sum().backward(retain_graph=True)
    (shared * 5).sum().backward()
    assert x.grad.tolist() == [16.0, 32.0]


def test_a_root_needs_one_element_or_a_gradient():
    """Backward on several elements needs a gradient of that shape; the error names both shapes and the remedy."""
    y = leaf(1.0, 2.0) * 2
    with pytest.raises(AutogradError, match=r"shape \(2,\).*loss\.mean\(\)"):
        y.backward()
    with pytest.raises(ShapeError, match=r"\(3,\).*\(2,\)"):
        y.backward(tensor([1.0, 1.0, 1.0]))


def test_a_root_without_graph():
    """Backward on what no gradient leads to says so."""
    with pytest.raises(AutogradError, match="does not require grad"):
        tensor([1.0]).backward()


def test_several_roots():
    """autograd.backward takes several tensors, each with its gradient, and walks the shared part once."""
    x = leaf(1.0, 2.0)
    y, z = x * 2, x * 3
    backward([y, z], [tensor([1.0, 1.0]), tensor([10.0, 10.0])])
    assert x.grad.tolist() == [32.0, 32.0]


def test_one_root_given_twice():
    """The same root twice counts twice."""
    x = leaf(3.0)
    y = x * 2
    backward([y, y])
    assert x.grad.tolist() == [4.0]


def test_a_leaf_as_root():
    """Backward on a leaf itself adds the gradient to it."""
    x = leaf(3.0)
    x.backward()
    assert x.grad.tolist() == [1.0]


def test_inputs_limits_where_gradients_go():
    """With inputs= only these leaves collect, and nothing else is visited."""
    x, w = leaf(1.0), leaf(2.0)
    (x * w).backward(inputs=[w])
    assert x.grad is None
    assert w.grad.tolist() == [1.0]


def test_grad_returns_and_touches_nothing():
    """autograd.grad gives gradients of leaves and of results, and sets no grad."""
    x = leaf(1.0, 2.0)
    y = x * x
    z = (y * 3).sum()
    gy, gx = grad(z, [y, x])
    assert gy.tolist() == [3.0, 3.0]
    assert gx.tolist() == [6.0, 12.0]
    assert x.grad is None


def test_grad_of_an_unused_input():
    """An unused input is an error, None with allow_unused, zeros with materialize_grads."""
    x, unused = leaf(1.0, 2.0), leaf(3.0)
    y = (x * 2).sum()
    with pytest.raises(AutogradError, match="input 1 .*allow_unused"):
        grad(y, [x, unused], retain_graph=True)
    assert grad(y, [x, unused], retain_graph=True, allow_unused=True)[1] is None
    assert grad(y, [x, unused], materialize_grads=True)[1].tolist() == [0.0]


def test_grad_of_what_needs_none():
    """An input that does not require grad is named by its number."""
    x = leaf(1.0)
    with pytest.raises(AutogradError, match="input 0 .*does not require grad"):
        grad(x * 2, [tensor([1.0])])


def test_grad_runs_no_hooks_that_belong_to_leaves_it_does_not_ask_for():
    """autograd.grad for one input leaves the post-accumulate hooks of all leaves alone."""
    x, w = leaf(1.0), leaf(2.0)
    calls = []
    for p in (x, w):
        p.register_post_accumulate_grad_hook(lambda p: calls.append(p))
    grad(x * w, [x])
    assert calls == []


def test_second_and_third_order():
    """create_graph makes gradients that can be differentiated: x**4 up to the third derivative."""
    x = leaf(2.0, dtype="float64")
    (first,) = grad((x**4).sum(), [x], create_graph=True)
    (second,) = grad(first.sum(), [x], create_graph=True)
    (third,) = grad(second.sum(), [x])
    assert (first.tolist(), second.tolist(), third.tolist()) == ([32.0], [48.0], [48.0])


def test_backward_with_create_graph_adds_recorded_gradients():
    """After backward(create_graph=True) the grad is itself a result that can be differentiated."""
    x = leaf(3.0)
    (x**3).sum().backward(create_graph=True)
    assert x.grad.requires_grad
    penalty = (x.grad**2).sum()
    (g,) = grad(penalty, [x])
    assert g.tolist() == [pytest.approx(2 * 27.0 * 18.0)]


def test_tied_leaves():
    """A weight used in two layers has one leaf: both parts add up, the hook runs once."""
    w = leaf(2.0, 3.0)
    calls = []
    w.register_post_accumulate_grad_hook(lambda p: calls.append(p.grad.tolist()))
    x = tensor([1.0, 1.0])
    ((x * w) * w).sum().backward()
    assert calls == [[4.0, 6.0]]


def test_broadcasting_is_undone():
    """A gradient has its input's shape: what was broadcast is summed."""
    bias = leaf(1.0, 2.0, 3.0)
    x = tensor(np.arange(12.0, dtype=np.float32).reshape(4, 3))
    (x + bias).sum().backward()
    assert bias.grad.tolist() == [4.0, 4.0, 4.0]


def test_each_leaf_keeps_its_dtype():
    """In a graph of mixed dtypes each gradient has its leaf's dtype."""
    leaves = [leaf(1.0, 2.0, dtype=name) for name in ("float16", "float32", "float64")]
    (leaves[0] * leaves[1] * leaves[2]).sum().backward()
    assert [x.grad.dtype for x in leaves] == [x.dtype for x in leaves]


@pytest.mark.parametrize("shared", [False, True])
def test_a_leaf_with_a_home_gets_its_gradient_there(shared):
    """A gradient is written into the home, whatever that held; a second one is added; zeros are written as well."""
    w, other = leaf(2.0, 3.0), leaf(4.0, 5.0)
    home = meta_of(w).home = tensor([7.0, 8.0])
    memory = home.array
    for expected in ([5.0, 6.0], [10.0, 12.0]):
        (w + other if shared else w * 1.0).backward(tensor([5.0, 6.0]))
        assert w.grad is home
        assert w.grad.array is memory
        assert w.grad.tolist() == expected
    if shared:
        assert other.grad.tolist() == [10.0, 12.0]
    w.grad = None
    assert grad((w * 3.0).sum(), w)[0].tolist() == [3.0, 3.0]
    assert memory.tolist() == [10.0, 12.0]
    select_first(other, w).sum().backward()
    assert w.grad is home
    assert memory.tolist() == [0.0, 0.0]


def test_a_graph_that_saved_the_values_in_a_home_notices_the_next_gradient():
    """What is written into a home counts as a change in place."""
    w, x = leaf(2.0, 3.0), leaf(4.0, 5.0)
    meta_of(w).home = tensor([0.0, 0.0])
    (w * 5.0).sum().backward()
    y = x * w.grad
    w.grad = None
    (w * 7.0).sum().backward()
    with pytest.raises(AutogradError, match="'mul'.*changed in place"):
        y.sum().backward()


def test_in_place_change_of_a_saved_value():
    """Backward refuses to use a value that was changed in place, and names op, shape and both versions."""
    x = leaf(1.0, 2.0)
    y = x.exp()
    y.bump_version()
    with pytest.raises(AutogradError, match=r"'exp'.*result.*shape \(2,\).*version 1, saved at version 0"):
        y.sum().backward()
    w = leaf(1.0, 2.0)
    z = x * w
    x.bump_version()
    with pytest.raises(AutogradError, match=r"'mul'.*input 0"):
        z.sum().backward()


def test_in_place_change_of_what_was_not_saved():
    """Add keeps no values, so changes of its inputs and its result do not matter."""
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    y = x + w
    x.bump_version()
    y.bump_version()
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_operand_that_is_a_number_first_and_a_tensor_later():
    """What a rule saves is found out per operand: a number the first time does not hide a tensor the next time."""
    x = leaf(1.0, 2.0)
    (x * 2.5).sum().backward()
    w = leaf(3.0, 4.0)
    y = x * w
    w.bump_version()
    with pytest.raises(AutogradError, match="'mul'.*input 1"):
        y.sum().backward()


def test_graphs_hold_no_cycles():
    """With the collector off, a graph and its arrays are gone as soon as the result is, used or not."""
    gc.collect()
    gc.disable()
    try:
        x = leaf(1.0, 2.0)
        used = ((x * 2).exp().relu() @ x).log()
        references = [weakref.ref(used), weakref.ref(used.node)]
        used.backward()
        del used
        assert [r() for r in references] == [None, None]
        dropped = (x.sigmoid() * x).sum()
        references = [weakref.ref(dropped), weakref.ref(dropped.node)]
        del dropped
        assert [r() for r in references] == [None, None]
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_saved_values_are_freed_as_nodes_finish():
    """When a leaf's hook runs, the values of the nodes that are done are no longer held."""
    x = leaf(1.0, 2.0)
    early = x * 2
    late = early.exp()
    watched = weakref.ref(late)
    loss = (late * late).sum()
    del late
    held = []
    x.register_hook(lambda g: held.append(watched() is None))
    loss.backward()
    assert held == [True]
    assert loss.node.args is None


def test_retain_grad_keeps_a_results_gradient():
    """retain_grad on a result puts its gradient in grad, added up over passes."""
    x = leaf(1.0, 2.0)
    y = x * 2
    y.retain_grad()
    (y * 3).sum().backward(retain_graph=True)
    assert y.grad.tolist() == [3.0, 3.0]
    (y * 3).sum().backward()
    assert y.grad.tolist() == [6.0, 6.0]


def test_warnings_of_numpy_do_not_come_through():
    """Infinities and NaN in forward and backward are silent, and NumPy's settings are as before."""
    before = np.geterr()
    x = leaf(0.0, -1.0)
    y = x.log() + 1 / x + x.sqrt()
    y.sum().backward()
    assert np.geterr() == before


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("use", ["add", "linear", "linear of three dimensions"])
def test_halves_that_were_broadcast_are_summed_in_float32(rng, name, use):
    """The gradient of a bias over 20,000 rows is the exact sum, rounded once."""
    if name == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="bfloat16 needs the extra bf16")
    dtype = getattr(ddpflow, name)
    g = ddpflow.from_numpy(rng.random((20000, 3)) / 8).to(dtype)
    x, weight = ddpflow.ones(20000, 3, dtype=dtype), ddpflow.ones(3, 3, dtype=dtype)
    bias = ddpflow.zeros(3, dtype=dtype).requires_grad_()
    if use == "add":
        (x + bias).backward(g)
    elif use == "linear":
        ddpflow.nn.functional.linear(x, weight, bias).backward(g)
    else:
        ddpflow.nn.functional.linear(x.reshape(4, 5000, 3), weight, bias).backward(g.reshape(4, 5000, 3))
    exact = ddpflow.from_numpy(g.to(ddpflow.float64).numpy().sum(0)).to(dtype).to(ddpflow.float64).numpy()
    np.testing.assert_allclose(
        bias.grad.to(ddpflow.float64).numpy(), exact, rtol=2**-7 if name == "bfloat16" else 2**-10
    )
