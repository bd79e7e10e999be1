"""What all optimizers share: groups, state, hooks, half precision, blocks."""

import copy
import pickle

import numpy as np
import pytest

import ddpflow as flow
from ddpflow.errors import DtypeError, ValueRangeError
from ddpflow.optim import SGD, Adam, AdamW, RMSprop
from ddpflow.optim.optimizer import BLOCK

NO_OPTIMIZERS = (
    "LBFGS",
    "Optimizer",
    "PeriodicModelAverager",
    "ZeroRedundancyOptimizer",
    "average_parameters",
    "broadcast_optimizer_state",
    "lr_scheduler",
)


def _parameters(*shapes, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return [flow.from_numpy(rng.standard_normal(s).astype(dtype)).requires_grad_() for s in shapes]


def _set_grads(params, seed):
    rng = np.random.default_rng(seed)
    for p in params:
        p.grad = flow.from_numpy(rng.standard_normal(p.shape).astype(p.numpy(force=True).dtype))


def test_groups_have_options_of_their_own():
    """A group's own rate is used; what it does not set is the default."""
    a, b = _parameters((2,), (2,))
    optimizer = SGD([{"params": [a]}, {"params": [b], "lr": 1.0}], lr=0.1)
    before = [a.tolist(), b.tolist()]
    for p in (a, b):
        p.grad = flow.ones(2)
    optimizer.step()
    np.testing.assert_allclose(a.tolist(), np.subtract(before[0], 0.1), rtol=1e-6)
    np.testing.assert_allclose(b.tolist(), np.subtract(before[1], 1.0), rtol=1e-6)
    optimizer.add_param_group({"params": flow.zeros(1, requires_grad=True), "lr": 5})
    assert [g["lr"] for g in optimizer.param_groups] == [0.1, 1.0, 5]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cls", [SGD, Adam, AdamW, RMSprop])
def test_large_parameters_are_updated_block_by_block_like_small_ones(cls, dtype):
    """A parameter of several blocks gets, element by element, what pieces of it get."""
    options = {"momentum": 0.9} if cls in (SGD, RMSprop) else {}
    size = 2 * BLOCK + 37
    (whole,) = _parameters((size,), dtype=dtype)
    pieces = [flow.from_numpy(part.copy()).requires_grad_() for part in np.array_split(whole.numpy(force=True), 7)]
    a, b = cls([whole], lr=0.01, **options), cls(pieces, lr=0.01, **options)
    for step in range(3):
        _set_grads([whole], step)
        at = 0
        for p in pieces:
            p.grad = flow.from_numpy(whole.grad.numpy()[at : at + p.numel()].copy())
            at += p.numel()
        a.step()
        b.step()
    assert whole.dtype.dtype == dtype
    np.testing.assert_array_equal(whole.detach().numpy(), np.concatenate([p.detach().numpy() for p in pieces]))


@pytest.mark.parametrize("cls", [SGD, Adam, RMSprop])
def test_a_parameter_without_gradient_is_untouched_and_has_no_state(cls):
    """Neither decay nor momentum act on it."""
    a, b = _parameters((3,), (3,))
    optimizer = cls([a, b], lr=0.1, weight_decay=0.1)
    before = b.tolist()
    _set_grads([a], 0)
    optimizer.step()
    assert b.tolist() == before and b not in optimizer.state


@pytest.mark.parametrize("name", [n for n in flow.optim.__all__ if n not in NO_OPTIMIZERS])
def test_single_numbers_are_parameters_too(name):
    """A parameter of shape () takes the steps of one of shape (1,), and stays an array."""
    cls = getattr(flow.optim, name)
    extra = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {"amsgrad": True} if name in ("Adam", "AdamW") else {}
    a, b = (flow.full(shape, 0.5, requires_grad=True) for shape in ((), (1,)))
    for p in (a, b):
        optimizer = cls([p], **extra)
        for g in (0.3, -0.2, 0.4):
            p.grad = flow.full(p.shape, g)
            optimizer.step()
    assert type(a.detach().numpy()) is np.ndarray and a.shape == ()
    assert a.item() == b.item() != 0.5


def test_numpy_and_tensor_rates_do_not_widen_parameters():
    """A float64 scalar as the rate leaves float32 parameters float32."""
    for lr in (np.float64(0.1), flow.tensor(0.1, dtype=flow.float64)):
        (p,) = _parameters((2,))
        optimizer = SGD([p], lr=lr, momentum=np.float64(0.9), weight_decay=np.float64(0.01))
        _set_grads([p], 1)
        optimizer.step()
        assert p.dtype is flow.float32 and optimizer.state[p]["momentum_buffer"].dtype is flow.float32


def test_half_parameters_are_updated_in_float32():
    """State is float32, and steps too small for float16 are not lost in it."""
    p = flow.ones(4, dtype=flow.float16, requires_grad=True)
    optimizer = Adam([p], lr=1e-2)
    p.grad = flow.full((4,), 1e-4, dtype=flow.float16)
    optimizer.step()
    assert p.dtype is flow.float16
    assert optimizer.state[p]["exp_avg_sq"].dtype is flow.float32
    np.testing.assert_allclose(p.tolist(), 0.99, rtol=1e-3)


def test_state_dicts_resume_exactly_and_are_plain():
    """Saved after two steps and loaded into a fresh optimizer, the third step is the same."""
    for cls in (SGD, AdamW):
        params = _parameters((3, 2), (4,))
        optimizer = cls(params, lr=0.05, **({"momentum": 0.9} if cls is SGD else {"amsgrad": True}))
        for step in range(2):
            _set_grads(params, step)
            optimizer.step()
        copies = [flow.from_numpy(p.numpy(force=True).copy()).requires_grad_() for p in params]
        other = cls(copies, lr=1.0)
        state = pickle.loads(pickle.dumps(optimizer.state_dict()))
        assert list(state) == ["state", "param_groups"] and state["param_groups"][0]["params"] == [0, 1]
        other.load_state_dict(state)
        for ps, o in ((params, optimizer), (copies, other)):
            _set_grads(ps, 9)
            o.step()
        for p, q in zip(params, copies, strict=True):
            assert p.tolist() == q.tolist()
        with pytest.raises(ValueRangeError, match=r"\[2\].*\[1\]"):
            cls(copies[:1], lr=1.0).load_state_dict(state)


def test_loaded_state_is_a_copy():
    """Steps after loading do not change the saved state."""
    (p,) = _parameters((2,))
    optimizer = SGD([p], lr=0.1, momentum=0.9)
    _set_grads([p], 0)
    optimizer.step()
    state = optimizer.state_dict()
    before = copy.deepcopy(state["state"][0]["momentum_buffer"].tolist())
    other = SGD([p], lr=0.1, momentum=0.9)
    other.load_state_dict(state)
    other.step()
    assert state["state"][0]["momentum_buffer"].tolist() == before


def test_zero_grad_forgets_or_zeroes():
    """The default sets None; otherwise zeros in place."""
    (p,) = _parameters((2,))
    optimizer = SGD([p], lr=0.1)
    _set_grads([p], 0)
    array = p.grad.numpy()
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0, 0] and array.tolist() == [0, 0]
    optimizer.zero_grad()
    assert p.grad is None


def test_hooks_and_closures():
    """Hooks run around a step; the closure's loss is returned and runs with recording on."""
    (p,) = _parameters((2,))
    optimizer = SGD([p], lr=0.1)
    calls = []
    first = optimizer.register_step_pre_hook(lambda o, a, k: calls.append("before"))
    optimizer.register_step_post_hook(lambda o, a, k: calls.append("after"))

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        calls.append("closure")
        return loss

    with flow.no_grad():
        loss = optimizer.step(closure)
    assert loss.requires_grad
    first.remove()
    optimizer.step()
    assert calls == ["before", "closure", "after", "after"]


def test_a_step_is_a_change_that_backward_notices():
    """Backward through values that a step has changed is refused."""
    (p,) = _parameters((2,))
    y = (p * p).sum()
    p.grad = flow.ones(2)
    SGD([p], lr=0.1).step()
    with pytest.raises(RuntimeError, match="changed in place"):
        y.backward()
    q = p.detach().requires_grad_()
    z = (q * q).sum()
    q.grad = flow.ones(2)
    SGD([q], lr=0.1).step()
    with pytest.raises(RuntimeError, match="changed in place"):
        z.backward()


@pytest.mark.parametrize(
    ("params", "error", "text"),
    [
        (lambda p: [], ValueRangeError, "empty parameter list"),
        (lambda p: p, DtypeError, "iterable of tensors"),
        (lambda p: [p, p], ValueRangeError, "more than one parameter group, or twice"),
        (lambda p: [{"params": [p]}, {"params": [p]}], ValueRangeError, "more than one parameter group"),
        (lambda p: [p * 2], ValueRangeError, "non-leaf"),
        (lambda p: [3], DtypeError, "optimizers take tensors, not int"),
        (lambda p: [{"params": {p}}], DtypeError, "order of parameters"),
    ],
)
def test_bad_parameters_are_refused(params, error, text):
    """Each with what is wrong."""
    (p,) = _parameters((2,))
    with pytest.raises(error, match=text):
        SGD(params(p), lr=0.1)


@pytest.mark.parametrize(
    ("cls", "options", "text"),
    [
        (SGD, {"lr": -1.0}, "learning rate: -1.0"),
        (SGD, {"momentum": -0.1}, "momentum value"),
        (SGD, {"nesterov": True}, "Nesterov"),
        (Adam, {"betas": (1.0, 0.9)}, "beta parameter at index 0"),
        (Adam, {"betas": (0.9, 1.5)}, "beta parameter at index 1"),
        (Adam, {"eps": -1e-8}, "epsilon"),
        (AdamW, {"weight_decay": -1}, "weight_decay"),
        (AdamW, {"differentiable": True}, "differentiable=True"),
    ],
)
def test_bad_options_are_refused(cls, options, text):
    """Each is named with its value."""
    with pytest.raises(ValueError, match=text):
        cls(_parameters((2,)), **options)


def test_named_parameters_and_the_repr():
    """Pairs of name and tensor are taken; the repr lists the options."""
    (p,) = _parameters((2,))
    optimizer = SGD([("w", p)], lr=0.5)
    assert optimizer.param_groups[0]["param_names"] == ["w"] and optimizer.param_groups[0]["params"][0] is p
    assert "lr: 0.5" in repr(optimizer) and "Parameter Group 0" in repr(optimizer)
