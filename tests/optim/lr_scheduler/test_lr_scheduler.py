"""Schedules against their closed forms."""

import math

import pytest

import ddpflow as flow
from ddpflow.errors import DtypeError, ValueRangeError
from ddpflow.optim import SGD, Adam
from ddpflow.optim import lr_scheduler as S

BASE = 0.4


def _rates(make, steps=25, optimizer=None):
    optimizer = optimizer or SGD([flow.zeros(1, requires_grad=True)], lr=BASE, momentum=0.9)
    schedule = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        schedule.step()
    return rates


def _cosine(e, period, low):
    return low + (BASE - low) * (1 + math.cos(math.pi * e / period)) / 2


CLOSED = {
    "LambdaLR": (lambda o: S.LambdaLR(o, lambda e: 1 / (1 + e)), lambda e: BASE / (1 + e)),
    "MultiplicativeLR": (lambda o: S.MultiplicativeLR(o, lambda e: 0.9), lambda e: BASE * 0.9**e),
    "StepLR": (lambda o: S.StepLR(o, 4, 0.5), lambda e: BASE * 0.5 ** (e // 4)),
    "MultiStepLR": (lambda o: S.MultiStepLR(o, [2, 5, 5], 0.5), lambda e: BASE * 0.5 ** ((e >= 2) + 2 * (e >= 5))),
    "ExponentialLR": (lambda o: S.ExponentialLR(o, 0.8), lambda e: BASE * 0.8**e),
    "ConstantLR": (lambda o: S.ConstantLR(o, 0.25, 3), lambda e: BASE * (0.25 if e < 3 else 1)),
    "LinearLR": (lambda o: S.LinearLR(o, 0.2, 0.8, 6), lambda e: BASE * (0.2 + 0.6 * min(e, 6) / 6)),
    "PolynomialLR": (lambda o: S.PolynomialLR(o, 8, 2.0), lambda e: BASE * max(0, 1 - e / 8) ** 2),
    "CosineAnnealingLR": (lambda o: S.CosineAnnealingLR(o, 7, 0.1), lambda e: _cosine(e, 7, 0.1)),
    "WarmRestarts": (
        lambda o: S.CosineAnnealingWarmRestarts(o, 3, 2, 0.1),
        lambda e: _cosine(
            *((e, 3) if e < 3 else (e - 3, 6) if e < 9 else (e - 9, 12) if e < 21 else (e - 21, 24)), 0.1
        ),
    ),
    "Sequential": (
        lambda o: S.SequentialLR(o, [S.ConstantLR(o, 0.1, 100), S.ExponentialLR(o, 0.9)], [4]),
        lambda e: BASE * 0.1 if e < 4 else BASE * 0.9 ** (e - 4),
    ),
    "Chained": (
        lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.5, 3), S.ExponentialLR(o, 0.9)]),
        lambda e: BASE * 0.9**e * (0.5 if e < 3 else 1),
    ),
}


@pytest.mark.parametrize("name", list(CLOSED))
def test_rates_follow_the_closed_form(name):
    """Twenty-five steps."""
    make, closed = CLOSED[name]
    assert _rates(make) == pytest.approx([closed(e) for e in range(25)], rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("name", [n for n in CLOSED if n not in ("Sequential", "Chained")])
def test_state_dicts_resume(name):
    """A schedule that was saved after nine steps goes on as if it had not been."""
    make, closed = CLOSED[name]
    p = flow.zeros(1, requires_grad=True)
    first = SGD([p], lr=BASE)
    schedule = make(first)
    for _ in range(9):
        schedule.step()
    second = SGD([p], lr=BASE)
    other = make(second)
    other.load_state_dict(schedule.state_dict())
    second.load_state_dict(first.state_dict())
    for e in range(9, 20):
        assert second.param_groups[0]["lr"] == pytest.approx(closed(e), rel=1e-12, abs=1e-15)
        assert other.get_last_lr() == pytest.approx([second.param_groups[0]["lr"]])
        other.step()


def test_combined_schedules_resume():
    """SequentialLR and ChainedScheduler save what they are made of."""
    for name in ("Sequential", "Chained"):
        make, closed = CLOSED[name]
        p = flow.zeros(1, requires_grad=True)
        first, second = SGD([p], lr=BASE), SGD([p], lr=BASE)
        a, b = make(first), make(second)
        for _ in range(6):
            a.step()
        b.load_state_dict(a.state_dict())
        second.load_state_dict(first.state_dict())
        for e in range(6, 12):
            assert second.param_groups[0]["lr"] == pytest.approx(closed(e), rel=1e-12)
            b.step()


def test_groups_have_rates_of_their_own():
    """Each group's initial rate is scheduled by its own function."""
    a, b = flow.zeros(1, requires_grad=True), flow.zeros(1, requires_grad=True)
    optimizer = SGD([{"params": [a], "lr": 1.0}, {"params": [b], "lr": 2.0}])
    schedule = S.LambdaLR(optimizer, [lambda e: 1 / (1 + e), lambda e: 0.5**e])
    schedule.step()
    schedule.step()
    assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([1 / 3, 0.5])
    with pytest.raises(ValueRangeError, match="3 entries for 2"):
        S.LambdaLR(optimizer, [lambda e: 1.0] * 3)


def test_cyclic_rates_go_up_and_down_and_momentum_the_other_way():
    """Triangles between 0.1 and 0.5, five up and ten down; the second is half as high."""
    optimizer = SGD([flow.zeros(1, requires_grad=True)], lr=0.1, momentum=0.9)
    schedule = S.CyclicLR(optimizer, 0.1, 0.5, 5, 10, "triangular2", base_momentum=0.7, max_momentum=0.9)
    for e in range(30):
        place, height = e % 15, 1.0 if e < 15 else 0.5
        share = height * (place / 5 if place <= 5 else (15 - place) / 10)
        group = optimizer.param_groups[0]
        assert group["lr"] == pytest.approx(0.1 + 0.4 * share)
        assert group["momentum"] == pytest.approx(0.9 - 0.2 * share)
        schedule.step()
    with pytest.raises(ValueRangeError, match="cycles momentum"):
        S.CyclicLR(flow.optim.Rprop([flow.zeros(1, requires_grad=True)]), 0.1, 0.5)


@pytest.mark.parametrize("strategy", ["cos", "linear"])
def test_one_cycle_meets_its_corners(strategy):
    """First max / 25, at 30 % the maximum, last far below; Adam's first beta moves the other way."""
    optimizer = Adam([flow.zeros(1, requires_grad=True)], lr=1.0)
    schedule = S.OneCycleLR(optimizer, 0.5, 101, anneal_strategy=strategy, pct_start=31 / 101)
    seen = []
    for _ in range(101):
        seen.append((optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["betas"][0]))
        schedule.step()
    assert seen[0] == pytest.approx((0.02, 0.95)) and seen[30] == pytest.approx((0.5, 0.85))
    assert seen[100] == pytest.approx((0.02e-4, 0.95))
    rates = [r for r, _ in seen]
    assert rates[:31] == sorted(rates[:31]) and rates[30:] == sorted(rates[30:], reverse=True)
    with pytest.raises(ValueRangeError, match="after the last of 101"):
        schedule.step()


def test_plateaus_lower_the_rate_after_the_patience():
    """Two bad epochs are let pass, the third halves; after that one epoch is not counted; 0.2 is the lowest."""
    optimizer = SGD([flow.zeros(1, requires_grad=True)], lr=1.0)
    schedule = S.ReduceLROnPlateau(optimizer, factor=0.5, patience=2, cooldown=1, min_lr=0.2)
    rates = []
    for metric in [1.0, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4]:
        schedule.step(flow.tensor(metric))
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [1.0] * 4 + [0.5] * 4 + [0.25] * 4 + [0.2] * 4
    up = S.ReduceLROnPlateau(
        SGD([flow.zeros(1, requires_grad=True)], lr=1.0), "max", threshold_mode="abs", threshold=0.1
    )
    up.step(1.0)
    assert up.is_better(1.2, up.best) and not up.is_better(1.05, up.best)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda o: S.LinearLR(o, 0), "factors"),
        (lambda o: S.ConstantLR(o, 2), "factor"),
        (lambda o: S.CosineAnnealingWarmRestarts(o, 0), "T_0"),
        (lambda o: S.SequentialLR(o, [S.ConstantLR(o)], [1]), "milestones"),
        (lambda o: S.OneCycleLR(o, 0.1), "total_steps"),
        (lambda o: S.OneCycleLR(o, 0.1, 10, pct_start=2), "pct_start"),
        (lambda o: S.CyclicLR(o, 0.1, 0.2, mode="square"), "mode"),
        (lambda o: S.ReduceLROnPlateau(o, factor=1.0), "factor"),
        (lambda o: S.StepLR(o, 3, last_epoch=4), "initial_lr"),
    ],
)
def test_bad_options_are_refused(make, text):
    """Each is named."""
    with pytest.raises(ValueRangeError, match=text):
        make(SGD([flow.zeros(1, requires_grad=True)], lr=0.1, momentum=0.9))


def test_only_optimizers_are_scheduled():
    """Something else is a TypeError that says what it is."""
    with pytest.raises(DtypeError, match="takes an optimizer, not list"):
        S.StepLR([], 3)
