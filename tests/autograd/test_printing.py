"""How tensors print: PyTorch's own output, word for word."""

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.printing import PrintOptions, set_printoptions
from ddpflow.factories import arange, tensor, zeros
from ddpflow.nn.parameter import Parameter

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (tensor([1.0, 2.5]), "tensor([1.0000, 2.5000])"),
        (tensor([1.0, 2.0]), "tensor([1., 2.])"),
        (tensor(3.14159), "tensor(3.1416)"),
        (tensor([[1, 2], [3, 4]]), "tensor([[1, 2],\n        [3, 4]])"),
        (tensor([1e-8, 1.0]), "tensor([1.0000e-08, 1.0000e+00])"),
        (tensor([True, False]), "tensor([ True, False])"),
        (zeros(0), "tensor([])"),
        (zeros(2, 0), "tensor([], size=(2, 0))"),
        (zeros(0, dtype="int64"), "tensor([], dtype=ddpflow.int64)"),
        (tensor([1.0, 2.0], dtype="float64"), "tensor([1., 2.], dtype=ddpflow.float64)"),
        (tensor([NAN, INF, 1.0]), "tensor([nan, inf, 1.])"),
        (arange(2000), "tensor([   0,    1,    2,  ..., 1997, 1998, 1999])"),
        (tensor([100000.0, 1.5]), "tensor([1.0000e+05, 1.5000e+00])"),
        (tensor([-1.0, 20.0]), "tensor([-1., 20.])"),
        (tensor([1, 2], dtype="uint8"), "tensor([1, 2], dtype=ddpflow.uint8)"),
        (tensor(np.array([1 + 2j], np.complex64)), "tensor([1.+2.j])"),
        (tensor(np.array([1.5 - 2j, 3], np.complex64)), "tensor([1.5000-2.j, 3.0000+0.j])"),
        (tensor([1.5, -2.25], requires_grad=True), "tensor([ 1.5000, -2.2500], requires_grad=True)"),
        (zeros(2, 1, 2), "tensor([[[0., 0.]],\n\n        [[0., 0.]]])"),
    ],
    ids=repr,
)
def test_text(value, text):
    """Whole numbers, fractions, exponents, summaries, dtypes and shapes."""
    assert repr(value) == str(value) == text


def test_long_rows_are_wrapped_and_long_tensors_summarised():
    """Rows end within the line; a summary keeps the edges of each dimension."""
    lines = repr(arange(40.0)).split("\n")
    assert len(lines) > 1 and all(len(line) <= 80 for line in lines)
    text = repr(arange(1100.0).reshape(11, 100))
    assert text.count("...") == 7 and text.count("\n") == 12


def test_suffixes_move_to_a_line_of_their_own():
    """What does not fit behind the values goes to the next line."""
    x = tensor(np.linspace(0.1, 0.9, 8), requires_grad=True)
    assert repr(x).endswith(",\n       dtype=ddpflow.float64, requires_grad=True)")


def test_results_and_parameters():
    """A result shows its operation; a subclass its name."""
    assert repr(tensor([1.0], requires_grad=True) * 2) == "tensor([2.], grad_fn=<MulBackward>)"
    assert repr(Parameter(ddpflow.ones(2))) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"


def test_options():
    """Precision, threshold, edges, notation and profiles; an unknown profile is refused."""
    x = tensor([1.23456, 1000.0])
    try:
        set_printoptions(precision=2)
        assert repr(x) == "tensor([   1.23, 1000.00])"
        set_printoptions(precision=1, sci_mode=True)
        assert repr(x) == "tensor([1.2e+00, 1.0e+03])"
        set_printoptions(profile="default", threshold=2, edgeitems=1)
        assert repr(arange(5)) == "tensor([0,  ..., 4])"
        with pytest.raises(ValueError, match="'wide'"):
            set_printoptions(profile="wide")
    finally:
        set_printoptions(profile="default")
    assert repr(x) == "tensor([   1.2346, 1000.0000])"
    assert PrintOptions().precision == 4
