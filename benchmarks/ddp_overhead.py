"""Times what DistributedDataParallel adds to a step, per parameter: 10 to 10,000 parameters of four numbers each.

    ddprun --nproc-per-node 2 benchmarks/ddp_overhead.py --lib ddpflow
    torchrun --nproc-per-node 2 benchmarks/ddp_overhead.py --lib torch

Steps of the plain model and of the same model wrapped run in turn, each begun by all ranks at once, and the figure is
the median difference divided by the number of parameters. That is the bookkeeping of hooks and buckets and, because a
bucket is small here, the fixed cost of the all-reduces, which counts where parameters are few.
"""

import argparse
import time
from typing import Any

from library import Library, add_arguments, load

COUNTS = (10, 100, 1000, 10000)


def build(lib: Library, count: int) -> Any:
    """Returns a model that adds its parameters to its input, one by one."""

    class Chain(lib.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            for number in range(count):
                self.register_parameter(f"p{number}", lib.nn.Parameter(lib.torch.ones(4)))
            self.chain = tuple(self.parameters())

        def forward(self, x: Any) -> Any:
            for parameter in self.chain:
                x = x + parameter
            return x

    return Chain()


def main() -> None:
    """Prints the time that DDP adds per parameter and step, for each number of parameters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    arguments = parser.parse_args()
    lib = load(arguments.lib)
    lib.start()
    x = lib.torch.ones(4)
    for count in COUNTS:
        nets = [build(lib, count), lib.nn.parallel.DistributedDataParallel(build(lib, count))]
        differences: list[float] = []

        def both(nets: list[Any] = nets, count: int = count, differences: list[float] = differences) -> None:
            took = []
            for net in nets:
                if lib.world > 1:
                    lib.dist.barrier()  # or a rank that was behind before would count as slow all-reduces
                start = time.perf_counter()
                net.zero_grad()
                net(x).sum().backward()
                took.append(time.perf_counter() - start)
            plain, wrapped = took
            differences.append((wrapped - plain) / count)

        lib.timed(both, arguments.seconds)
        lib.say(f"ddp/bookkeeping/{count}", sorted(differences))
    lib.finish()


if __name__ == "__main__":
    main()
