"""Times one small operation, a 4x4 multiplication that is recorded for backward, in a chain of a hundred.

    python benchmarks/op_overhead.py --lib ddpflow
    python benchmarks/op_overhead.py --lib torch

Prints the time of one operation, forward alone and forward with backward: what a library costs where the arithmetic is
next to nothing.
"""

import argparse
from typing import Any

from library import add_arguments, load

CHAIN = 100


def main() -> None:
    """Times forward, and forward with backward."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    arguments = parser.parse_args()
    lib = load(arguments.lib)
    lib.torch.manual_seed(0)
    a, b = (lib.torch.randn(4, 4, requires_grad=True) for _ in range(2))

    def forward() -> Any:
        x = a
        for _ in range(CHAIN):
            x = x * b
        return x

    def both() -> None:
        forward().sum().backward()

    lib.say("op/forward", [t / CHAIN for t in lib.timed(forward, arguments.seconds)])
    lib.say("op/forward+backward", [t / CHAIN for t in lib.timed(both, arguments.seconds)])


if __name__ == "__main__":
    main()
