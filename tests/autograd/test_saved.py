"""What is kept for backward: no more than the rule names."""

import gc
import weakref

import numpy as np

import ddpflow
from ddpflow.autograd import grad
from ddpflow.autograd.saved import DERIVED, OUTPUT, classify, freed, rebind, save
from ddpflow.factories import tensor


def leaf(*values, dtype="float64"):
    """A leaf that collects a gradient."""
    return tensor(list(values), requires_grad=True, dtype=dtype)


def bits(name, *arrays):
    """How the rule of an op classifies its first vjp."""
    definition = getattr(ddpflow, name).op
    out, vjps = definition.rule(np, *arrays)
    return classify(definition, vjps[0] if isinstance(vjps, tuple) else vjps, arrays, out)


def test_classes():
    """Inputs by position, the output, something derived, nothing."""
    a = np.array([1.0, 2.0])
    assert bits("log", a) == 1
    assert bits("exp", a) == OUTPUT
    assert bits("neg", a) == 0
    assert bits("prod", a) & OUTPUT and bits("prod", a) & 1
    assert classify(ddpflow.exp.op, None, (a,), a) == 0

    def rule(g):
        return g * derived

    derived = a + 1
    assert classify(ddpflow.sign.op, rule, (a,), a) == DERIVED


def test_inputs_that_no_rule_names_are_dropped():
    """After exp only the result is held, after add nothing, after log only the input."""
    gc.collect()
    x = leaf(1.0, 2.0)
    middle = x * 2
    result = middle.exp()
    watched = weakref.ref(middle.array)
    del middle
    assert watched() is None
    middle = x * 2
    result = middle.log()
    watched = weakref.ref(middle.array)
    del middle
    assert watched() is not None
    result.sum().backward()
    assert watched() is None


def test_a_0d_result_does_not_decide_for_others():
    """NumPy's scalars for 0-d results do not make a rule save more for later results with dimensions."""
    assert leaf(1.0)[0].tanh().requires_grad
    x = leaf(1.0, 2.0)
    y = x.tanh()
    assert y.node.args == (None,) and y.node.output_version is not None
    scalar = tensor(0.5, dtype="float64", requires_grad=True)
    (first,) = grad(scalar.tanh(), [scalar], create_graph=True)
    (second,) = grad(first, [scalar])
    assert second.item() == (-2 * np.tanh(0.5) * (1 - np.tanh(0.5) ** 2))


def test_rebind_puts_tensors_in_the_place_of_arrays():
    """The vjp over tensors records: its result leads back to the input and through the output."""
    x = leaf(1.0, 2.0)
    y = x.exp()
    vjp = rebind(y.node.vjps[0], y.node)
    g = vjp(tensor([1.0, 1.0], dtype="float64"))
    assert g.requires_grad and g.tolist() == y.tolist()
    assert rebind(None, y.node) is None


def test_save_keeps_versions():
    """A node remembers the versions of what it holds only where there are any."""
    x, y = leaf(1.0), leaf(2.0)
    assert (x * y).node.versions is None
    x.bump_version()
    assert (x * y).node.versions == (1, 0)
    node = (x * y).node
    save(node, x, 1, (x, y))
    assert node.args == (x, None)


def test_the_text_for_a_freed_graph():
    """It names the operation and both ways out."""
    text = str(freed((leaf(1.0) * 2).node))
    assert "'mul'" in text and "retain_graph" in text and "detach()" in text
