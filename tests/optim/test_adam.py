"""Adam and its relatives against their formulas in NumPy, and the values that fix their order of operations."""

import numpy as np
import pytest

import ddpflow as flow
from ddpflow.optim import Adam, Adamax, AdamW, NAdam, RAdam
from tests.doubles.fake_cupy import installed
from tests.doubles.raw_kernels import needs_compiler
from tests.doubles.timeline import state

B1, B2, EPS, LR, WD = 0.9, 0.99, 1e-6, 0.05, 0.1


def _reference(name, amsgrad, steps):
    """All iterates, written out from the papers' formulas."""
    rng = np.random.default_rng(1)
    w = rng.standard_normal(5)
    m, v, top, product = np.zeros(5), np.zeros(5), np.zeros(5), 1.0
    out = []
    for t in range(1, steps + 1):
        g = rng.standard_normal(5)
        if name == "AdamW":
            w = w - LR * WD * w
        else:
            g = g + WD * w
        m = B1 * m + (1 - B1) * g
        if name == "Adamax":
            top = np.maximum(B2 * top, np.abs(g) + EPS)
            w = w - LR / (1 - B1**t) * m / top
        else:
            v = B2 * v + (1 - B2) * g * g
            mh, vh = m / (1 - B1**t), v / (1 - B2**t)
            if amsgrad:
                top = np.maximum(top, v)
                vh = top / (1 - B2**t)
            if name == "NAdam":
                mu, after = (B1 * (1 - 0.5 * 0.96 ** (k * 4e-3)) for k in (t, t + 1))
                product *= mu
                mh = after * m / (1 - product * after) + (1 - mu) * g / (1 - product)
            if name == "RAdam":
                longest = 2 / (1 - B2) - 1
                length = longest - 2 * t * B2**t / (1 - B2**t)
                if length > 5:
                    r = ((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)) ** 0.5
                    w = w - LR * mh * r * (1 - B2**t) ** 0.5 / (np.sqrt(v) + EPS)
                else:
                    w = w - LR * mh
            else:
                w = w - LR * mh / (np.sqrt(vh) + EPS)
        out.append(w)
    return out


@pytest.mark.parametrize(
    ("cls", "amsgrad"),
    [(Adam, False), (Adam, True), (AdamW, False), (AdamW, True), (Adamax, False), (NAdam, False), (RAdam, False)],
)
def test_steps_follow_the_formula(cls, amsgrad):
    """Twelve steps in float64."""
    rng = np.random.default_rng(1)
    p = flow.from_numpy(rng.standard_normal(5)).requires_grad_()
    options = {"amsgrad": True} if amsgrad else {}
    optimizer = cls([p], lr=LR, betas=(B1, B2), eps=EPS, weight_decay=WD, **options)
    for expected in _reference(cls.__name__, amsgrad, 12):
        p.grad = flow.from_numpy(rng.standard_normal(5))
        optimizer.step()
        np.testing.assert_allclose(p.detach().numpy(), expected, rtol=1e-11)


def test_eps_is_added_after_bias_correction():
    """One step with g = 1, lr = 1, eps = 0.1 changes by 1 / 1.1."""
    p = flow.zeros(1, requires_grad=True)
    p.grad = flow.ones(1)
    Adam([p], lr=1.0, eps=0.1).step()
    assert p.item() == pytest.approx(-1 / 1.1, rel=1e-5)


def test_adamw_decays_the_old_weight_apart_from_the_gradient():
    """With a zero gradient AdamW shrinks by lr * decay, Adam moves by about lr."""
    for cls, expected in ((AdamW, 0.999), (Adam, 0.99)):
        p = flow.ones(1, requires_grad=True)
        p.grad = flow.zeros(1)
        cls([p], lr=0.01, weight_decay=0.1).step()
        assert p.item() == pytest.approx(expected, rel=1e-5)


def test_decoupled_decay_of_the_relatives():
    """NAdam and RAdam can decay as AdamW does."""
    for cls in (NAdam, RAdam):
        p = flow.ones(1, requires_grad=True)
        p.grad = flow.zeros(1)
        cls([p], lr=0.01, weight_decay=0.1, decoupled_weight_decay=True).step()
        assert p.item() == pytest.approx(0.999, rel=1e-6)


KINDS = {"float32": [(3, 4), (5,), (2, 2050)], "bfloat16": [(6,), (7, 3)], "float64": [(2, 3)]}


def trained(cls, place, options, kinds=KINDS, missing=(), change=None):
    """Parameters of several dtypes after three steps, and how many launches each step took."""
    params, launches = [], []
    for kind, shapes in kinds.items():
        for k, shape in enumerate(shapes):
            values = np.random.default_rng(k).standard_normal(shape)
            params.append(flow.tensor(values.astype(np.float32)).to(getattr(flow, kind)).to(place))
    params = [p.requires_grad_() if change is None else change(p).requires_grad_() for p in params]
    optimizer = cls(params, 0.05, weight_decay=0.1, **options)
    for step in range(3):
        for k, p in enumerate(params):
            g = np.random.default_rng(10 * step + k).standard_normal(p.shape).astype(np.float32)
            p.grad = None if (step, k) in missing else flow.tensor(g).to(p.dtype).to(place)
        before = state().launches
        optimizer.step()
        launches.append(state().launches - before)
    assert [p._version for p in params] == [3 - sum(k == n for _, n in missing) for k in range(len(params))]
    return [p.detach().float().cpu().numpy() for p in params], launches, optimizer


@needs_compiler
@pytest.mark.parametrize("cls", [Adam, AdamW])
@pytest.mark.parametrize("options", [{}, {"amsgrad": True, "maximize": True}], ids=str)
def test_one_launch_on_a_gpu(cls, options):
    """On the CuPy stand-in all parameters of a dtype take one launch, and end where the CPU's do."""
    expected, _, _ = trained(cls, "cpu", options)
    with installed():
        found, launches, optimizer = trained(cls, "cuda", options)
        assert launches[1:] == [len(KINDS)] * 2
        kept = [{v.dtype for v in s.values() if isinstance(v, flow.Tensor)} for s in optimizer.state.values()]
        assert kept == [{flow.float32}] * 5 + [{flow.float64}]
    for ours, cpu in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, cpu, rtol=1e-2 if len(cpu) in (6, 7) else 2e-5, atol=1e-5)


@needs_compiler
def test_parameters_that_miss_steps_on_a_gpu():
    """Parameters at different steps take a launch for each step number; one without a gradient stays as it is."""
    missing = {(0, 1), (2, 2)}
    expected, _, _ = trained(AdamW, "cpu", {}, {"float32": KINDS["float32"]}, missing)
    with installed():
        found, launches, _ = trained(AdamW, "cuda", {}, {"float32": KINDS["float32"]}, missing)
        assert launches[1:] == [2 + 2, 2]  # the second parameter's state is made in the second step
    for ours, cpu in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, cpu, rtol=2e-5, atol=1e-5)


def test_what_the_kernel_cannot_take_on_a_gpu():
    """A parameter that is not contiguous, and a subclass with its own update, get the formulas."""

    class Halved(AdamW):
        def update(self, xp, param, grad, state, group):
            super().update(xp, param, grad * 0.5, state, group)

    def transpose(p):
        return flow.Tensor(p.array.T) if p.ndim == 2 else p

    for cls, change in ((AdamW, transpose), (Halved, None)):
        expected, _, _ = trained(cls, "cpu", {}, {"float32": KINDS["float32"]}, change=change)
        with installed():
            found, launches, _ = trained(cls, "cuda", {}, {"float32": KINDS["float32"]}, change=change)
            assert launches[-1] > 10
        for ours, cpu in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, cpu, rtol=2e-5, atol=1e-5)
