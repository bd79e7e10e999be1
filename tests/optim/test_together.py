"""Small parameters updated side by side: the very numbers that updating each by itself gives."""

import copy
import pickle

import numpy as np
import pytest

import ddpflow
from ddpflow import optim
from ddpflow.nn import Parameter
from ddpflow.optim import together

SHAPES = [(3,), (), (2, 4), (0,), (5, 1), (60, 50), (7,), (1, 1)]  # (60, 50) is too large to be taken along

OPTIMIZERS = [
    (optim.SGD, {"lr": 0.1}),
    (optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    (optim.Adam, {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True}),
    (optim.AdamW, {"lr": 0.01}),
    (optim.Adamax, {"lr": 0.01}),
    (optim.NAdam, {"lr": 0.01}),
    (optim.RAdam, {"lr": 0.01}),
    (optim.Adadelta, {"lr": 0.5}),
    (optim.Adagrad, {"lr": 0.1, "initial_accumulator_value": 0.2}),
    (optim.ASGD, {"lr": 0.1}),
    (optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
    (optim.Rprop, {"lr": 0.01}),
]


def _parameters(dtype=np.float32):
    rng = np.random.default_rng(5)
    params = [Parameter(ddpflow.from_numpy(rng.standard_normal(shape).astype(dtype))) for shape in SHAPES]
    params[2].data = ddpflow.from_numpy(rng.standard_normal((4, 2)).astype(dtype)).t()  # not contiguous
    return params


def _set_gradients(params, step, without=()):
    rng = np.random.default_rng(100 + step)
    for i, p in enumerate(params):
        g = rng.standard_normal(p.shape).astype(p.numpy(force=True).dtype)
        p.grad = None if i in without else ddpflow.from_numpy(np.asarray(g))


def _alone(monkeypatch):
    monkeypatch.setattr(together, "SMALL", -1)


def _run(make, change=lambda step, optimizer, params: optimizer, dtype=np.float32, without=lambda step: ()):
    """Parameters and state after six steps; ``change`` is called before each and gives the optimizer to go on with."""
    params = _parameters(dtype)
    optimizer = make(params)
    for step in range(6):
        optimizer = change(step, optimizer, params)
        params = [p for group in optimizer.param_groups for p in group["params"]]
        _set_gradients(params, step, without(step))
        optimizer.step()
    return [p.numpy(force=True).copy() for p in params], optimizer.state_dict()["state"], optimizer


def _same(found, expected):
    for a, b in zip(found[0], expected[0], strict=True):
        np.testing.assert_array_equal(a, b)
    assert found[1].keys() == expected[1].keys()
    for number, values in expected[1].items():
        assert found[1][number].keys() == values.keys()
        for name, value in values.items():
            other = found[1][number][name]
            if isinstance(value, ddpflow.Tensor):
                assert other.shape == value.shape
                np.testing.assert_array_equal(other.numpy(), value.numpy())
            else:
                assert other == value


def _both_ways(monkeypatch, *args, **kwargs):
    found = _run(*args, **kwargs)
    assert not found[2]._together[0].empty
    assert len(found[2]._together[0].others) < len(SHAPES)
    _alone(monkeypatch)
    expected = _run(*args, **kwargs)
    assert all(t.empty for t in expected[2]._together.values())
    _same(found, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("kind", "options"), OPTIMIZERS, ids=lambda value: getattr(value, "__name__", None))
def test_equals_each_by_itself(monkeypatch, kind, options, dtype):
    """Bit for bit, parameters and state, with every optimizer that works element by element."""
    _both_ways(monkeypatch, lambda params: kind(params, **options), dtype=dtype)


def test_only_small_parameters_of_one_type_are_taken(monkeypatch):
    """Large ones, half types and other types stay by themselves."""
    params = _parameters()
    params += [Parameter(ddpflow.ones(3, dtype=ddpflow.float16)), Parameter(ddpflow.ones(3, dtype=ddpflow.float64))]
    optimizer = optim.SGD(params, lr=0.1)
    _set_gradients(params, 0)
    optimizer.step()
    left = optimizer._together[0].others
    assert [id(p) for p in left] == [id(params[i]) for i in (5, 8, 9)]
    monkeypatch.setattr(together, "SMALL", 0)
    optimizer = optim.SGD(params, lr=0.1)
    optimizer.step()
    assert optimizer._together[0].empty
    assert len(optimizer._together[0].others) == 10


@pytest.mark.parametrize("pattern", [(1,), (0, 3), tuple(range(len(SHAPES)))], ids=str)
def test_gradients_that_are_missing_at_times(monkeypatch, pattern):
    """From the start, in between, and all of them: the step counts of the parameters then differ."""
    for steps in ((0, 1), (2, 4), (5,)):
        with monkeypatch.context() as patch:
            _both_ways(
                patch,
                lambda params: optim.Adam(params, lr=0.01),
                without=lambda step, steps=steps: pattern if step in steps else (),
            )


def _replace_parameter(step, optimizer, params):
    if step == 3:
        params[0].data = ddpflow.tensor([5.0, 6.0, 7.0])
        params[4].data = ddpflow.tensor([[1.0], [2.0], [3.0], [4.0], [9.0]]).to(params[4].dtype)
    return optimizer


def _change_state_in_place(step, optimizer, params):
    if step == 2:
        optimizer.state[params[0]]["exp_avg"].zero_()
    return optimizer


def _replace_state_tensor(step, optimizer, params):
    if step == 2:
        optimizer.state[params[0]]["exp_avg"] = ddpflow.tensor([1.0, 2.0, 3.0])
    return optimizer


def _forget_state_of_one(step, optimizer, params):
    if step == 2:
        del optimizer.state[params[0]]
    return optimizer


def _load(step, optimizer, params):
    if step == 3:
        saved = copy.deepcopy(optimizer.state_dict())
        for values in saved["state"].values():
            values["exp_avg"] = values["exp_avg"] * 2
        optimizer.load_state_dict(saved)
    return optimizer


def _deepcopy(step, optimizer, params):
    if step != 3:
        return optimizer
    other = copy.deepcopy(optimizer)
    _set_gradients(params, 50)
    optimizer.step()  # must not touch the copy
    return other


def _pickle(step, optimizer, params):
    return pickle.loads(pickle.dumps(optimizer)) if step == 3 else optimizer


def _add_group(step, optimizer, params):
    if step == 3:
        optimizer.add_param_group({"params": [Parameter(ddpflow.ones(3)), Parameter(ddpflow.ones(4))], "lr": 0.5})
    return optimizer


def _change_rate(step, optimizer, params):
    optimizer.param_groups[0]["lr"] = np.float64(0.01 * (step + 1))
    return optimizer


def _drop_parameter(step, optimizer, params):
    if step == 3:
        optimizer.param_groups[0]["params"] = optimizer.param_groups[0]["params"][1:]
    return optimizer


@pytest.mark.parametrize(
    "change",
    [
        _replace_parameter, _change_state_in_place, _replace_state_tensor, _forget_state_of_one, _load, _deepcopy,
        _pickle, _add_group, _change_rate, _drop_parameter,
    ],
)  # fmt: skip
def test_changes_from_outside_count(monkeypatch, change):
    """Whatever a program does to parameters, state and groups between steps."""
    _both_ways(monkeypatch, lambda params: optim.Adam(params, lr=0.01), change)


def test_momentum_that_is_switched_on_later(monkeypatch):
    """An optimizer without state gets some when its options ask for it."""

    def change(step, optimizer, params):
        optimizer.param_groups[0]["momentum"] = 0.9 if step >= 3 else 0
        return optimizer

    _both_ways(monkeypatch, lambda params: optim.SGD(params, lr=0.1), change)


@pytest.mark.parametrize("shapes", [SHAPES, [(60, 50), (70, 40)]], ids=["small ones", "large ones only"])
@pytest.mark.parametrize(("kind", "options"), [(optim.SGD, {}), (optim.SGD, {"momentum": 0.9}), (optim.Adam, {})])
def test_what_was_laid_side_by_side_stays(kind, options, shapes):
    """Nothing is arranged anew as long as nothing changes, with state or without."""
    params = [Parameter(ddpflow.ones(shape)) for shape in shapes]
    optimizer = kind(params, lr=0.1, **options)
    for step in range(3):
        rng = np.random.default_rng(step)
        for p in params:
            p.grad = ddpflow.from_numpy(np.asarray(rng.standard_normal(p.shape), np.float32))
        optimizer.step()
        if step == 0:
            first = optimizer._together[0]
    assert optimizer._together[0] is first
    assert first.empty == (shapes != SHAPES)


def test_state_can_be_saved_and_loaded(tmp_path):
    """The views in the state are written as the tensors that they are, and read back."""
    params = _parameters()
    optimizer = optim.Adam(params, lr=0.01)
    _set_gradients(params, 0)
    optimizer.step()
    ddpflow.save(optimizer.state_dict(), tmp_path / "state")
    other = optim.Adam(_parameters(), lr=0.5)
    other.load_state_dict(ddpflow.load(tmp_path / "state"))
    _same(([], other.state_dict()["state"]), ([], optimizer.state_dict()["state"]))


def test_in_place_updates_are_counted():
    """A backward pass through a value that a step has changed is refused, as for every change in place."""
    params = [Parameter(ddpflow.tensor([1.0, 2.0])), Parameter(ddpflow.tensor([3.0]))]
    loss = (params[0] * params[0]).sum() * params[1].sum()
    loss.backward(retain_graph=True)
    optim.SGD(params, lr=0.1).step()
    with pytest.raises(ddpflow.errors.AutogradError, match="changed in place"):
        loss.backward()
