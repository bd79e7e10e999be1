"""Times all-reduces of float32 sums, 1 KB to 64 MB, in place.

    ddprun --nproc-per-node 2 benchmarks/all_reduce.py --lib ddpflow
    torchrun --nproc-per-node 2 benchmarks/all_reduce.py --lib torch
    mpiexec -n 2 python benchmarks/all_reduce.py --lib mpi

Prints one JSON object per size, named all_reduce/BYTES. On ddpflow also all_reduce_registered/BYTES, for memory that
the process group owns (where gradient buckets live), and copy/BYTES: how long every rank takes to copy that much memory
while all the others do the same. On two ranks an all-reduce reads and writes as many bytes as such a copy (half of both
arrays), so copy/BYTES is what memory bandwidth allows.
"""

import argparse
from collections.abc import Callable

import numpy as np
from library import Library, add_arguments, load, say, timed

KB, MB = 1 << 10, 1 << 20
SIZES = (KB, 16 * KB, 256 * KB, MB, 4 * MB, 16 * MB, 64 * MB)


def sweep(lib: Library, sizes: list[int], seconds: float) -> None:
    """Times each size with an ordinary tensor, as a user's own code would bring it."""
    for nbytes in sizes:
        tensor = lib.torch.ones(nbytes // 4)
        times = lib.timed(lambda tensor=tensor: lib.dist.all_reduce(tensor), seconds)
        lib.say(f"all_reduce/{nbytes}", times, nbytes=nbytes)


def sweep_registered(lib: Library, sizes: list[int], seconds: float) -> None:
    """Times each size with an array in communication memory."""
    group = lib.dist.current_group()
    for nbytes in sizes:
        array = group.empty(nbytes // 4, np.float32)
        array[:] = 1
        times = lib.timed(lambda array=array: group.all_reduce(array), seconds)
        lib.say(f"all_reduce_registered/{nbytes}", times, nbytes=nbytes)


def copy_bound(lib: Library, sizes: list[int], seconds: float) -> None:
    """Times a plain copy on every rank at once, for the sizes that do not fit in a cache."""
    for nbytes in sizes:
        if nbytes >= 16 * MB:
            source, target = np.ones(nbytes // 4, np.float32), np.ones(nbytes // 4, np.float32)
            times = lib.timed(lambda source=source, target=target: np.copyto(target, source), seconds)
            lib.say(f"copy/{nbytes}", times, nbytes=nbytes)


def sweep_mpi(sizes: list[int], seconds: float) -> None:
    """Times each size with mpi4py on NumPy arrays, under mpiexec."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD

    def agree(enough: bool) -> bool:
        return bool(world.allreduce(enough, MPI.MAX))

    for nbytes in sizes:
        array = np.ones(nbytes // 4, np.float32)
        call: Callable[[], None] = lambda array=array: world.Allreduce(MPI.IN_PLACE, array)  # noqa: E731
        times = timed(call, seconds, agree)
        if world.rank == 0:
            say("mpi", f"all_reduce/{nbytes}", world.size, times, nbytes=nbytes)


def main() -> None:
    """Runs the sweep that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, extra=("mpi",))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="bytes, separated by commas")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    if arguments.lib == "mpi":
        sweep_mpi(sizes, arguments.seconds)
        return
    lib = load(arguments.lib)
    lib.start()
    sweep(lib, sizes, arguments.seconds)
    if arguments.lib == "ddpflow":
        sweep_registered(lib, sizes, arguments.seconds)
        copy_bound(lib, sizes, arguments.seconds)
    lib.finish()


if __name__ == "__main__":
    main()
