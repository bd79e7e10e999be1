"""Hooks of modules, forward and backward."""

import pytest

import ddpflow
from ddpflow import nn


class Times(nn.Module):
    """Multiplies by a parameter."""

    def __init__(self, factor):
        super().__init__()
        self.factor = nn.Parameter(ddpflow.tensor([factor]))

    def forward(self, x, *, shift=0.0):
        """Returns the product, shifted."""
        return x * self.factor + shift


def test_forward_hook_sees_and_replaces():
    """A forward hook gets module, arguments and output; what it returns becomes the output."""
    net, seen = Times(2.0), []
    handle = net.register_forward_hook(lambda module, args, output: seen.append((module, args, output)))
    x = ddpflow.tensor([3.0])
    y = net(x)
    assert seen[0][0] is net
    assert seen[0][1][0] is x
    assert seen[0][2] is y
    handle.remove()
    net.register_forward_hook(lambda module, args, output: output + 1)
    assert net(x).tolist() == [7.0]
    assert len(seen) == 1


def test_forward_pre_hook_replaces_arguments():
    """A pre-hook may return one argument or a tuple of them."""
    net = Times(2.0)
    handle = net.register_forward_pre_hook(lambda module, args: args[0] + 1)
    assert net(ddpflow.tensor([3.0])).tolist() == [8.0]
    handle.remove()
    net.register_forward_pre_hook(lambda module, args: (args[0] * 10,))
    assert net(ddpflow.tensor([3.0])).tolist() == [60.0]


def test_hooks_with_kwargs():
    """with_kwargs hooks see keyword arguments, and pre-hooks may change them."""
    net, seen = Times(2.0), []
    net.register_forward_pre_hook(lambda module, args, kwargs: (args, {"shift": kwargs["shift"] + 1}), with_kwargs=True)
    net.register_forward_hook(lambda module, args, kwargs, output: seen.append(kwargs), with_kwargs=True)
    assert net(ddpflow.tensor([3.0]), shift=4.0).tolist() == [11.0]
    assert seen == [{"shift": 5.0}]


def test_pre_hook_with_kwargs_must_return_a_pair():
    """A pre-hook with kwargs that returns something else is an error."""
    net = Times(2.0)
    net.register_forward_pre_hook(lambda module, args, kwargs: args, with_kwargs=True)
    with pytest.raises(RuntimeError, match="must return None or"):
        net(ddpflow.tensor([3.0]))


def test_order_and_prepend():
    """Hooks run in the order of registration; prepended ones first."""
    net, order = Times(1.0), []
    net.register_forward_hook(lambda *args: order.append("a"))
    net.register_forward_hook(lambda *args: order.append("b"))
    net.register_forward_hook(lambda *args: order.append("c"), prepend=True)
    net(ddpflow.tensor([1.0]))
    assert order == ["c", "a", "b"]


def test_handle_as_context_manager():
    """A handle takes its hook out at the end of a with block; removing twice is harmless."""
    net, calls = Times(1.0), []
    with net.register_forward_hook(lambda *args: calls.append(1)) as handle:
        net(ddpflow.tensor([1.0]))
    net(ddpflow.tensor([1.0]))
    handle.remove()
    assert calls == [1]


def test_always_call_runs_after_a_failure():
    """An always_call hook runs when forward raises, and the error still comes out."""

    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("broken")

    net, seen = Broken(), []
    net.register_forward_hook(lambda module, args, output: seen.append(output), always_call=True)
    net.register_forward_hook(lambda module, args, output: seen.append("not called"))
    with pytest.raises(ValueError, match="broken"):
        net(1)
    assert seen == [None]


def test_failing_always_call_hook_warns():
    """An always_call hook that fails after a failure warns; forward's error comes out."""

    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("broken")

    net = Broken()
    net.register_forward_hook(lambda module, args, output: output.missing, always_call=True)
    with pytest.warns(UserWarning, match="always_call=True raised"), pytest.raises(ValueError, match="broken"):
        net(1)


def test_backward_hook_sees_gradients():
    """A full backward hook gets the gradients of the module's inputs and outputs, once for each backward."""
    net, seen = Times(2.0), []
    net.register_full_backward_hook(lambda module, grad_input, grad_output: seen.append((grad_input, grad_output)))
    x = ddpflow.tensor([3.0], requires_grad=True)
    (net(x) * 5).sum().backward()
    ((grad_input,), (grad_output,)) = seen[0]
    assert len(seen) == 1
    assert grad_input.tolist() == [10.0]
    assert grad_output.tolist() == [5.0]
    assert x.grad.tolist() == [10.0]
    assert net.factor.grad.tolist() == [15.0]


def test_backward_hook_replaces_the_input_gradient():
    """What a backward hook returns goes to the input; the parameters keep theirs."""
    net = Times(2.0)
    net.register_full_backward_hook(lambda module, grad_input, grad_output: (grad_input[0] * 100,))
    x = ddpflow.tensor([3.0], requires_grad=True)
    net(x).sum().backward()
    assert x.grad.tolist() == [200.0]
    assert net.factor.grad.tolist() == [3.0]


def test_backward_pre_hook_replaces_the_output_gradient():
    """What a backward pre-hook returns is what the module's backward starts from."""
    net, seen = Times(2.0), []
    net.register_full_backward_pre_hook(lambda module, grad_output: (grad_output[0] * 10,))
    net.register_full_backward_hook(lambda module, grad_input, grad_output: seen.append(grad_output[0].tolist()))
    x = ddpflow.tensor([3.0], requires_grad=True)
    net(x).sum().backward()
    assert x.grad.tolist() == [20.0]
    assert net.factor.grad.tolist() == [30.0]
    assert seen == [[10.0]]


def test_backward_hook_without_input_gradient():
    """Where no input wants a gradient the hook gets None for it, and may not return one."""
    net, seen = Times(2.0), []
    handle = net.register_full_backward_hook(lambda module, grad_input, grad_output: seen.append(grad_input))
    net(ddpflow.tensor([3.0])).sum().backward()
    assert seen == [(None,)]
    handle.remove()
    net.register_full_backward_hook(lambda module, grad_input, grad_output: (ddpflow.ones(1),))
    with pytest.raises(RuntimeError, match="none of whose inputs requires a gradient"):
        net(ddpflow.tensor([3.0])).sum().backward()


def test_backward_hook_with_several_inputs_and_outputs():
    """Places without a tensor or a gradient hold None."""

    class Mix(nn.Module):
        def forward(self, x, n, y):
            return x * n, y + 1

    net, seen = Mix(), []
    net.register_full_backward_hook(lambda module, grad_input, grad_output: seen.append((grad_input, grad_output)))
    x = ddpflow.tensor([3.0], requires_grad=True)
    y = ddpflow.tensor([1.0], requires_grad=True)
    first, _ = net(x, 4, y)
    first.sum().backward()
    grad_input, grad_output = seen[0]
    assert grad_input[0].tolist() == [4.0]
    assert grad_input[1] is None
    assert grad_output[0].tolist() == [1.0]
    assert grad_output[1] is None


def test_backward_hook_must_return_as_many():
    """A hook that returns another number of gradients is an error."""
    net = Times(2.0)
    net.register_full_backward_hook(lambda module, grad_input, grad_output: (grad_input[0], grad_input[0]))
    x = ddpflow.tensor([3.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="returned 2 values for 1"):
        net(x).sum().backward()


def test_backward_hook_needs_a_tensor_output():
    """A module with another kind of output warns that its backward hooks will not run."""

    class Wrapped(nn.Module):
        def forward(self, x):
            return {"x": x}

    net = Wrapped()
    net.register_full_backward_hook(lambda *args: None)
    with pytest.warns(UserWarning, match="will not be called"):
        net(ddpflow.tensor([3.0], requires_grad=True))


def test_backward_hooks_under_create_graph():
    """Hooks also run in a backward that is recorded, and second derivatives pass them."""
    net, seen = Times(2.0), []
    net.register_full_backward_hook(lambda module, grad_input, grad_output: seen.append(grad_input[0].tolist()))
    x = ddpflow.tensor([3.0], requires_grad=True)
    y = (net(x) ** 2).sum()
    (first,) = ddpflow.autograd.grad(y, x, create_graph=True)
    (second,) = ddpflow.autograd.grad(first.sum(), x)
    assert first.tolist() == [24.0]
    assert second.tolist() == [8.0]
    assert seen[0] == [24.0]


def test_no_boundary_under_no_grad():
    """Without a graph backward hooks change nothing."""
    net = Times(2.0)
    net.register_full_backward_hook(lambda *args: None)
    with ddpflow.no_grad():
        assert not net(ddpflow.tensor([3.0], requires_grad=True)).requires_grad
