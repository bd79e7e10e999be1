"""Times each CUDA kernel of ddpflow's own beside the CuPy formula that it stands for; prints a JSON object for each.

    python benchmarks/gpu_kernels.py --dtype bfloat16
    compute-sanitizer --tool memcheck python benchmarks/gpu_kernels.py --once

Both run the same operation's rule; the formula gets CuPy without its door to kernels. A line tells both times and the
greatest difference between the results, relative to the greatest value.
"""

import argparse
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from gpu import timed
from library import Library, load

from ddpflow import optim
from ddpflow.autograd.op import REGISTRY
from ddpflow.device import required_cupy
from ddpflow.dtype import as_numpy

__all__ = ["main"]

GPT_SHAPES = [(50304, 768), (1024, 768), *[(2304, 768), (768, 768), (3072, 768), (768, 3072), (2304,), (768,)] * 12]
ODD_SHAPES = [(67, 31), (5,), (4097,), (1,)]


def calls(xp: Any, dtype: Any, once: bool) -> dict[str, tuple[Any, ...]]:
    """For each operation with kernels, the arguments of its rule."""
    rng = np.random.default_rng(0)

    def normal(*shape: int, kind: Any = dtype) -> Any:
        return xp.asarray(rng.standard_normal(shape, np.float32).astype(kind))

    rows, width, classes, tokens = (67, 1030, 131, 37) if once else (8192, 768, 50304, 1024)
    heads = (2, 3, tokens, 24) if once else (8, 12, tokens, 64)
    images = (3, 5, 33, 31) if once else (256, 64, 32, 32)
    labels = xp.asarray(rng.integers(0, classes, rows // 4))
    return {
        "softmax": (normal(rows, width), -1),
        "log_softmax": (normal(rows, width), -1),
        "cross_entropy": (normal(rows // 4, classes), labels, None, -100, "mean", 0.0),
        "attention": (normal(*heads), normal(*heads), normal(*heads), None, None, heads[-1] ** -0.5, 1.0, True),
        "layer_norm": (normal(rows, width), normal(width), normal(width), 1, 1e-5),
        "batch_norm_training": (normal(*images), normal(images[1]), normal(images[1]), 1e-5),
        "gelu": (normal(rows, 4 * width),),
        "keep_scaled": (normal(rows, width), xp.asarray(rng.random((rows, width)) < 0.9), 1 / 0.9),
    }


def first_of(value: Any) -> Any:
    """The first output, or the first input's vjp or gradient."""
    return value[0] if isinstance(value, tuple) else value


def both_ways(xp: Any, name: str, args: tuple[Any, ...], dtype: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """An operation's forward and backward pass; the first results of each, in the dtype that the engine would keep."""
    rule = REGISTRY[name].rule
    out, vjps = rule(xp, *args)
    g = xp.asarray(np.random.default_rng(1).standard_normal(first_of(out).shape, np.float32).astype(dtype))
    more = (None, None) if isinstance(out, tuple) else ()
    vjp = first_of(vjps)
    return (
        lambda: first_of(rule(xp, *args)[0]).astype(dtype, copy=False),
        lambda: first_of(vjp(g, *more)).astype(dtype, copy=False),
    )


def adam_pair(xp: Any, plain: Any, lib: Library, dtype: str, once: bool) -> Sequence[Callable[[], Any]]:
    """A step of AdamW over GPT's parameters, by one launch and by the formulas, from the same start."""
    pair = []
    for own in (True, False):
        lib.torch.manual_seed(0)
        shapes = ODD_SHAPES if once else GPT_SHAPES
        params = [lib.torch.randn(*s).to(getattr(lib.torch, dtype)).cuda().requires_grad_() for s in shapes]
        optimizer: Any = optim.AdamW(params, lr=1e-3)
        for p in params:
            p.grad = p.detach() * 0.5
        if not own:
            update = optimizer.update
            optimizer.update_together = lambda given, group: given
            optimizer.update = lambda _, *rest, update=update: update(plain, *rest)

        def step(optimizer: Any = optimizer, first: Any = params[0]) -> Any:
            optimizer.step()
            return first.array

        pair.append(step)
    return pair


def compare(lib: Library, name: str, kernel: Callable[[], Any], formula: Callable[[], Any], repeats: int) -> None:
    """Runs both, looks how far they differ, and times them."""
    ours, theirs = [f().astype(np.float64) for f in (kernel, formula)]
    difference = float(abs(ours - theirs).max() / abs(theirs).max())
    times, others = [timed(lib, f, repeats) for f in (kernel, formula)]
    more = {"formula_ms": round(others[len(others) // 2], 6), "difference": float(f"{difference:.2e}")}
    lib.say(f"kernel/{name}", [t / 1e3 for t in times], **more)


def main() -> None:
    """Runs all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="float32", help="float32, bfloat16, float16 or float64")
    parser.add_argument("--repeats", type=int, default=20, help="timed calls of each")
    parser.add_argument("--once", action="store_true", help="small odd shapes, no memory pool: for compute-sanitizer")
    arguments = parser.parse_args()
    lib, cupy = load("ddpflow"), required_cupy()
    if arguments.once:
        cupy.cuda.set_allocator(None)
    repeats = 1 if arguments.once else arguments.repeats
    plain = SimpleNamespace(**{k: v for k, v in vars(cupy).items() if k != "RawModule"})
    dtype = as_numpy(arguments.dtype)
    for name, args in calls(cupy, dtype, arguments.once).items():
        ways = zip(both_ways(cupy, name, args, dtype), both_ways(plain, name, args, dtype), strict=True)
        for direction, (kernel, formula) in zip(("forward", "backward"), ways, strict=True):
            compare(lib, f"{name}/{direction}/{arguments.dtype}", kernel, formula, repeats)
    step = adam_pair(cupy, plain, lib, arguments.dtype, arguments.once)
    compare(lib, f"adamw/{arguments.dtype}", *step, repeats)


if __name__ == "__main__":
    main()
