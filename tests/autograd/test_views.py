"""Views and in-place writes: what reaches the base, what the graph makes of it, what is refused."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import gradcheck, gradgradcheck
from ddpflow.errors import AutogradError, IndexRangeError, ShapeError


def values(*shape, start=0.3, dtype=np.float64):
    """A leaf with distinct values around 1 that wants a gradient."""
    count = int(np.prod(shape))
    numbers = (start + 0.37 * np.arange(1, count + 1)) % 2.1 + 0.2
    return ddpflow.Tensor(numbers.reshape(shape).astype(dtype), requires_grad=True)


VIEWS = {
    "number": lambda x: x[1],
    "slice": lambda x: x[1:, ::2],
    "new dimension": lambda x: x[None, :, 0],
    "reshape": lambda x: x.reshape(-1),
    "view": lambda x: x.view(2, 6),
    "transpose": lambda x: x.transpose(0, 1),
    "permute": lambda x: x.permute(1, 0),
    "T": lambda x: x.T,
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "diagonal": lambda x: x.diagonal(),
    "split": lambda x: x.split(2, 1)[1],
    "chunk": lambda x: x.chunk(2, 1)[0],
    "unbind": lambda x: x.unbind(0)[2],
    "iteration": lambda x: list(x)[0],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(0, -1),
    "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.unflatten(1, (2, 2)),
    "movedim": lambda x: x.movedim(0, 1),
    "a view of a view": lambda x: x[1:].T[1:3],
    "detach": lambda x: x.detach(),
}
GRAPH_VIEWS = {name: take for name, take in VIEWS.items() if name != "detach"}


@pytest.mark.parametrize("name", VIEWS)
def test_a_write_to_a_view_reaches_the_base(name):
    """A view shares the base's memory and version counter, both ways."""
    base = values(3, 4).detach()
    view = VIEWS[name](base)
    before = base._version
    view.fill_(7.0)
    assert (base.numpy() == 7.0).sum() == view.numel()
    assert base._version == view._version > before
    base.zero_()
    assert not view.numpy().any()
    assert base._version == view._version


@pytest.mark.parametrize("name", ["flip", "roll", "repeat", "contiguous of a view", "index", "mask", "clone", "tril"])
def test_copies_are_no_views(name):
    """What PyTorch copies is a copy here: a write to it leaves the source alone."""
    take = {
        "flip": lambda x: x.flip(0),
        "roll": lambda x: x.roll(1, 0),
        "repeat": lambda x: x.repeat(1, 1),
        "contiguous of a view": lambda x: x.T.contiguous(),
        "index": lambda x: x[[0, 1]],
        "mask": lambda x: x[x > 0],
        "clone": lambda x: x.clone(),
        "tril": lambda x: x.tril(),
    }[name]
    source = values(3, 4).detach()
    kept = source.numpy().copy()
    take(source).zero_()
    np.testing.assert_array_equal(source.numpy(), kept)


@pytest.mark.parametrize("name", GRAPH_VIEWS)
def test_gradients_through_a_write_to_a_view(name):
    """After ``view.mul_(y)`` the base's later use differentiates as if it had been made of both; so does the view's."""
    take = GRAPH_VIEWS[name]

    def function(x, w):
        base = x * 1.5
        view = take(base)
        view.mul_(take(w) + 0.5)
        other = take(base)
        return base * base + 0.1, view * view, other.exp()

    gradcheck(function, [values(3, 4), values(3, 4, start=0.9)])


@pytest.mark.parametrize("name", ["number", "slice", "transpose", "diagonal", "split", "unbind", "reshape"])
def test_second_order_through_a_write_to_a_view(name):
    """Gradients of gradients pass through writes too."""
    take = GRAPH_VIEWS[name]

    def function(x, w):
        base = x * x
        take(base).mul_(take(w))
        return base * base

    gradgradcheck(function, [values(3, 4), values(3, 4, start=0.9)])


WRITES = {
    "mul_": lambda y, w: y.mul_(w),
    "add_": lambda y, w: y.add_(w, alpha=2),
    "div_": lambda y, w: y.div_(w),
    "pow_": lambda y, w: y.pow_(w),
    "exp_": lambda y, w: y.exp_(),
    "sqrt_": lambda y, w: y.sqrt_(),
    "tanh_": lambda y, w: y.tanh_(),
    "relu_": lambda y, w: y.relu_(),
    "sigmoid_": lambda y, w: y.sigmoid_(),
    "clamp_": lambda y, w: y.clamp_(0.5, 1.5),
    "neg_": lambda y, w: y.neg_(),
    "square of itself": lambda y, w: y.mul_(y),
    "copy_": lambda y, w: y.copy_(w),
    "copy_ of a row": lambda y, w: y.copy_(w[0]),
    "zero_": lambda y, w: y.zero_(),
    "fill_": lambda y, w: y.fill_(w[0, 0]),
    "masked_fill_": lambda y, w: y.masked_fill_(ddpflow.eye(3, 4) > 0, w[1, 1]),
    "addcmul_": lambda y, w: y.addcmul_(w, w),
    "lerp_": lambda y, w: y.lerp_(w, 0.3),
    "cumsum_": lambda y, w: y.cumsum_(1),
    "tril_": lambda y, w: y.tril_(),
    "index_add_": lambda y, w: y.index_add_(0, ddpflow.tensor([0, 0]), w[:2]),
    "index_copy_": lambda y, w: y.index_copy_(0, ddpflow.tensor([2, 0]), w[:2]),
    "scatter_": lambda y, w: y.scatter_(1, ddpflow.tensor([[1, 0], [3, 2], [0, 1]]), w[:, :2]),
    "scatter_add_": lambda y, w: y.scatter_add_(1, ddpflow.tensor([[1, 1], [3, 2], [0, 0]]), w[:, :2]),
    "index_put_": lambda y, w: y.index_put_(
        (ddpflow.tensor([0, 0]), ddpflow.tensor([1, 1])), w[0, :2], accumulate=True
    ),
    "fill_diagonal_": lambda y, w: y.fill_diagonal_(2.0),
    "unsqueeze_": lambda y, w: y.unsqueeze_(0),
    "transpose_": lambda y, w: y.transpose_(0, 1),
    "number": lambda y, w: y.__setitem__(1, w[0]),
    "element": lambda y, w: y.__setitem__((1, 2), w[0, 0]),
    "constant": lambda y, w: y.__setitem__((slice(None), 1), 3.0),
    "slice": lambda y, w: y.__setitem__((slice(1, None), slice(None, None, 2)), w[1:, :2]),
    "broadcast": lambda y, w: y.__setitem__(slice(0, 2), w[0]),
    "array": lambda y, w: y.__setitem__([2, 0], w[:2]),
    "repeated array": lambda y, w: y.__setitem__([2, 0, 2], w),
    "mask": lambda y, w: y.__setitem__(ddpflow.eye(3, 4) > 0, w[0, :3]),
    "mixed": lambda y, w: y.__setitem__((slice(1, None), [3, 0]), w[:2, :2]),
    "number and array": lambda y, w: y.__setitem__((1, [3, 0, 3]), w[0, :3]),
    "shifted onto itself": lambda y, w: y.__setitem__(slice(1, None), y[:-1]),
}


@pytest.mark.parametrize("name", WRITES)
def test_gradients_of_writes(name):
    """Every in-place form has the gradient of its out-of-place meaning, for the target and for what was written."""

    def function(x, w):
        y = x * 1.25
        WRITES[name](y, w * 1.0)
        return y * y

    gradcheck(function, [values(3, 4), values(3, 4, start=0.9)])


@pytest.mark.parametrize("name", ["mul_", "exp_", "copy_", "slice", "repeated array", "mask", "mixed", "index_add_"])
def test_second_order_of_writes(name):
    """Writes can be differentiated twice."""

    def function(x, w):
        y = x * x
        WRITES[name](y, w * 1.0)
        return y * y

    gradgradcheck(function, [values(3, 4), values(3, 4, start=0.9)])


def test_augmented_assignment_writes_once():
    """``x[1:] += x[:-1]`` equals the copy version, in values and gradients."""

    def in_place(x):
        y = x * 1.0
        y[1:] += y[:-1]
        return y * y

    def copied(x):
        return ddpflow.cat([x[:1], x[1:] + x[:-1]]) ** 2

    a, b = values(5), values(5)
    in_place(a).sum().backward()
    copied(b).sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), b.grad.numpy())
    gradcheck(in_place, [values(5)])


def test_a_view_made_before_sees_a_write_to_the_base():
    """The view's gradient then goes to what was written, not to the old values."""
    x, w = values(4), values(4, start=0.9)
    base = x * 2
    view = base[1:3]
    base.mul_(w)
    view.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [0, 2 * w.numpy(force=True)[1], 2 * w.numpy(force=True)[2], 0])
    np.testing.assert_allclose(w.grad.numpy(), [0, *(2 * x.numpy(force=True))[1:3], 0])


def test_a_write_brings_a_buffer_into_the_graph_and_its_views_with_it():
    """A view made of a tensor outside any graph wants a gradient once the base does."""
    w = values(3)
    buffer = ddpflow.zeros(3, dtype=ddpflow.float64)
    early, nested = buffer[:2], buffer[1:][1:]
    buffer.copy_(w)
    assert buffer.requires_grad and early.requires_grad and nested.requires_grad
    assert not early.is_leaf
    (early.sum() + 10 * nested.sum()).backward()
    np.testing.assert_array_equal(w.grad.numpy(), [1, 1, 10])


def test_a_write_to_a_view_of_a_buffer_brings_the_buffer_into_the_graph():
    """``buffer[i] = value`` collects values into one tensor that can be differentiated."""
    w = values(3)
    buffer = ddpflow.zeros(3, dtype=ddpflow.float64)
    for i in range(3):
        buffer[i] = w[i] * (i + 1)
    buffer[0].mul_(5.0)
    buffer.sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), [5, 2, 3])


def test_overwriting_with_a_constant_cuts_the_graph():
    """After ``zero_`` nothing flows back to what was there, neither from the tensor nor from its views."""
    x = values(4)
    y = x * 2
    view = y[1:]
    y.zero_()
    assert y.requires_grad
    ((view * 3.0).sum() + y.sum()).backward()
    assert x.grad is None


@pytest.mark.parametrize("change", ["itself", "a view", "the base", "detach", "numpy is not noticed"])
def test_changing_a_saved_value_is_noticed(change):
    """An operation that needs a value which was changed in place raises, naming itself, the shape and both versions."""
    x = values(2, 3)
    base = x * 1.0
    y = base[0]
    z = y * y
    if change == "itself":
        y.add_(1)
    elif change == "a view":
        y[1:].add_(1)
    elif change == "the base":
        base.add_(1)
    elif change == "detach":
        y.detach().add_(1)
    else:
        y.data.add_(1)
        z.sum().backward()
        return
    with pytest.raises(AutogradError, match=r"'mul'.*shape \(3,\).*version 1, saved at version 0"):
        z.sum().backward()


def test_changing_a_saved_result_is_noticed():
    """The exponential keeps its result: changing a view of it raises; changing its input does not."""
    x = values(3)
    y = (x * 1.0).exp()
    total = y.sum()
    y[1:].mul_(2)
    with pytest.raises(AutogradError, match="'exp'.*its result"):
        total.backward()
    source = x * 1.0
    z = source.exp()
    source.zero_()
    z.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.exp(x.numpy(force=True)))


def test_operations_that_save_nothing_do_not_mind():
    """Addition keeps no values, so its operands may change."""
    x = values(3)
    y = x * 1.0
    z = y + 2
    y.mul_(3)
    z.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [1, 1, 1])


@pytest.mark.parametrize("write", ["mul_", "view", "setitem", "zero_", "iadd"])
def test_a_leaf_that_requires_grad_refuses(write):
    """A leaf is not changed in place while recording; under no_grad it is."""
    x = values(3)

    def change():
        if write == "mul_":
            x.mul_(2)
        elif write == "view":
            x[1:].mul_(2)
        elif write == "setitem":
            x[0] = 1.0
        elif write == "zero_":
            x.zero_()
        else:
            y = x
            y += 1

    with pytest.raises(AutogradError, match="leaf"):
        change()
    with ddpflow.no_grad():
        before = x._version
        change()
    assert x._version > before and x.is_leaf and x.requires_grad


def test_expanded_memory_refuses():
    """Several elements in one place cannot be written to: clone first."""
    x = ddpflow.tensor([2.0]).expand(3)
    for write in (lambda: x.mul_(2), lambda: x.fill_(1), lambda: x.__setitem__(0, 1.0), lambda: x.add_(x)):
        with pytest.raises(ShapeError, match="expanded"):
            write()
    assert x.tolist() == [2, 2, 2]
    assert x.clone().mul_(2).tolist() == [4, 4, 4]


def test_what_does_not_fit_is_refused():
    """Shapes and dtypes that do not fit raise PyTorch's types and name both sides."""
    x = ddpflow.zeros(2, 3)
    with pytest.raises(RuntimeError, match=r"\(4,\).*\(2, 3\)"):
        x[:] = ddpflow.ones(4)
    with pytest.raises(RuntimeError, match=r"\(4, 2, 3\)"):
        x.add_(ddpflow.ones(4, 2, 3))
    with pytest.raises(RuntimeError, match="float32.*int64"):
        ddpflow.tensor([1, 2]).add_(1.5)
    with pytest.raises(IndexRangeError, match="out of bounds"):
        x[2] = 1.0
    with pytest.raises(IndexError):
        x[0, 0, 0] = 1.0
    with pytest.raises(RuntimeError, match="one number"):
        x.fill_(ddpflow.ones(2))


def test_transposed_addition_is_safe():
    """``a += a.T`` reads everything before it writes."""
    a = ddpflow.arange(9.0).reshape(3, 3)
    expected = a.numpy() + a.numpy().T
    a += a.T
    np.testing.assert_array_equal(a.numpy(), expected)


def test_repeated_index_last_write_counts():
    """``x[[2, 0, 2]] = v`` keeps the last value for 2, and only that one gets a gradient."""
    x = ddpflow.zeros(3, dtype=ddpflow.float64)
    v = values(3)
    x[[2, 0, 2]] = v
    np.testing.assert_array_equal(x.numpy(force=True), v.numpy(force=True)[[1, 0, 2]] * [1, 0, 1])
    x.sum().backward()
    np.testing.assert_array_equal(v.grad.numpy(), [0, 1, 1])


def test_view_of_what_cannot_be_viewed():
    """``view`` never copies; ``reshape`` does where it must."""
    x = ddpflow.arange(6.0).reshape(2, 3).T
    with pytest.raises(RuntimeError, match="reshape"):
        x.view(6)
    copy = x.reshape(6)
    copy.zero_()
    assert x.numpy().sum() == 15


def test_writes_record_nothing_without_need():
    """A write between tensors outside any graph, or under no_grad, makes no node."""
    x = ddpflow.zeros(3)
    x[1] = ddpflow.ones(())
    assert x.grad_fn is None and not x.requires_grad
    w = values(3)
    with ddpflow.no_grad():
        y = ddpflow.zeros(3, dtype=ddpflow.float64)
        y.copy_(w)
    assert not y.requires_grad


def test_many_writes_into_one_buffer():
    """A loop that fills a buffer piece by piece differentiates without deep recursion."""
    w = values(1)
    buffer = ddpflow.zeros(3000, dtype=ddpflow.float64)
    for i in range(3000):
        buffer[i] = w[0]
    buffer.sum().backward()
    assert w.grad.item() == 3000


def test_the_gradients_memory_order_does_not_matter():
    """A gradient that arrives transposed is zeroed where a flattened view was written."""
    x = values(3, 4)
    base = x * 1.0
    base.view(-1)[2:5] = 0.0
    base.reshape(-1).mul_(2.0)
    weights = np.arange(12.0).reshape(4, 3)
    (base.T * ddpflow.tensor(weights)).sum().backward()
    expected = 2 * weights.T.copy()
    expected.reshape(-1)[2:5] = 0
    np.testing.assert_array_equal(x.grad.numpy(), expected)


def test_a_write_to_a_flat_view_with_a_column_major_gradient():
    """The region's gradient is cut out also where the gradient that arrives is not in row-major order."""

    def function(a):
        x = a * 1.0
        x.view(12)[3:6].add_(1.0)
        return (x @ x.t()) @ x

    a = ddpflow.tensor(np.linspace(-1.0, 1.0, 12).reshape(3, 4), requires_grad=True)
    assert gradcheck(function, (a,))
    assert gradgradcheck(function, (a,), fast_mode=True)
