"""Measures the memory of gradients and of all that DistributedDataParallel keeps for them, in units of the gradients.

    ddprun --nproc-per-node 2 benchmarks/ddp_memory.py --lib ddpflow
    torchrun --nproc-per-node 2 benchmarks/ddp_memory.py --lib torch

Every rank takes a few steps, without an optimizer, on a model of 64 MB. 1.0 is what the gradients need in any case (and
what --plain shows, without DistributedDataParallel); a copy of them in buckets makes it 2.0. Memory is the growth of
the process's proportional set size, so memory shared by two ranks counts half in each.
"""

import argparse
import gc
import json
import re
from pathlib import Path

from library import add_arguments, load

LAYERS, WIDTH, STEPS = 16, 1024, 3


def proportional_bytes() -> int:
    """Returns this process's proportional set size."""
    [kilobytes] = re.findall(r"^Pss:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.M)
    return int(kilobytes) * 1024


def main() -> None:
    """Prints the memory that the steps took, over that of the gradients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--plain", action="store_true", help="do not wrap the model")
    arguments = parser.parse_args()
    lib = load(arguments.lib)
    lib.start()
    nn = lib.nn
    net = nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])
    gradient_bytes = sum(parameter.numel() * 4 for parameter in net.parameters())
    x = lib.torch.ones(4, WIDTH)
    net(x)  # what forward takes once is not counted
    before = proportional_bytes()
    wrapped = net if arguments.plain else nn.parallel.DistributedDataParallel(net)
    for _ in range(STEPS):
        wrapped.zero_grad()  # as in training; without it each gradient has to be there before it is added
        wrapped(x).sum().backward()
    gc.collect()
    if lib.world > 1:
        lib.dist.barrier()  # so that no rank leaves while another still measures
    ratio = (proportional_bytes() - before) / gradient_bytes
    if lib.world > 1:
        lib.dist.barrier()
    if lib.rank == 0:
        name = "memory/plain" if arguments.plain else "memory/ddp"
        figure = {"side": lib.side, "name": name, "world": lib.world, "ratio": round(ratio, 3)}
        print(json.dumps({**figure, "gradient_bytes": gradient_bytes}), flush=True)
    lib.finish()


if __name__ == "__main__":
    main()
