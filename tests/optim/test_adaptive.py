"""Adagrad, Adadelta, RMSprop, Rprop and averaged SGD against their formulas in NumPy."""

import numpy as np
import pytest

import ddpflow as flow
from ddpflow.optim import ASGD, Adadelta, Adagrad, RMSprop, Rprop


def _adagrad(w, g, s, t):
    g = g + 0.1 * w
    s["sum"] = s.get("sum", 0.2) + g * g
    return w - 0.05 / (1 + (t - 1) * 0.3) * g / (np.sqrt(s["sum"]) + 1e-10)


def _adadelta(w, g, s, t):
    g = g + 0.1 * w
    s["v"] = 0.8 * s.get("v", 0) + 0.2 * g * g
    d = np.sqrt(s.get("d", 0) + 1e-6) / np.sqrt(s["v"] + 1e-6) * g
    s["d"] = 0.8 * s.get("d", 0) + 0.2 * d * d
    return w - 0.05 * d


def _rmsprop(w, g, s, t):
    g = g + 0.1 * w
    s["v"] = 0.9 * s.get("v", 0) + 0.1 * g * g
    s["m"] = 0.9 * s.get("m", 0) + 0.1 * g
    s["b"] = 0.7 * s.get("b", 0) + g / (np.sqrt(s["v"] - s["m"] ** 2) + 1e-8)
    return w - 0.05 * s["b"]


def _rprop(w, g, s, t):
    size, last = s.get("size", np.full(w.shape, 0.05)), s.get("last", np.zeros(w.shape))
    kept = np.sign(g * last)
    size = np.clip(np.where(kept > 0, size * 1.2, np.where(kept < 0, size * 0.5, size)), 1e-6, 50)
    g = np.where(kept < 0, 0, g)
    s["size"], s["last"] = size, g
    return w - np.sign(g) * size


def _asgd(w, g, s, t):
    g = g + 0.1 * w
    eta = 0.05 if t == 1 else 0.05 / (1 + 0.2 * 0.05 * (t - 1)) ** 0.75
    return w * (1 - 0.2 * eta) - eta * g


CASES = {
    "Adagrad": (
        Adagrad,
        {"lr": 0.05, "lr_decay": 0.3, "weight_decay": 0.1, "initial_accumulator_value": 0.2},
        _adagrad,
    ),
    "Adadelta": (Adadelta, {"lr": 0.05, "rho": 0.8, "weight_decay": 0.1}, _adadelta),
    "RMSprop": (RMSprop, {"lr": 0.05, "alpha": 0.9, "momentum": 0.7, "centered": True, "weight_decay": 0.1}, _rmsprop),
    "Rprop": (Rprop, {"lr": 0.05}, _rprop),
    "ASGD": (ASGD, {"lr": 0.05, "lambd": 0.2, "t0": 3, "weight_decay": 0.1}, _asgd),
}


@pytest.mark.parametrize("name", list(CASES))
def test_steps_follow_the_formula(name):
    """Ten steps in float64."""
    cls, options, step = CASES[name]
    rng = np.random.default_rng(2)
    w = rng.standard_normal(6)
    p = flow.from_numpy(w.copy()).requires_grad_()
    optimizer = cls([p], **options)
    state = {}
    for t in range(1, 11):
        g = rng.standard_normal(6)
        p.grad = flow.from_numpy(g.copy())
        optimizer.step()
        w = step(w, g, state, t)
        np.testing.assert_allclose(p.detach().numpy(), w, rtol=1e-11)


def test_asgd_keeps_the_mean_of_its_iterates():
    """From step t0 + 1 on, the average moves by 1 / n towards each iterate."""
    rng = np.random.default_rng(3)
    p = flow.zeros(3, dtype=flow.float64, requires_grad=True)
    optimizer = ASGD([p], lr=0.1, t0=2)
    iterates = []
    for _ in range(8):
        p.grad = flow.from_numpy(rng.standard_normal(3))
        optimizer.step()
        iterates.append(p.detach().numpy().copy())
    np.testing.assert_allclose(optimizer.state[p]["ax"].numpy(), np.mean(iterates[3:], axis=0), rtol=1e-12)


@pytest.mark.parametrize(
    ("cls", "options", "text"),
    [
        (Adagrad, {"lr_decay": -1}, "lr_decay"),
        (Adadelta, {"rho": 1.5}, "rho"),
        (RMSprop, {"alpha": -0.1}, "alpha"),
        (Rprop, {"etas": (1.1, 1.2)}, "eta values"),
        (ASGD, {"lr": -1}, "learning rate"),
    ],
)
def test_bad_options_are_refused(cls, options, text):
    """Each is named."""
    with pytest.raises(ValueError, match=text):
        cls([flow.zeros(1, requires_grad=True)], **options)
