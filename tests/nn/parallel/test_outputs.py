"""Ties between a model's outputs and its parameters, in every kind of container."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

from ddpflow.autograd.tensor import Tensor
from ddpflow.nn.parallel.outputs import tie

Pair = namedtuple("Pair", "a b")


@dataclass
class Output:
    """What a model may return."""

    scores: Tensor
    names: list


class Custom:
    """An object that ties cannot look into."""

    def __init__(self, scores):
        self.scores = scores


def _score():
    x = Tensor(np.array([1.0, 2.0]), requires_grad=True)
    return x, x * 3.0


@pytest.mark.parametrize(
    ("wrap", "find"),
    [
        (lambda y: y, lambda o: o),
        (lambda y: (1, [y]), lambda o: o[1][0]),
        (lambda y: {"k": {"l": y}}, lambda o: o["k"]["l"]),
        (lambda y: OrderedDict(k=y), lambda o: o["k"]),
        (lambda y: Pair("text", y), lambda o: o.b),
        (lambda y: Output(y, ["n"]), lambda o: o.scores),
    ],
)
def test_containers_keep_their_type_and_parameters_get_zeros(wrap, find):
    """Backward through a tied output gives the parameter a real gradient of zeros and the input its own."""
    x, y = _score()
    spare = Tensor(np.ones((2, 3)), requires_grad=True)
    before = wrap(y)
    after = tie(before, [spare])
    assert type(after) is type(before)
    assert find(after).array is y.array
    find(after).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert spare.grad.tolist() == [[0.0] * 3] * 2


@pytest.mark.parametrize("out", [None, 3, "text", Tensor(np.array([1, 2])), Custom(1), [1, (2, {})]])
def test_anything_else_comes_back_as_it_is(out):
    """Numbers, integers, strings and unknown objects pass."""
    spare = Tensor(np.ones(2), requires_grad=True)
    assert tie(out, [spare]) is out or tie(out, [spare]) == out
