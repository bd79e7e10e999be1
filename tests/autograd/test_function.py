"""Operations written by users."""
# ruff: noqa: D101, D102 (the methods of a Function are its two formulas)

import gc
import weakref

import pytest

from ddpflow.autograd import Function, enable_grad, grad, gradcheck, gradgradcheck, no_grad
from ddpflow.autograd.function import once_differentiable
from ddpflow.errors import AutogradError
from ddpflow.factories import tensor


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x * x


class Exponential(Function):
    """Saves its output."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class SumAndProduct(Function):
    @staticmethod
    def forward(ctx, x, y, factor):
        ctx.save_for_backward(x, y)
        ctx.factor = factor
        return x + y, x * y * factor

    @staticmethod
    def backward(ctx, g_sum, g_product):
        x, y = ctx.saved_tensors
        return g_sum + g_product * y * ctx.factor, g_sum + g_product * x * ctx.factor, None


def leaf(*values):
    """A leaf that collects a gradient."""
    return tensor(list(values), requires_grad=True, dtype="float64")


@pytest.mark.parametrize("function", [Cube, Exponential])
def test_first_and_second_order(function):
    """Backward's tensors work in an ordinary pass and, recorded, under create_graph, with saved inputs and outputs."""
    assert gradcheck(function.apply, (leaf(0.5, -1.5),))
    assert gradgradcheck(function.apply, (leaf(0.5, -1.5),))


def test_several_outputs_and_an_option():
    """Each output has its gradient; arguments that are no tensors are passed on and need None."""
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    total, product = SumAndProduct.apply(x, y, 10.0)
    (total * 100 + product).sum().backward()
    assert x.grad.tolist() == [130.0, 140.0]
    assert y.grad.tolist() == [110.0, 120.0]
    assert gradgradcheck(lambda a, b: SumAndProduct.apply(a, b, 2.0), (leaf(1.0), leaf(3.0)))


def test_an_unused_output_gives_zeros_or_none():
    """For an output that is not used backward gets zeros; with set_materialize_grads(False) None."""
    seen = []

    class Pair(Function):
        @staticmethod
        def forward(ctx, x, materialize):
            ctx.set_materialize_grads(materialize)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            seen.append((a.tolist(), None if b is None else b.tolist()))
            return a * 2, None

    for materialize in (True, False):
        Pair.apply(leaf(1.0), materialize)[0].backward()
    assert seen == [([1.0], [0.0]), ([1.0], None)]


def test_needs_input_grad():
    """The context says which arguments want a gradient; what backward gives for the others is dropped."""
    seen = []

    class Product(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            seen.append(ctx.needs_input_grad)
            return g * y, g * x

    x, y = leaf(2.0), tensor([3.0], dtype="float64")
    Product.apply(x, y).backward()
    assert seen == [(True, False)]
    assert x.grad.tolist() == [3.0] and y.grad is None


def test_setup_context():
    """The newer form: forward without ctx, and setup_context."""

    class Square(Function):
        @staticmethod
        def forward(x):
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 2 * g * ctx.saved_tensors[0]

    x = leaf(3.0)
    Square.apply(x).backward()
    assert x.grad.tolist() == [6.0]


def test_mark_non_differentiable():
    """A marked output and integer outputs carry no gradient; the others do."""

    class Split(Function):
        @staticmethod
        def forward(ctx, x):
            whole = x.floor()
            ctx.mark_non_differentiable(whole)
            return x - whole, whole, x.argmax()

        @staticmethod
        def backward(ctx, g, g_whole, g_index):
            return g

    rest, whole, index = Split.apply(leaf(1.25, 2.5))
    assert (rest.requires_grad, whole.requires_grad, index.requires_grad) == (True, False, False)


def test_forward_records_nothing_and_no_grad_is_respected():
    """Inside forward nothing is recorded; under no_grad nor is the call."""
    seen = []

    class Identity(Function):
        @staticmethod
        def forward(ctx, x):
            seen.append((x * 2).requires_grad)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g

    with no_grad():
        assert not Identity.apply(leaf(1.0)).requires_grad
    assert Identity.apply(leaf(1.0)).requires_grad
    assert seen == [False, False]


def test_returning_an_input():
    """An input returned as it is becomes a new tensor on the same memory, with the function as its origin."""

    class Reverse(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return -g

    x = leaf(1.0, 2.0)
    y = Reverse.apply(x)
    assert y is not x and x.is_leaf
    assert y.array is x.array
    y.sum().backward()
    assert x.grad.tolist() == [-1.0, -1.0]


def test_mark_dirty():
    """An input changed in place and returned is the output; a leaf that requires grad is refused."""

    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            x.array *= 2
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(1.0, 2.0)
    y = x * 1
    assert Double.apply(y) is y
    y.sum().backward()
    assert y.tolist() == [2.0, 4.0] and x.grad.tolist() == [2.0, 2.0]
    with pytest.raises(AutogradError, match="leaf"):
        Double.apply(leaf(1.0))


def test_a_saved_tensor_changed_in_place():
    """saved_tensors refuses a tensor that was changed since, with both versions."""
    x = leaf(1.0, 2.0)
    y = Cube.apply(x)
    x.bump_version()
    with pytest.raises(AutogradError, match="version 1, saved at version 0"):
        y.sum().backward()
    y = Exponential.apply(leaf(1.0))
    y.bump_version()
    with pytest.raises(AutogradError, match="version 1, saved at version 0"):
        y.sum().backward()


def test_backward_twice():
    """The graph is freed after one pass, unless it is retained."""
    x = leaf(2.0)
    y = Cube.apply(x)
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [24.0]
    with pytest.raises(AutogradError, match="Cube.*retain_graph"):
        y.backward()


def test_wrong_number_of_gradients():
    """Backward must return one gradient for each argument; Nones beyond are accepted."""

    class Short(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return g

    class Long(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g, None, None

    with pytest.raises(AutogradError, match=r"Short.backward returned 1 gradient\(s\) for 2"):
        Short.apply(leaf(1.0), leaf(2.0)).backward()
    Long.apply(leaf(1.0)).backward()


def test_missing_methods():
    """A Function without forward, or without backward when it is needed, says which."""

    class Nothing(Function):
        pass

    class OneWay(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    with pytest.raises(NotImplementedError, match="forward"):
        Nothing.apply(leaf(1.0))
    with pytest.raises(NotImplementedError, match="backward"):
        OneWay.apply(leaf(1.0)).backward()


def test_once_differentiable():
    """A backward marked so works once; to differentiate it raises and says why."""

    class Opaque(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * g * x

    x = leaf(3.0)
    Opaque.apply(x).backward()
    assert x.grad.tolist() == [6.0]
    seed = leaf(1.0)
    (g,) = grad(Opaque.apply(x), [x], [seed], create_graph=True)
    with pytest.raises(AutogradError, match="once_differentiable"):
        g.sum().backward()


def test_in_a_graph_with_other_operations():
    """A Function stands between other operations like any of them, and shows its name as grad_fn."""
    x = leaf(2.0)
    y = Cube.apply(x * 2) + 1
    y.backward()
    assert x.grad.tolist() == [3 * 16.0 * 2]
    assert "Cube" in repr(Cube.apply(x).grad_fn)


def test_no_cycles():
    """Saving an output makes no cycle: with the collector off all is gone with the result."""
    gc.collect()
    gc.disable()
    try:
        y = Exponential.apply(leaf(1.0))
        watched = weakref.ref(y.node)
        del y
        assert watched() is None
    finally:
        gc.enable()


def test_backward_may_run_a_graph_of_its_own():
    """A backward that recomputes under enable_grad, as checkpointing does, works inside the outer pass."""

    class Recomputed(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin() * x

        @staticmethod
        def backward(ctx, g):
            inside = ctx.saved_tensors[0].detach().requires_grad_()
            with enable_grad():
                y = inside.sin() * inside
            y.backward(g)
            return inside.grad

    x = leaf(0.5, 2.0)
    (Recomputed.apply(x) * 2).sum().backward()
    (expected,) = grad((x.sin() * x * 2).sum(), [x])
    assert x.grad.tolist() == expected.tolist()
