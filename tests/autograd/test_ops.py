"""Tests made from the registry: every op on each of its samples, in every dtype and memory layout.

A new op is covered as soon as it is registered; one without samples or docstring fails here.
"""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd import gradcheck, gradgradcheck
from ddpflow.dtype import as_numpy
from tests.autograd.samples import CALLERS, LAYOUTS, REGISTRY, cases

TOLERANCE = {np.float64: 1e-11, np.float32: 1e-4, "float16": 2e-2, "bfloat16": 8e-2}
# Ops whose output has another floating dtype than their input, and why.
OTHER_DTYPE = {
    "cast": "that is its purpose",
    "view_dtype": "that is its purpose",
    "batch_norm_training": "the statistics of halves are kept in float32",
}
# Ops whose float16 result cannot be compared with the float64 one, and why.
NO_HALF = {
    "rand_like": "draws of different dtypes differ",
    "randn_like": "draws of different dtypes differ",
}
_MATRICES = [
    "cholesky",
    "det",
    "eigh",
    "full_svd",
    "inverse",
    "reduced_qr",
    "reduced_svd",
    "slogdet",
    "solve_matrix",
]
NO_HALF |= dict.fromkeys([*_MATRICES, "pseudo_inverse"], "LAPACK has no half precision; PyTorch refuses as well")
NO_BFLOAT16 = {
    "histc": "NumPy's histogram takes no bfloat16",
    "scatter_extreme": "the sample's values are equal in bfloat16, so the gradient is shared differently",
}
# Ops that cannot be tried with all rows equal, and why.
NOT_EXPANDED = dict.fromkeys(_MATRICES, "a matrix of equal rows is singular")
# Ops whose input must stay symmetric, which finite differences of single elements do not respect.
SYMMETRIC = {"cholesky": "reads one triangle", "eigh": "reads one triangle"}
# Ops whose values are not a function of the values of their inputs, so that layouts and differences say nothing.
NOT_A_FUNCTION: dict[str, str] = {
    "view_dtype": "reads the bytes of another dtype",
    "view_as_complex": "complex numbers; see ops/test_shape.py",
}
# Floating inputs that get no gradient although the output depends on them, and why.
WITHOUT_GRADIENT: dict[str, dict[int, str]] = {
    "batch_norm_inference": {3: "running statistics are constants", 4: "running statistics are constants"},
}

OPS = [pytest.param(definition, id=name) for name, definition in sorted(REGISTRY.items())]
DIFFERENTIABLE = [
    pytest.param(definition, id=name)
    for name, definition in sorted(REGISTRY.items())
    if definition.differentiable and name not in NOT_A_FUNCTION and name not in SYMMETRIC
]


def close(actual, expected, dtype, message):
    """Equal up to rounding of the dtype, relative to the greatest value."""
    assert actual.shape == expected.shape, f"{message}: shape {actual.shape}, expected {expected.shape}"
    scale = 1.0
    if expected.size and expected.dtype.kind in "fc":
        finite = expected[np.isfinite(expected)]
        scale = max(1.0, float(np.abs(finite).max())) if finite.size else 1.0
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(
        actual.astype(np.float64) if actual.dtype.kind == "f" else actual,
        expected,
        rtol=tolerance,
        atol=tolerance * scale,
        err_msg=message,
    )


@pytest.mark.parametrize("definition", OPS)
def test_is_described_and_has_samples(definition):
    """Every op says what it does, has test data, and can be called under a public name."""
    assert (definition.rule.__doc__ or "").strip().endswith((".", ")", "`")), "no docstring, or no full sentence"
    assert definition.samples, "no samples"
    assert definition.name in CALLERS


@pytest.mark.parametrize("definition", [p for p in OPS if p.id not in NOT_A_FUNCTION])
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
def test_layouts_and_dtypes(definition, dtype):
    """Values and gradients do not depend on the memory layout; the dtype stays; inputs are not modified."""
    for number, case in enumerate(cases(definition)):
        plain = [None if a is None else a.copy() for a in case.typed(dtype)]
        args = case.tensors(plain)
        outs = case.run(args)
        grads = case.gradients(args, outs)
        for before, arg in zip(case.typed(dtype), args, strict=True):
            if before is not None:
                np.testing.assert_array_equal(arg.array, before, f"sample {number}: an input was modified")
        if case.float_places and definition.name not in OTHER_DTYPE:
            for out in outs:
                if out.array.dtype.kind == "f":
                    assert out.array.dtype == dtype, f"sample {number}: {out.array.dtype} from {np.dtype(dtype)}"
        for place, g in zip(case.float_places, grads, strict=False):
            assert g.shape == args[place].shape and g.dtype == dtype, f"sample {number}: gradient {g.shape}, {g.dtype}"
        for layout, change in LAYOUTS.items():
            if layout == "expanded" and definition.name in NOT_EXPANDED:
                continue
            changed = [None if a is None else change(a) for a in case.typed(dtype)]
            if layout == "expanded":  # other values, so other results to compare with
                reference_args = case.tensors([None if a is None else a.copy() for a in changed])
                expected = case.run(reference_args)
                expected_grads = case.gradients(reference_args, expected)
            else:
                expected, expected_grads = outs, grads
            layout_args = case.tensors(changed)
            found = case.run(layout_args)
            found_grads = case.gradients(layout_args, found)
            for a, b in zip(found, expected, strict=True):
                close(a.array, b.array, dtype, f"sample {number}, {layout}")
            for a, b in zip(found_grads, expected_grads, strict=True):
                close(a, b, dtype, f"sample {number}, {layout}: gradient")


@pytest.mark.parametrize("definition", [p for p in OPS if p.id not in NOT_A_FUNCTION and p.id not in NO_HALF])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision(definition, name):
    """A half type gives that type, near the float64 result, with gradients of that type and without a warning."""
    if name == "bfloat16":
        pytest.importorskip("ml_dtypes", reason="bfloat16 needs ml_dtypes (extra bf16)")
        if definition.name in NO_BFLOAT16:
            pytest.skip(NO_BFLOAT16[definition.name])
    dtype = as_numpy(name)
    for number, case in enumerate(cases(definition)):
        if not case.float_places:
            continue
        arrays = case.typed(dtype)
        args = case.tensors(arrays)
        outs = case.run(args)
        grads = case.gradients(args, outs)
        wide_args = case.tensors(
            [None if a is None else a.astype(np.float64) if a.dtype == dtype else a for a in case.typed(dtype)]
        )
        wide = case.run(wide_args)
        wide_grads = case.gradients(wide_args, wide)
        for out, reference in zip(outs, wide, strict=True):
            if reference.array.dtype.kind == "f":
                if definition.name not in OTHER_DTYPE:
                    assert out.array.dtype == dtype, f"sample {number}: {out.array.dtype} from {name}"
                close(out.array.astype(np.float64), reference.array, name, f"sample {number}")
        for place, g, reference in zip(case.float_places, grads, wide_grads, strict=False):
            assert g.dtype == dtype and g.shape == args[place].shape
            close(g.astype(np.float64), reference, name, f"sample {number}: gradient")


@pytest.mark.parametrize("definition", DIFFERENTIABLE)
def test_first_order(definition):
    """Gradients agree with finite differences in float64."""
    for case in cases(definition):
        if case.float_places and differentiable(case):
            args = checked_tensors(case)
            assert gradcheck(lambda *xs, case=case: case.run(list(xs)), tuple(args))


@pytest.mark.parametrize("definition", DIFFERENTIABLE)
def test_second_order(definition):
    """Gradients of gradients (create_graph) agree with finite differences in float64."""
    for case in cases(definition):
        if case.float_places and differentiable(case):
            args = checked_tensors(case)
            assert gradgradcheck(lambda *xs, case=case: case.run(list(xs)), tuple(args), fast_mode=True)


def checked_tensors(case):
    """The arguments in float64; all floating ones want a gradient but those in WITHOUT_GRADIENT."""
    args = case.tensors(case.typed(np.float64))
    for place in WITHOUT_GRADIENT.get(case.definition.name, {}):
        args[place].requires_grad_(False)
    return args


def differentiable(case):
    """Whether a sample's outputs want a gradient and hold any elements."""
    outs = case.run(case.tensors(case.typed(np.float64)))
    return any(out.requires_grad and out.numel() for out in outs)


def test_every_public_op_is_registered_once():
    """An op's caller leads back to its own definition."""
    for name, call in CALLERS.items():
        assert call.op is ddpflow.autograd.op.REGISTRY[name]
