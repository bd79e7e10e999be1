"""Whole-sequence operations beside the same layers by recorded steps; their samples test the rest."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.base import TensorBase
from ddpflow.autograd.ops.recurrent import gru_sequence, lstm_sequence, rnn_sequence

F64 = ddpflow.float64
CASES = [
    (lstm_sequence, ((5, 3, 8), (3, 2), (3, 2), (8, 2)), ()),
    (gru_sequence, ((5, 3, 6), (3, 2), (6, 2), (6,)), ()),
    (rnn_sequence, ((5, 3, 2), (3, 2), (2, 2)), (False,)),
    (rnn_sequence, ((5, 3, 2), (3, 2), (2, 2)), (True,)),
]


def leaves(shapes):
    """Returns leaf tensors of these shapes."""
    return [ddpflow.randn(*shape, dtype=F64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("operation", "shapes", "options"), CASES)
def test_same_as_recorded_steps(operation, shapes, options, reverse):
    """Values and gradients are those of the steps as operations, forwards and backwards in time."""
    inputs = leaves(shapes)
    results = []
    for run in (operation, lambda *args: operation.op.composite(TensorBase.namespace, *args)):
        out = run(*inputs, *options, reverse)
        outs = out if isinstance(out, tuple) else (out,)
        sum(((i + 1) * (part * part).sum() for i, part in enumerate(outs)), ddpflow.zeros((), dtype=F64)).backward()
        results.append([part.detach().numpy() for part in outs] + [leaf.grad.numpy() for leaf in inputs])
        for leaf in inputs:
            leaf.grad = None
    for fused, plain in zip(*results, strict=True):
        np.testing.assert_allclose(fused, plain, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("operation", "shapes", "options"), CASES)
def test_reverse_is_the_flipped_sequence(operation, shapes, options):
    """Running backwards gives the forward run of the flipped sequence, flipped."""
    projected, *rest = leaves(shapes)
    backward = operation(projected, *rest, *options, True)
    forward = operation(projected.flip(0), *rest, *options, False)
    if operation is lstm_sequence:
        np.testing.assert_allclose(backward[1].detach().numpy(), forward[1].detach().numpy(), rtol=1e-12)
        backward, forward = backward[0], forward[0]
    np.testing.assert_allclose(backward.detach().numpy(), forward.flip(0).detach().numpy(), rtol=1e-12)


def test_only_the_cell_is_used():
    """A gradient that comes only from the last cell state reaches all inputs but the last step's output gate."""
    inputs = leaves(CASES[0][1])
    _, cell = lstm_sequence(*inputs)
    cell.sum().backward()
    assert inputs[0].grad[0].any()
    assert not inputs[0].grad[-1][:, 6:].any()
