"""Recurrent cells: one step of the layers."""

import numpy as np
import pytest

import ddpflow
from ddpflow import nn
from tests.nn.differences import check_parameters

CELLS = [(nn.RNNCell, nn.RNN), (nn.LSTMCell, nn.LSTM), (nn.GRUCell, nn.GRU)]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("cell", "layer"), CELLS)
def test_steps_make_the_layer(cell, layer, bias):
    """A cell stepped through a sequence gives what the layer with the same weights gives."""
    one, many = cell(3, 4, bias=bias), layer(3, 4, bias=bias)
    many.load_state_dict({f"{name}_l0": value for name, value in one.state_dict().items()})
    x = ddpflow.randn(5, 2, 3)
    state = None
    rows = []
    for row in x:
        state = one(row, state)
        rows.append(state[0] if cell is nn.LSTMCell else state)
    np.testing.assert_allclose(
        np.stack([row.detach().numpy() for row in rows]), many(x)[0].detach().numpy(), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(("cell", "layer"), CELLS)
def test_without_a_batch(cell, layer):
    """A single vector works as a batch of one does."""
    one = cell(3, 4)
    x = ddpflow.randn(3)
    alone, batch = one(x), one(x.unsqueeze(0))
    if cell is nn.LSTMCell:
        alone, batch = alone[1], batch[1]
    assert alone.shape == (4,)
    assert alone.tolist() == batch[0].tolist()


def test_relu_cell():
    """A plain cell may use relu."""
    one = nn.RNNCell(2, 3, nonlinearity="relu")
    assert (one(ddpflow.randn(4, 2)) >= 0).all()
    assert repr(one) == "RNNCell(2, 3, nonlinearity=relu)"
    one.nonlinearity = "gelu"
    with pytest.raises(RuntimeError, match="Unknown nonlinearity: gelu"):
        one(ddpflow.randn(4, 2))


@pytest.mark.parametrize(("cell", "layer"), CELLS)
def test_gradients(cell, layer):
    """Gradients of input and weights agree with finite differences."""
    one = cell(2, 2).double()
    x = ddpflow.randn(2, 2, dtype=ddpflow.float64, requires_grad=True)

    assert ddpflow.autograd.gradcheck(one, x)
    state = ddpflow.randn(2, 2, dtype=ddpflow.float64)

    def run():
        return one(x.detach(), (state, state))[0] if cell is nn.LSTMCell else one(x.detach(), state)

    check_parameters(one, run)


def test_errors():
    """Wrong ranks are ValueErrors, wrong sizes RuntimeErrors, with the shapes."""
    one = nn.GRUCell(3, 4)
    with pytest.raises(ValueError, match=r"1D or 2D, got shape \(1, 2, 3\)"):
        one(ddpflow.ones(1, 2, 3))
    with pytest.raises(RuntimeError, match="got 5 in"):
        one(ddpflow.ones(2, 5))
    with pytest.raises(RuntimeError, match=r"\(3, 4\) does not fit an input of shape \(2, 3\)"):
        one(ddpflow.ones(2, 3), ddpflow.ones(3, 4))
    with pytest.raises(ValueError, match="hidden to be 1D or 2D"):
        one(ddpflow.ones(2, 3), ddpflow.ones(1, 2, 4))
