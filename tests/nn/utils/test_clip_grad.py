"""Clipping of gradients."""

import math

import numpy as np
import pytest

import ddpflow
from ddpflow import nn
from ddpflow.nn.utils import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm


def made(*gradients, dtype=ddpflow.float32):
    """Returns parameters with these gradients."""
    parameters = []
    for values in gradients:
        parameter = nn.Parameter(ddpflow.zeros(np.shape(values), dtype=dtype))
        parameter.grad = ddpflow.tensor(values, dtype=dtype)
        parameters.append(parameter)
    return parameters


@pytest.mark.parametrize(
    ("norm_type", "norm"),
    [(2, 13.0), (2.0, 13.0), (1, 19.0), (3, (27 + 64 + 1728) ** (1 / 3)), (math.inf, 12.0), ("inf", 12.0), (0, 3.0)],
)
def test_norm_and_scale(norm_type, norm):
    """The norm is that of all gradients together; they are scaled to max_norm in place, and it is returned."""
    parameters = made([3.0, -4.0], [[12.0]], [0.0])
    gradients = [parameter.grad for parameter in parameters]
    total = clip_grad_norm_(parameters, 2.0, norm_type)
    assert total.item() == pytest.approx(norm, rel=1e-6)
    assert total.dtype is ddpflow.float32
    assert total.shape == ()
    scale = min(1.0, 2.0 / norm)
    assert all(parameter.grad is g for parameter, g in zip(parameters, gradients, strict=True))
    np.testing.assert_allclose(gradients[0].numpy(), [3 * scale, -4 * scale], rtol=1e-5)
    np.testing.assert_allclose(gradients[1].numpy(), [[12 * scale]], rtol=1e-5)


def test_small_gradients_are_left_alone():
    """Gradients below max_norm do not change by a bit."""
    parameters = made([0.1, 0.2])
    clip_grad_norm_(parameters, 5.0)
    assert parameters[0].grad.tolist() == ddpflow.tensor([0.1, 0.2]).tolist()


def test_parameters_without_gradients():
    """Parameters without a gradient do not count; with none at all the norm is 0; one tensor works too."""
    with_gradient = made([3.0, 4.0])
    bare = nn.Parameter(ddpflow.ones(2))
    assert clip_grad_norm_([bare, *with_gradient], 1.0).item() == 5.0
    assert clip_grad_norm_([bare], 1.0).item() == 0.0
    assert clip_grad_norm_(made([6.0, 8.0])[0], 1.0).item() == 10.0
    assert clip_grad_norm_(iter(made([6.0, 8.0])), 1.0).item() == 10.0


def test_empty_generator_warns():
    """An exhausted generator of parameters is a mistake that is worth a warning."""
    with pytest.warns(UserWarning, match="empty generator"):
        clip_grad_norm_((parameter for parameter in ()), 1.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nonfinite(bad):
    """A norm that is not finite raises if asked to; else it scales, as in PyTorch, without a NumPy warning."""
    parameters = made([1.0, bad])
    with pytest.raises(RuntimeError, match="non-finite"):
        clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
    assert parameters[0].grad[0].item() == 1.0
    total = clip_grad_norm_(parameters, 1.0).item()
    assert math.isnan(total) if math.isnan(bad) else total == math.inf
    assert math.isnan(parameters[0].grad[1].item())
    inf_norm = clip_grad_norm_(made([1.0, bad]), 1.0, math.inf).item()
    assert math.isnan(inf_norm) if math.isnan(bad) else inf_norm == math.inf


def test_half_precision_does_not_overflow():
    """Squares of half gradients are summed in float32."""
    parameters = made([300.0] * 4, dtype=ddpflow.float16)
    assert clip_grad_norm_(parameters, 1.0).item() == 600.0
    assert parameters[0].grad.dtype is ddpflow.float16


def test_scaling_is_a_write():
    """Clipping bumps the gradients' version, so that a graph through them notices."""
    parameter = made([3.0, 4.0])[0]
    before = parameter.grad._version
    clip_grad_norm_(parameter, 1.0)
    assert parameter.grad._version > before


def test_parts():
    """get_total_norm and clip_grads_with_norm_ together are clip_grad_norm_."""
    parameters = made([3.0, 4.0], [12.0])
    total = get_total_norm([parameter.grad for parameter in parameters])
    clip_grads_with_norm_(parameters, 6.5, total)
    np.testing.assert_allclose(parameters[1].grad.numpy(), [6.0], rtol=1e-5)
    assert get_total_norm([]).item() == 0.0


def test_values():
    """Elements are cut off in place on both sides."""
    parameters = made([3.0, -4.0, 0.5], [[-9.0]])
    clip_grad_value_(parameters, 1.5)
    assert parameters[0].grad.tolist() == [1.5, -1.5, 0.5]
    assert parameters[1].grad.tolist() == [[-1.5]]
