"""The sharded optimizer equals the plain one, bit for bit, and its state is independent of the number of ranks."""

import numpy as np
import pytest

import ddpflow as flow
from ddpflow import nn
from ddpflow.errors import CommError, DtypeError, ValueRangeError
from ddpflow.nn.parallel import DistributedDataParallel as DDP
from ddpflow.nn.parallel.join import Join
from ddpflow.optim import LBFGS, SGD, Adam, AdamW
from ddpflow.optim.zero import ZeroRedundancyOptimizer
from ddpflow.testing import run_ranks

CLASSES = {"sgd": (SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}), "adam": (AdamW, {"lr": 0.01})}


def _net():
    flow.manual_seed(4)
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    net.register_parameter("wide", nn.Parameter(flow.randn(3, dtype=flow.float64)))
    net.register_parameter("spare", nn.Parameter(flow.ones(2)))
    return net


def _train(net, make, steps, rank, ddp=True, start=0):
    model = DDP(net, unused="none") if ddp else net
    optimizer = make(
        [{"params": [p for n, p in net.named_parameters() if "bias" not in n]},
         {"params": [p for n, p in net.named_parameters() if "bias" in n], "lr": 0.05}]
    )  # fmt: skip
    schedule = flow.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for step in range(start, start + steps):
        x = flow.from_numpy(np.random.default_rng([step, rank]).standard_normal((4, 5)).astype(np.float32))
        optimizer.zero_grad()
        (model(x).square().mean() + (net.wide * net.wide).sum()).backward()
        optimizer.step()
        schedule.step()
    return net, optimizer


def _both(rank, name):
    cls, options = CLASSES[name]
    plain, _ = _train(_net(), lambda p: cls(p, **options), 4, rank)
    sharded, optimizer = _train(_net(), lambda p: ZeroRedundancyOptimizer(p, cls, **options), 4, rank)
    elements = sum(v.numel() for s in optimizer._inner.state.values() for v in s.values() if hasattr(v, "numel"))
    return (
        [p.tolist() for p in plain.parameters()],
        [p.tolist() for p in sharded.parameters()],
        elements,
        sharded.spare.tolist(),
    )


@pytest.mark.parametrize("name", list(CLASSES))
@pytest.mark.parametrize("size", [1, 2, 3])
def test_weights_equal_the_plain_optimizers_and_state_is_a_share(name, size):
    """Equal bits on all ranks; each rank holds about 1/N of the state; unused parameters are left alone."""
    results = run_ranks(_both, size, "shm", args=(name,))
    total = sum(p.numel() for p in _net().parameters()) * (1 if name == "sgd" else 2)
    for plain, sharded, elements, spare in results:
        assert sharded == plain == results[0][0]
        assert elements <= total / size + 8
        assert spare == [1.0, 1.0]


def _interrupted(rank, state, steps):
    options = CLASSES["adam"][1]

    def make(params):
        optimizer = ZeroRedundancyOptimizer(params, AdamW, **options)
        if state is not None:
            optimizer.load_state_dict(state["optimizer"])
        return optimizer

    net = _net()
    if state is not None:
        net.load_state_dict(state["model"])
    net, optimizer = _train(net, make, steps, 0, start=0 if state is None else 2)
    optimizer.consolidate_state_dict(to=None)
    return {"model": net.state_dict(), "optimizer": optimizer.state_dict()}


def test_state_moves_between_numbers_of_ranks():
    """Two steps on two ranks and two on three, resumed from the whole state, equal four on one."""
    halfway = run_ranks(_interrupted, 2, "shm", args=(None, 2))[1]
    resumed = run_ranks(_interrupted, 3, "shm", args=(halfway, 2))[2]
    whole = run_ranks(_interrupted, 1, "shm", args=(None, 4))[0]
    for key, value in whole["model"].items():
        np.testing.assert_allclose(resumed["model"][key].numpy(), value.numpy(), rtol=1e-6)
    assert whole["optimizer"]["state"].keys() == resumed["optimizer"]["state"].keys()
    plain = AdamW(_net().parameters(), **CLASSES["adam"][1])
    merged = dict(whole["optimizer"])
    merged["param_groups"] = plain.state_dict()["param_groups"]
    plain.load_state_dict(merged)  # the form is the plain optimizer's


def _refused(rank):
    net = _net()
    optimizer = ZeroRedundancyOptimizer(net.parameters(), Adam, lr=0.1)
    with pytest.raises(CommError, match="consolidate_state_dict"):
        optimizer.state_dict()
    with pytest.raises(CommError, match="inside Join"), Join([DDP(net), optimizer]):
        pass


def test_misuse_is_refused():
    """State before it is collected, use in Join, and classes that cannot be sharded."""
    run_ranks(_refused, 2)
    params = list(_net().parameters())
    with pytest.raises(ValueRangeError, match="LBFGS"):
        ZeroRedundancyOptimizer(params, LBFGS)
    with pytest.raises(DtypeError, match="optimizer's class"):
        ZeroRedundancyOptimizer(params, "Adam")
    with pytest.raises(ValueRangeError, match="overlap_with_ddp"):
        ZeroRedundancyOptimizer(params, SGD, overlap_with_ddp=True, lr=0.1)
