"""Changes of a model since it was wrapped."""

import numpy as np
import pytest

from ddpflow.nn import BatchNorm1d, Linear, Parameter, ReLU, Sequential
from ddpflow.nn.parallel.managed import ignore, managed_buffers
from ddpflow.nn.parallel.watch import Watch
from tests.nn.parallel.models import tensor


def _replace(net):
    net[0].weight = Parameter(tensor(np.ones((2, 3)), np.float32))


def _data(net):
    net[0].weight.data = net[0].weight.data.double()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda net: None, None),
        (_replace, "0.weight was replaced"),
        (lambda net: net[0].bias.requires_grad_(False), "0.bias was frozen"),
        (_data, "0.weight was cast to float64"),
        (
            lambda net: setattr(net[0], "extra", Parameter(tensor(1.0))),
            "beside 0.weight something was added or removed",
        ),
        (lambda net: net.append(ReLU()), "beside 0 something was added or removed"),
        (lambda net: net[0].add_module("child", ReLU()), "in 0 something was added"),
        (lambda net: net.__setitem__(1, Linear(2, 2)), "1 was replaced"),
    ],
)
def test_each_kind_of_change_is_named(change, text):
    """Values may change freely; everything else is told with its path."""
    net = Sequential(Linear(3, 2), Linear(2, 2))
    watch = Watch(net)
    net[0].weight.array += 1.0
    change(net)
    assert watch.changes()[:1] == ([] if text is None else [text])


def test_buffers_are_those_of_now():
    """Replaced and added ones are found, also in a module that had none; shared, missing and ignored ones are not."""
    net = Sequential(BatchNorm1d(2), ReLU(), BatchNorm1d(2))
    ignore(net, ["2.running_var"])
    watch = Watch(net)
    net[0].running_mean = tensor([1.0, 2.0])
    net[1].register_buffer("late", tensor(3.0))
    net[1].register_buffer("none", None)
    net[2].register_buffer("shared", net[1].late)
    found = watch.buffers()
    assert len(found) == 6
    assert all(a is b for a, (_, b) in zip(found, managed_buffers(net), strict=True))
