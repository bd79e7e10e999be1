"""PyTorch's own samples for its modules and optimizers, through ddpflow: outputs, gradients, buffers, parameters."""

import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make parity` makes an environment that has it")
pytest.importorskip("expecttest", reason="PyTorch's tables of samples need the package expecttest")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db

import ddpflow
from tests.parity.bridge import array_of, difference, flatten, grad_leaves, holds_module, to_ours

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

MAX_SAMPLES = 20
STEPS = 40
# Options of PyTorch's optimizers that choose an implementation, not a result.
IMPLEMENTATION = {"foreach", "fused", "differentiable", "capturable"}


def ours_of(name: str) -> Any:
    """Returns ddpflow's class for PyTorch's "nn.Linear" or "optim.SGD", or None."""
    place: Any = ddpflow
    for part in name.split("."):
        place = getattr(place, part, None)
    return place


def modules() -> list[Any]:
    """Returns a test parameter for each module that both libraries have, in both modes."""
    return [
        pytest.param(info, training, id=f"{info.name}-{'train' if training else 'eval'}")
        for info in module_db
        if ours_of(info.name) is not None and "Lazy" not in info.name
        for training in (True, False)
    ]


def build(info: Any, sample: Any, training: bool) -> tuple[Any, Any]:
    """Returns PyTorch's module and ours, with the same parameters and buffers."""
    given = sample.constructor_input
    theirs = info.module_cls(*given.args, **given.kwargs).to(torch.float64).train(training)
    args, kwargs = to_ours([list(given.args), dict(given.kwargs)], [])
    ours = ours_of(info.name)(*args, **kwargs).to(ddpflow.float64).train(training)
    state = theirs.state_dict()
    ours.load_state_dict({name: ddpflow.from_numpy(np.array(value.numpy())) for name, value in state.items()})
    return ours, theirs


def problem_of(info: Any, sample: Any, training: bool) -> str | None:
    """Runs one sample forward and backward on both sides and returns what differs."""
    ours, theirs = build(info, sample, training)
    given = [list(sample.forward_input.args), dict(sample.forward_input.kwargs)]
    leaves_theirs, leaves = list(grad_leaves(given)), []
    args, kwargs = to_ours(given, leaves)
    wanted = [part for part in flatten(theirs(*given[0], **given[1])) if isinstance(part, torch.Tensor)]
    got = [part for part in flatten(ours(*args, **kwargs)) if isinstance(part, ddpflow.Tensor)]
    if len(got) != len(wanted):
        return f"{len(got)} outputs, not {len(wanted)}"
    pairs = [("output", own, other) for own, other in zip(got, wanted, strict=True)]
    roots = [i for i, other in enumerate(wanted) if other.requires_grad]
    if roots:
        generator = np.random.default_rng(0)
        pushed = [np.asarray(generator.standard_normal(wanted[i].shape)) for i in roots]
        torch.autograd.backward([wanted[i] for i in roots], [torch.from_numpy(p) for p in pushed])
        ddpflow.autograd.backward([got[i] for i in roots], [ddpflow.from_numpy(p) for p in pushed])
        pairs += [("input gradient", own.grad, other.grad) for own, other in zip(leaves, leaves_theirs, strict=True)]
        mine = dict(ours.named_parameters())
        pairs += [(f"gradient of {name}", mine[name].grad, other.grad) for name, other in theirs.named_parameters()]
    buffers = dict(ours.named_buffers())
    pairs += [(f"buffer {name}", buffers[name], other) for name, other in theirs.named_buffers()]
    for name, own, other in pairs:
        if other is not None and (found := difference(own, other, rtol=1e-7, atol=1e-9)):
            return f"{name}: {found}"
    return None


@pytest.mark.parametrize(("info", "training"), modules())
def test_module(info, training):
    """Outputs, gradients and buffers are PyTorch's, for each of its own samples."""
    torch.manual_seed(0)
    samples = info.module_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=True, training=training)[
        :MAX_SAMPLES
    ]
    problems: Counter[str] = Counter()
    for sample in samples:
        random = sample.constructor_input.kwargs.get("dropout") or "Dropout" in info.name
        if sample.forward_input is None or (random and training) or holds_module(sample.constructor_input.args):
            continue
        try:
            problem = problem_of(info, sample, training)
        except Exception as error:  # whatever ddpflow raised, PyTorch took the sample
            problem = f"{type(error).__name__}: {error}"
        if problem:
            problems[f"{sample.constructor_input.args} {sample.constructor_input.kwargs}: {problem}"] += 1
    assert not problems, f"{sum(problems.values())} of {len(samples)} samples:\n" + "\n".join(list(problems)[:3])


def optimizers() -> list[Any]:
    """Returns a test parameter for each optimizer that both libraries have and each of its sets of options."""
    chosen = []
    for info in optim_db:
        name = f"optim.{info.optim_cls.__name__}"
        if ours_of(name) is None:
            continue
        for sample in info.optim_inputs_func(device="cpu"):
            options = {key: value for key, value in sample.kwargs.items() if key not in IMPLEMENTATION}
            if any(isinstance(value, torch.Tensor) for value in options.values()):
                continue
            identity = f"{name}-{sample.desc}".replace(" ", "_")
            chosen.append(pytest.param(info.optim_cls, ours_of(name), options, id=identity))
    return chosen


@pytest.mark.parametrize(("theirs", "ours", "options"), optimizers())
def test_optimizer(theirs, ours, options):
    """The same gradients lead to the same parameters after forty steps."""
    generator = np.random.default_rng(0)
    starts = [generator.standard_normal(shape) for shape in ((4, 3), (3,), (5, 2))]
    a = [ddpflow.from_numpy(start.copy()).requires_grad_() for start in starts]
    b = [torch.from_numpy(start.copy()).requires_grad_() for start in starts]
    mine, other = ours(a, **options), theirs(b, **options)
    for _ in range(STEPS):
        for p, q in zip(a, b, strict=True):
            gradient = generator.standard_normal(q.shape)
            p.grad, q.grad = ddpflow.from_numpy(gradient.copy()), torch.from_numpy(gradient.copy())
        for optimizer, parameters in ((mine, a), (other, b)):
            optimizer.step(lambda parameters=parameters: sum((p.detach() ** 2).sum() for p in parameters))
    for p, q in zip(a, b, strict=True):
        np.testing.assert_allclose(array_of(p), array_of(q), rtol=1e-6, atol=1e-8)
