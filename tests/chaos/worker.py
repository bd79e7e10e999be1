"""One rank of a small data-parallel training that fails where it is told to.

ddprun --nproc-per-node 3 tests/chaos/worker.py --kind raise --victim 1 --point backward --step 2
"""

import argparse
import os
import signal
import sys

import ddpflow
import ddpflow.comm as dist
from ddpflow import nn
from ddpflow.nn.parallel import DistributedDataParallel

STEPS = 6
POINTS = ("before init", "before DDP", "forward", "backward", "between steps", "collective", "at the end")
KINDS = ("raise", "sys.exit", "os._exit", "kill")


class ChaosError(RuntimeError):
    """The failure that this program was told to have."""


def main() -> None:
    """Trains for a few steps, and fails at the point and step that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--victim", type=int, default=-1)
    parser.add_argument("--point", choices=POINTS)
    parser.add_argument("--step", type=int, default=0)
    arguments = parser.parse_args()
    rank = int(os.environ["RANK"])

    def reach(point: str, step: int | None = None) -> None:
        """Fails here if here is the place."""
        if rank != arguments.victim or point != arguments.point or step not in (None, arguments.step):
            return
        if arguments.kind == "raise":
            raise ChaosError(f"told to fail {point}")
        if arguments.kind == "sys.exit":
            sys.exit(7)
        if arguments.kind == "os._exit":
            os._exit(9)
        os.kill(os.getpid(), signal.SIGKILL)

    reach("before init")
    dist.init_process_group()
    reach("before DDP")
    ddpflow.manual_seed(0)
    net = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
    optimizer = ddpflow.optim.SGD(net.parameters(), lr=0.1)
    x = ddpflow.randn(4, 8)
    for step in range(STEPS):
        reach("between steps", step)
        loss = net(x)
        reach("forward", step)
        loss.register_hook(lambda grad, step=step: reach("backward", step))
        loss.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        reach("collective", step)
        dist.barrier()
    reach("at the end")
    dist.destroy_process_group()
    print("done")


if __name__ == "__main__":
    main()
