"""PyTorch's own sample inputs for its operators, through ddpflow: the same outputs and the same gradients.

Every operator in PyTorch's table whose name ddpflow also has is one test. What ddpflow does not have is not tested
here, and what it does otherwise on purpose is in KNOWN_DIFFERENCES, with the reason.
"""

import types
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; `make parity` makes an environment that has it")
pytest.importorskip("expecttest", reason="PyTorch's tables of samples need the package expecttest")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

import ddpflow
from tests.parity.bridge import array_of, difference, find, flatten, grad_leaves, holds_module, to_ours

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

MAX_SAMPLES = 40
DTYPE = torch.float64
TOLERANCE = {"rtol": 1e-7, "atol": 1e-9}
OTHER_KINDS = ("sparse", "_", "fft.", "special.", "jiterator", "masked.", "ops.", "torch.ops", "signal.")
# Random results, uninitialised memory, and functions that exist as methods only.
NOT_COMPARED = {
    *("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted", "zero_"),
    *("bernoulli", "normal", "uniform", "multinomial", "exponential", "rand", "randn", "randint"),
    *("rand_like", "randn_like", "randint_like", "nn.functional.rrelu", "resize_", "resize_as_"),
    *("nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d"),
    *("nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout"),
    *("nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d"),
}
# What has a dropout rate among its samples' arguments, and where it stands.
DROPOUT_ARGUMENT = {"nn.functional.multi_head_attention_forward": 9}
_ONE_TRIANGLE = "the gradient stands in the triangle that is read, and PyTorch fills the other one too"
KNOWN_DIFFERENCES: dict[str, str] = {
    "as_strided.partial_views": "elements of the memory outside the tensor itself are out of range here",
    "cholesky_inverse": _ONE_TRIANGLE,
    "cholesky_solve": _ONE_TRIANGLE,
    "histogramdd": "half of the samples have edges that do not ascend, which are refused here",
    "linalg.eigh": "the sign of an eigenvector is anybody's choice",
    "linalg.pinv.hermitian": _ONE_TRIANGLE,
}


def entries() -> list[Any]:
    """Returns a test parameter for each operator that both libraries have."""
    chosen = []
    for entry in op_db:
        if entry.name.startswith(OTHER_KINDS) or entry.name in NOT_COMPARED or find(entry.name) is None:
            continue
        if DTYPE not in entry.supported_dtypes("cpu"):
            continue
        name = f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else entry.name
        reason = KNOWN_DIFFERENCES.get(name)
        chosen.append(pytest.param(entry, id=name, marks=pytest.mark.xfail(reason=reason) if reason else ()))
    return chosen


def ours_of(entry: Any) -> Any:
    """Returns ddpflow's function; where PyTorch's table wraps its own in a lambda, the same lambda over ddpflow."""
    function = entry.op
    if isinstance(function, types.FunctionType) and function.__name__ == "<lambda>":
        names = {**function.__globals__, "torch": ddpflow}
        return types.FunctionType(function.__code__, names, "<lambda>", function.__defaults__, function.__closure__)
    return find(entry.name)


def problem_of(entry: Any, sample: Any, differentiable: bool) -> str | None:
    """Runs one sample on both sides and returns what differs; samples that PyTorch itself refuses are fine."""
    given = [sample.input, list(sample.args), dict(sample.kwargs)]
    leaves_theirs, leaves = list(grad_leaves(given)), []
    try:
        theirs = flatten(entry.op(sample.input, *sample.args, **sample.kwargs))
    except (RuntimeError, ValueError, TypeError, IndexError):
        return None
    tensor, args, kwargs = to_ours(given, leaves)
    ours = flatten(ours_of(entry)(tensor, *args, **kwargs))
    if len(ours) != len(theirs):
        return f"{len(ours)} outputs, not {len(theirs)}"
    for own, other in zip(ours, theirs, strict=True):
        if isinstance(other, torch.Tensor):
            if found := difference(own, other, **TOLERANCE):
                return found
        elif own != other:
            return f"{own!r}, not {other!r}"
    roots = [i for i, other in enumerate(theirs) if isinstance(other, torch.Tensor) and other.requires_grad]
    if not differentiable or not leaves or not roots:
        return None
    generator = np.random.default_rng(0)
    pushed = [generator.standard_normal(theirs[i].shape).astype(array_of(theirs[i]).dtype) for i in roots]
    wanted = torch.autograd.grad(
        [theirs[i] for i in roots], leaves_theirs, [torch.from_numpy(np.asarray(p)) for p in pushed], allow_unused=True
    )
    got = ddpflow.autograd.grad(
        [ours[i] for i in roots], leaves, [ddpflow.from_numpy(np.asarray(p)) for p in pushed], allow_unused=True
    )
    for number, (own, other) in enumerate(zip(got, wanted, strict=True)):
        zeros = np.zeros(leaves_theirs[number].shape)
        own, other = (zeros if grad is None else grad for grad in (own, other))
        if found := difference(own, other, **TOLERANCE):
            return f"gradient {number}: {found}"
    return None


@pytest.mark.parametrize("entry", entries())
def test_op(entry):
    """Outputs and input gradients are PyTorch's, for each of its own samples."""
    torch.manual_seed(0)
    differentiable = entry.supports_autograd and DTYPE in entry.supported_backward_dtypes("cpu")
    problems: Counter[str] = Counter()
    tried = 0
    for sample in list(entry.sample_inputs("cpu", DTYPE, requires_grad=differentiable))[:MAX_SAMPLES]:
        place = DROPOUT_ARGUMENT.get(entry.name)
        random = sample.kwargs.get("dropout_p") or (place is not None and sample.args[place])
        if random or holds_module(sample.kwargs):
            continue
        tried += 1
        try:
            problem = problem_of(entry, sample, differentiable)
        except Exception as error:  # whatever ddpflow raised, PyTorch took the sample
            problem = f"{type(error).__name__}: {error}"
        if problem:
            problems[f"{sample.summary()}\n    {problem}"] += 1
    assert not problems, f"{sum(problems.values())} of {tried} samples:\n" + "\n".join(list(problems)[:3])
