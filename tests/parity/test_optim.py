"""Optimizers and schedules against PyTorch's: 200 steps from the same start, with every option."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="compares with PyTorch; `make parity` installs it")

import ddpflow as flow

pytestmark = pytest.mark.torch

CASES = [
    ("SGD", {"lr": 0.05}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {"lr": 0.05, "amsgrad": True, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.9), "eps": 1e-4, "maximize": True}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.1}),
    ("AdamW", {"amsgrad": True}),
    ("Adamax", {"weight_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1}),
    ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1, "momentum_decay": 0.01}),
    ("RAdam", {"lr": 0.05, "weight_decay": 0.1}),
    ("RAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    ("Adagrad", {"lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2}),
    ("Adadelta", {"weight_decay": 0.1, "rho": 0.8}),
    ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.9, "centered": True, "weight_decay": 0.1, "alpha": 0.9}),
    ("Rprop", {"etas": (0.4, 1.3), "step_sizes": (1e-4, 5)}),
    ("ASGD", {"t0": 10, "weight_decay": 0.1, "lambd": 0.01, "alpha": 0.6}),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_two_hundred_steps(name, options):
    """Every parameter within 1e-6 of PyTorch's, relative to the largest, in float32."""
    rng = np.random.default_rng(0)
    start = [rng.standard_normal(s).astype(np.float32) for s in ((4, 3), (3,), (), (300, 100))]
    theirs = [torch.from_numpy(p.copy()).requires_grad_() for p in start]
    ours = [flow.from_numpy(p.copy()).requires_grad_() for p in start]
    a, b = getattr(torch.optim, name)(theirs, **options), getattr(flow.optim, name)(ours, **options)
    for _ in range(200):
        for p, q in zip(theirs, ours, strict=True):
            g = np.asarray(rng.standard_normal(p.shape), np.float32)
            p.grad, q.grad = torch.from_numpy(g.copy()), flow.from_numpy(g)
        a.step()
        b.step()
    for p, q in zip(theirs, ours, strict=True):
        expected = p.detach().numpy()
        np.testing.assert_allclose(q.detach().numpy(), expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("line_search", [None, "strong_wolfe"])
def test_lbfgs(line_search):
    """A quartic in three variables, six steps of seven iterations, in float64."""
    A, b = np.diag([1.0, 10.0, 3.0]), np.array([1.0, -2.0, 0.5])
    x, y = (
        torch.zeros(3, dtype=torch.float64, requires_grad=True),
        flow.zeros(3, dtype=flow.float64, requires_grad=True),
    )
    options = {"lr": 0.5, "line_search_fn": line_search, "max_iter": 7}
    theirs, ours = torch.optim.LBFGS([x], **options), flow.optim.LBFGS([y], **options)

    def closure(v, optimizer, lib, from_numpy):
        def call():
            optimizer.zero_grad()
            z = from_numpy(A) @ v - from_numpy(b)
            loss = (z**4).sum() / 4 + (v * v).sum() / 2
            loss.backward()
            return loss

        return call

    for _ in range(6):
        theirs.step(closure(x, theirs, torch, torch.from_numpy))
        ours.step(closure(y, ours, flow, flow.from_numpy))
    np.testing.assert_allclose(y.detach().numpy(), x.detach().numpy(), rtol=1e-9)


def _sequence(module, optimizer):
    return module.SequentialLR(
        optimizer, [module.LinearLR(optimizer, 0.1, 1.0, 4), module.CosineAnnealingLR(optimizer, 10)], [4]
    )


SCHEDULES = {
    "StepLR": lambda m, o: m.StepLR(o, 3),
    "MultiStepLR": lambda m, o: m.MultiStepLR(o, [2, 5, 5]),
    "ExponentialLR": lambda m, o: m.ExponentialLR(o, 0.9),
    "CosineAnnealingLR": lambda m, o: m.CosineAnnealingLR(o, 7, 0.01),
    "CosineAnnealingWarmRestarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 5, 2),
    "LinearLR": lambda m, o: m.LinearLR(o),
    "ConstantLR": lambda m, o: m.ConstantLR(o),
    "PolynomialLR": lambda m, o: m.PolynomialLR(o, 9, 2.0),
    "LambdaLR": lambda m, o: m.LambdaLR(o, lambda e: 0.95**e),
    "MultiplicativeLR": lambda m, o: m.MultiplicativeLR(o, lambda e: 0.95),
    "CyclicLR": lambda m, o: m.CyclicLR(o, 0.1, 0.5, 3, 4, "triangular2"),
    "CyclicLR exp": lambda m, o: m.CyclicLR(o, 0.1, 0.5, 3, 4, "exp_range", 0.95),
    "OneCycleLR": lambda m, o: m.OneCycleLR(o, 0.7, 40),
    "OneCycleLR three": lambda m, o: m.OneCycleLR(o, 0.7, 40, anneal_strategy="linear", three_phase=True),
    "SequentialLR": _sequence,
    "ChainedScheduler": lambda m, o: m.ChainedScheduler([m.LinearLR(o, 0.1, 1.0, 4), m.ExponentialLR(o, 0.9)]),
}


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_schedules(name):
    """Thirty steps of rate and momentum."""
    theirs = torch.optim.SGD([torch.zeros(1)], lr=0.4, momentum=0.9)
    ours = flow.optim.SGD([flow.zeros(1)], lr=0.4, momentum=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that the optimizer was not stepped
        a, b = SCHEDULES[name](torch.optim.lr_scheduler, theirs), SCHEDULES[name](flow.optim.lr_scheduler, ours)
        for _ in range(30):
            for key in ("lr", "momentum"):
                assert ours.param_groups[0][key] == pytest.approx(theirs.param_groups[0][key], rel=1e-12)
            assert b.get_last_lr() == [ours.param_groups[0]["lr"]]
            a.step()
            b.step()
