"""Modules that stand for others."""

import copy

from ddpflow import nn
from ddpflow.nn.parallel.wrapper import Wrapper


class Twin(Wrapper):
    """Has one option."""

    _option_names = ("gain",)

    def __init__(self, module, gain):
        super().__init__()
        self.module, self.gain = module, gain
        self._bind("group")
        self._build()

    def _bind(self, group):
        object.__setattr__(self, "_group", group)

    def _build(self):
        object.__setattr__(self, "built", (self.gain, self._group))


def test_attributes_states_and_copies_are_the_modules():
    """What the wrapper has not, the module may have; states have plain names; a copy goes through both steps."""
    net = nn.Linear(3, 2)
    twin = Twin(net, 5).eval()
    assert twin.in_features == 3 and list(twin.state_dict()) == ["weight", "bias"]
    twin.load_state_dict({f"module.{n}": v + 1 for n, v in net.state_dict().items()})
    other = copy.deepcopy(twin)
    assert other.built == (5, "group") and not other.training
    assert other.module is not net and other.weight.tolist() == net.weight.tolist()
