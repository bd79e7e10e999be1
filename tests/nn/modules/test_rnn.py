"""Recurrent layers against NumPy loops: layers, directions, batches, packed sequences, errors."""

import warnings

import numpy as np
import pytest

import ddpflow
from ddpflow import nn
from ddpflow.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence
from tests.nn.differences import check_parameters

KINDS = {
    "tanh": lambda *args, **options: nn.RNN(*args, **options),
    "relu": lambda *args, **options: nn.RNN(*args, nonlinearity="relu", **options),
    "lstm": nn.LSTM,
    "gru": nn.GRU,
}


def sigmoid(x):
    """Returns the logistic function."""
    return 1 / (1 + np.exp(-x))


def step(kind, x, state, w):
    """Returns the state after one step of one sequence."""
    h = state[0]
    ih, hh = w["weight_ih"] @ x + w.get("bias_ih", 0), w["weight_hh"] @ h + w.get("bias_hh", 0)
    if kind in ("tanh", "relu"):
        return (np.tanh(ih + hh) if kind == "tanh" else np.maximum(ih + hh, 0),)
    if kind == "gru":
        (r, z, n), (rh, zh, nh) = np.split(ih, 3), np.split(hh, 3)
        n, z = np.tanh(n + sigmoid(r + rh) * nh), sigmoid(z + zh)
        return ((1 - z) * n + z * h,)
    i, f, g, o = np.split(ih + hh, 4)
    c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    return (w["weight_hr"] @ h if "weight_hr" in w else h), c


def by_loops(kind, module, sequence, state):
    """Returns outputs and final states of one sequence (T, F), with states (layers * directions, width)."""
    finals = []
    for layer in range(module.num_layers):
        outputs = []
        for suffix in (f"_l{layer}", f"_l{layer}_reverse")[: 1 + module.bidirectional]:
            w = {
                name[: -len(suffix)]: value.detach().numpy()
                for name, value in module.named_parameters()
                if name.endswith(suffix)
            }
            now = tuple(part[len(finals)] for part in state)
            rows = []
            for x in sequence[::-1] if suffix.endswith("reverse") else sequence:
                now = step(kind, x, now, w)
                rows.append(now[0])
            outputs.append(rows[::-1] if suffix.endswith("reverse") else rows)
            finals.append(now)
        sequence = np.concatenate(outputs, 1)
    return sequence, [np.stack(parts) for parts in zip(*finals, strict=True)]


def states(module, batch, rng):
    """Returns random states for a batch, as arrays."""
    count = module.num_layers * (2 if module.bidirectional else 1)
    return [rng.standard_normal((count, batch, width)) for width in module._state_widths()]


def given(kind, arrays):
    """Returns states as the module takes them."""
    tensors = tuple(ddpflow.tensor(array) for array in arrays)
    return tensors if kind == "lstm" else tensors[0]


OPTIONS = [
    {},
    {"num_layers": 2},
    {"bidirectional": True},
    {"num_layers": 2, "bidirectional": True, "bias": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_against_loops(kind, options):
    """Outputs and final states are the definition's, in every layout, from given states or zeros."""
    rng = np.random.default_rng(0)
    module = KINDS[kind](3, 4, **options).double()
    x, start = rng.standard_normal((5, 2, 3)), states(module, 2, np.random.default_rng(1))
    out, final = module(ddpflow.tensor(x), given(kind, start))
    final = final if kind == "lstm" else (final,)
    for n in range(2):
        rows, ends = by_loops(kind, module, x[:, n], [part[:, n] for part in start])
        np.testing.assert_allclose(out[:, n].detach().numpy(), rows, rtol=1e-9, atol=1e-12)
        for part, end in zip(final, ends, strict=True):
            np.testing.assert_allclose(part[:, n].detach().numpy(), end, rtol=1e-9, atol=1e-12)
    single, _ = module(ddpflow.tensor(x[:, 0]), given(kind, [part[:, 0] for part in start]))
    np.testing.assert_allclose(single.detach().numpy(), out[:, 0].detach().numpy(), rtol=1e-12)
    module.batch_first = True
    first, _ = module(ddpflow.tensor(x.swapaxes(0, 1).copy()), given(kind, start))
    np.testing.assert_allclose(first.detach().numpy(), out.detach().numpy().swapaxes(0, 1), rtol=1e-12)
    module.batch_first = False
    zeros, _ = module(ddpflow.tensor(x))
    rows, _ = by_loops(kind, module, x[:, 1], [part[:, 1] * 0 for part in start])
    np.testing.assert_allclose(zeros[:, 1].detach().numpy(), rows, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("sorted_", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences(kind, sorted_):
    """Each sequence of a packed batch gives what it gives alone, in both directions and in the batch's order."""
    rng = np.random.default_rng(0)
    module = KINDS[kind](3, 4, num_layers=2, bidirectional=True).double()
    lengths = [5, 4, 4, 1] if sorted_ else [1, 4, 5, 4]
    sequences = [rng.standard_normal((n, 3)) for n in lengths]
    start = states(module, 4, rng)
    packed = pack_sequence([ddpflow.tensor(s) for s in sequences], enforce_sorted=sorted_)
    out, final = module(packed, given(kind, start))
    padded, sizes = pad_packed_sequence(out)
    assert sizes.tolist() == lengths
    final = final if kind == "lstm" else (final,)
    for n, sequence in enumerate(sequences):
        rows, ends = by_loops(kind, module, sequence, [part[:, n] for part in start])
        np.testing.assert_allclose(padded[: lengths[n], n].detach().numpy(), rows, rtol=1e-9, atol=1e-12)
        for part, end in zip(final, ends, strict=True):
            np.testing.assert_allclose(part[:, n].detach().numpy(), end, rtol=1e-9, atol=1e-12)


def test_projected_hidden_state():
    """An LSTM with proj_size projects its hidden state, not its cell."""
    module = nn.LSTM(3, 5, proj_size=2, num_layers=2).double()
    x, start = np.random.default_rng(0).standard_normal((4, 1, 3)), states(module, 1, np.random.default_rng(1))
    out, (h, c) = module(ddpflow.tensor(x), given("lstm", start))
    assert (h.shape, c.shape) == ((2, 1, 2), (2, 1, 5))
    rows, _ = by_loops("lstm", module, x[:, 0], [part[:, 0] for part in start])
    np.testing.assert_allclose(out[:, 0].detach().numpy(), rows, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind):
    """Gradients of input, states and weights agree with finite differences, padded and packed."""
    module = KINDS[kind](2, 2, bidirectional=True).double()
    x = ddpflow.randn(3, 2, 2, dtype=ddpflow.float64, requires_grad=True)
    assert ddpflow.autograd.gradcheck(lambda x: module(x)[0], x)
    start = [ddpflow.tensor(a, requires_grad=True) for a in states(module, 2, np.random.default_rng(0))]

    def packed(x, *start):
        out, _ = module(pack_padded_sequence(x, [3, 1]), start if kind == "lstm" else start[0])
        return out.data

    assert ddpflow.autograd.gradcheck(packed, (x, *start))
    check_parameters(module, lambda: module(x.detach())[0])


def test_dropout_between_layers():
    """Dropout works between layers in training only; with one layer it warns."""
    module = nn.LSTM(3, 50, num_layers=2, dropout=0.5)
    x = ddpflow.randn(4, 2, 3)
    assert module(x)[0].tolist() != module(x)[0].tolist()
    module.eval()
    assert module(x)[0].tolist() == module(x)[0].tolist()
    with pytest.warns(UserWarning, match="dropout option adds dropout after all but last"):
        nn.GRU(3, 4, dropout=0.5)


def test_parameters():
    """Names, shapes and start are PyTorch's; all_weights groups them."""
    module = nn.GRU(3, 4, num_layers=2, bidirectional=True)
    shapes = {name: tuple(value.shape) for name, value in module.named_parameters()}
    assert list(shapes)[:5] == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_ih_l0_reverse"]
    assert shapes["weight_ih_l1"] == (12, 8)
    assert shapes["weight_hh_l1_reverse"] == (12, 4)
    assert [len(group) for group in module.all_weights] == [4, 4, 4, 4]
    assert max(abs(p.detach().numpy()).max() for p in module.parameters()) <= 0.5
    module.flatten_parameters()


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((3, 0), {}, ValueError, "must be positive"),
        ((3, 4), {"num_layers": 0}, ValueError, "must be positive"),
        ((3, 4.5), {}, TypeError, "hidden_size should be of type int"),
        ((3, 4), {"dropout": 1.5}, ValueError, r"range \[0, 1\]"),
        ((3, 4), {"proj_size": 4}, ValueError, "proj_size should be between"),
    ],
)
def test_bad_arguments(arguments, options, error, message):
    """Arguments that make no sense are errors that say why."""
    with pytest.raises(error, match=message):
        nn.LSTM(*arguments, **options)


def test_bad_nonlinearity():
    """A plain RNN knows tanh and relu."""
    with pytest.raises(ValueError, match="Unknown nonlinearity 'gelu'"):
        nn.RNN(3, 4, nonlinearity="gelu")


@pytest.mark.parametrize(
    ("shape", "state", "error", "message"),
    [
        ((5, 2, 4), None, RuntimeError, r"Expected 3, got 4"),
        ((5,), None, ValueError, r"2D or 3D, got shape \(5,\)"),
        ((0, 2, 3), None, RuntimeError, "larger than 0"),
        ((5, 2, 3), (1, 3, 4), RuntimeError, r"Expected hidden size \(1, 2, 4\), got \(1, 3, 4\)"),
        ((5, 2, 3), (1, 4), RuntimeError, "should have 3 dimensions"),
        ((5, 3), (1, 1, 4), RuntimeError, "should have 2 dimensions"),
    ],
)
def test_bad_inputs(shape, state, error, message):
    """Wrong widths, ranks and states are errors with the shapes."""
    with pytest.raises(error, match=message):
        nn.GRU(3, 4)(ddpflow.ones(*shape), None if state is None else ddpflow.ones(*state))


def test_lstm_needs_both_states():
    """An LSTM's state has two parts, each checked by name."""
    module = nn.LSTM(3, 4)
    with pytest.raises(RuntimeError, match="takes a state"):
        module(ddpflow.ones(5, 2, 3), (ddpflow.ones(1, 2, 4),))
    with pytest.raises(RuntimeError, match=r"Expected hidden\[1\] size \(1, 2, 4\), got \(1, 2, 5\)"):
        module(ddpflow.ones(5, 2, 3), (ddpflow.ones(1, 2, 4), ddpflow.ones(1, 2, 5)))


def test_repr():
    """Only what is not the default is printed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module = nn.LSTM(3, 4, num_layers=2, bias=False, dropout=0.1, bidirectional=True, proj_size=2)
    assert repr(module) == "LSTM(3, 4, proj_size=2, num_layers=2, bias=False, dropout=0.1, bidirectional=True)"
    assert repr(nn.RNN(3, 4)) == "RNN(3, 4)"
