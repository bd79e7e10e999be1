"""Times each kernel of `ddpflow/autograd/kernels/` beside the plain formula that it replaces: what justifies it.

    OPENBLAS_NUM_THREADS=1 python benchmarks/kernels.py
    python benchmarks/kernels.py --only gelu,conv --seconds 0.5

Prints for each kernel its time, the formula's, and their ratio, in turn on the same arrays (sizes of the training
benchmarks). A kernel that does not gain is to be deleted.
"""

import argparse
import functools
import json
import math
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase, wrap
from ddpflow.autograd.engine import backward
from ddpflow.autograd.kernels import attention, batch_norm, conv, gelu, matmul, max_pool, norm, softmax
from ddpflow.autograd.kernels.blocks import blockwise
from ddpflow.autograd.kernels.choose import choose
from ddpflow.autograd.kernels.conv import Plan
from ddpflow.autograd.kernels.pool import Window
from ddpflow.autograd.op import REGISTRY
from ddpflow.autograd.ops import recurrent
from ddpflow.autograd.quiet import QUIET, silence

Pair = tuple[Callable[[], object], Callable[[], object]]
RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    """An array of standard normal numbers in float32."""
    return RNG.standard_normal(shape, dtype=np.float32)


def plain_softmax(x: Any) -> Any:
    """Softmax over the last axis as a formula."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_pairs() -> dict[str, Pair]:
    """Softmax, its gradient, and cross entropy over 1,024 rows of 256."""
    x, g = normal(1024, 256), normal(1024, 256)
    index, rows, scale = RNG.integers(0, 256, 1024), np.arange(1024), np.full(1024, 1 / 1024, np.float32)
    y = softmax.softmax(np, x, 1)
    _, lse = softmax.cross_entropy(np, x, index)

    def plain_loss() -> Any:
        p = plain_softmax(x)
        p[rows, index] -= 1
        return p * scale[:, None]

    return {
        "softmax": (lambda: softmax.softmax(np, x, 1), lambda: plain_softmax(x)),
        "softmax/backward": (
            lambda: softmax.softmax_backward(np, g, y, 1),
            lambda: y * (g - (g * y).sum(1, keepdims=True)),
        ),
        "cross_entropy/backward": (lambda: softmax.cross_entropy_backward(np, x, index, lse, scale), plain_loss),
    }


def gelu_pairs() -> dict[str, Pair]:
    """GELU of a million elements; the formula is the rule's own in float32."""
    x, g = normal(1024, 1024), normal(1024, 1024)
    y = gelu.gelu(np, x, "none")
    erf = REGISTRY["erf"].rule
    half = np.float32(math.sqrt(0.5))

    def plain() -> Any:
        return x * (0.5 * (1 + erf(np, x * half)[0]))

    def plain_backward() -> Any:
        return g * (0.5 * (1 + erf(np, x * half)[0]) + x * (np.exp(-0.5 * x * x) / np.float32(math.sqrt(2 * math.pi))))

    return {
        "gelu": (lambda: gelu.gelu(np, x, "none"), plain),
        "gelu/backward": (lambda: gelu.gelu_backward(np, g, x, y, "none"), plain_backward),
    }


def norm_pairs() -> dict[str, Pair]:
    """Layer norm of 1,024 rows of 256, and batch norm of 32 images of 32 channels."""
    x, w, b, g = normal(1024, 256), normal(256), normal(256), normal(1024, 256)
    _, mean, rstd = norm.layer_norm(np, x, w, b, 1, 1e-5)
    images, gi, scale, shift = normal(32, 32, 32, 32), normal(32, 32, 32, 32), normal(32), normal(32)
    _, bmean, bvar = batch_norm.batch_norm(np, images, scale, shift, 1e-5)

    def plain_layer() -> Any:
        c = x - x.mean(1, keepdims=True)
        return c / np.sqrt((c * c).mean(1, keepdims=True) + np.float32(1e-5)) * w + b

    def plain_layer_backward() -> Any:
        n, s = (x - mean) * rstd, g * w
        gx = (s - s.mean(1, keepdims=True) - n * (s * n).mean(1, keepdims=True)) * rstd
        return gx, (g * n).sum(0), g.sum(0)

    return {
        "layer_norm": (lambda: norm.layer_norm(np, x, w, b, 1, 1e-5), plain_layer),
        "layer_norm/backward": (
            lambda: norm.layer_norm_backward(np, g, x, w, mean, rstd, 1),
            plain_layer_backward,
        ),
        "batch_norm": (
            lambda: batch_norm.batch_norm(np, images, scale, shift, 1e-5),
            lambda: batch_norm._plain(np, images, scale, shift, 1e-5),
        ),
        "batch_norm/backward": (
            lambda: batch_norm.batch_norm_backward(np, gi, images, scale, bmean, bvar, 1e-5),
            lambda: batch_norm._plain_backward(np, gi, images, scale, bmean, bvar, 1e-5),
        ),
    }


def attention_pairs() -> dict[str, Pair]:
    """Causal attention of 8 x 4 heads over 128 positions, inputs transposed as a model makes them."""
    q, k, v = normal(8, 128, 3, 4, 64).transpose(2, 0, 3, 1, 4)
    g = normal(8, 128, 4, 64).swapaxes(1, 2)
    mask = np.triu(np.full((128, 128), -np.inf, np.float32), 1)
    _, p, lse = attention.attention(q, k, v, None, None, 0.125, 1.0, True)

    def plain() -> Any:
        return plain_softmax(q @ k.swapaxes(-1, -2) * np.float32(0.125) + mask) @ v

    def plain_backward() -> Any:
        ds = g @ v.swapaxes(-1, -2)
        ds = p * (ds - (ds * p).sum(-1, keepdims=True)) * np.float32(0.125)
        return ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g

    return {
        "attention": (lambda: attention.attention(q, k, v, None, None, 0.125, 1.0, True), plain),
        "attention/backward": (
            lambda: attention.attention_backward(g, q, k, v, None, None, p, lse, 0.125, 1.0, True, False),
            plain_backward,
        ),
    }


def conv_pairs() -> dict[str, Pair]:
    """3x3 convolutions; the formula copies the windows side by side, for one product for each group of channels."""
    general = types.SimpleNamespace(**vars(np))  # the same functions, in a namespace for which there is no kernel
    one, two, deep = ((1, 1), (1, 1)), (2, 2), ((1, 1), (1, 1), (1, 1))
    layers = {
        "conv": ((32, 32, 32, 32), (32, 32, 3, 3), Plan((1, 1), one, (1, 1), 1)),
        "conv_stride": ((8, 64, 56, 56), (128, 64, 3, 3), Plan(two, one, (1, 1), 1)),
        "conv_groups": ((8, 128, 28, 28), (128, 4, 3, 3), Plan((1, 1), one, (1, 1), 32)),
        "conv_groups_stride": ((8, 256, 28, 28), (256, 8, 3, 3), Plan(two, one, (1, 1), 32)),
        "conv_depthwise": ((16, 128, 28, 28), (128, 1, 3, 3), Plan((1, 1), one, (1, 1), 128)),
        "conv3d": ((2, 16, 16, 16, 16), (32, 16, 3, 3, 3), Plan((1, 1, 1), deep, (1, 1, 1), 1)),
    }
    pairs: dict[str, Pair] = {}
    for name, (shape, weight, plan) in layers.items():
        size, kernel = shape[2:], weight[2:]
        x, w, out = normal(*shape), normal(*weight), plan.output_size(size, kernel)
        g = normal(shape[0], weight[0], *out)
        for part, function, arguments in (
            ("", conv.forward, (x, w, None, plan, out)),
            ("/input", conv.input_gradient, (g, w, size, plan)),
            ("/weight", conv.weight_gradient, (x, g, kernel, plan)),
        ):
            partial: Callable[..., Callable[[], object]] = functools.partial
            pairs[name + part] = (partial(function, np, *arguments), partial(function, general, *arguments))
    return pairs


def other_pairs() -> dict[str, Pair]:
    """2x2 max pooling, choice by a mask without a pattern, a long formula, and the affine map of a batch of 64."""
    x, g = normal(32, 32, 32, 32), normal(32, 32, 16, 16)
    window = Window((2, 2), (2, 2), (0, 0), (1, 1), (32, 32), (16, 16))
    _, winners = max_pool.max_pool(np, x, window)
    rows, w, b = normal(64, 1024), normal(1024, 1024), normal(1024)
    tall = normal(4096, 64)

    def tiles() -> Any:
        return x.reshape(32, 32, 16, 2, 16, 2).transpose(0, 1, 2, 4, 3, 5).reshape(32, 32, 16, 16, 4)

    first = tiles().argmax(-1)[..., None]

    def plain_backward() -> Any:
        out = np.zeros((32, 32, 16, 16, 4), np.float32)
        np.put_along_axis(out, first, g[..., None], -1)
        out = out.reshape(32, 32, 16, 16, 2, 2).transpose(0, 1, 2, 4, 3, 5)
        return np.ascontiguousarray(out).reshape(32, 32, 32, 32)

    mask, left, right = RNG.random((1024, 1024)) < 0.5, normal(1024, 1024), normal(1024, 1024)

    def sigmoid_slope(g: Any, y: Any) -> Any:
        s = 1 / (1 + np.exp(-y))
        return g * (s * (1 + y * (1 - s)))

    return {
        "max_pool": (lambda: max_pool.max_pool(np, x, window), lambda: (tiles().max(-1), tiles().argmax(-1))),
        "max_pool/backward": (lambda: max_pool.max_pool_backward(np, g, winners, window), plain_backward),
        "choose": (lambda: choose(np, mask, left, right), lambda: np.where(mask, left, right)),
        "blockwise": (lambda: blockwise(np, sigmoid_slope, left, right), lambda: sigmoid_slope(left, right)),
        "affine": (lambda: matmul.matmul_transposed(np, rows, w, b), lambda: rows @ w.T + b),
        "column_sums": (lambda: matmul.column_sums(rows), lambda: rows.sum(0)),
        "column_sums/tall": (lambda: matmul.column_sums(tall), lambda: tall.sum(0)),
    }


def recurrent_pairs() -> dict[str, Pair]:
    """A training pass of recurrent layers, the steps in one operation and as recorded operations."""
    pairs: dict[str, Pair] = {}
    for name, gates, steps, batch, width in (
        ("lstm", 4, 64, 32, 128),
        ("gru", 3, 64, 32, 128),
        ("rnn", 1, 64, 32, 128),
        ("lstm/small", 4, 30, 4, 32),
    ):
        operation = REGISTRY[f"{name.split('/')[0]}_sequence"]
        shapes = [(steps, batch, gates * width), (batch, width), (gates * width, width)]
        if gates == 4:
            shapes.insert(1, (batch, width))
        inputs = [wrap(normal(*shape)).requires_grad_() for shape in shapes]
        inputs += [wrap(normal(gates * width)).requires_grad_()] * (gates == 3)
        seed = wrap(normal(steps, batch, width))

        def run(function: Callable[..., Any], inputs: Any = inputs, seed: Any = seed) -> None:
            out = function(*inputs)
            backward(out[0] if isinstance(out, tuple) else out, [seed])

        fused = getattr(recurrent, operation.name)
        recorded = functools.partial(operation.composite, TensorBase.namespace)  # type: ignore[arg-type]
        pairs[name] = (functools.partial(run, fused), functools.partial(run, recorded))
    return pairs


def median_ms(function: Callable[[], object], seconds: float) -> float:
    """The median processor time of a call in milliseconds: machines are shared, and this forgives the other users."""
    function()
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 3 or time.perf_counter() - start < seconds:
        before = time.process_time()
        function()
        times.append(time.process_time() - before)
    return sorted(times)[len(times) // 2] * 1e3


def main() -> None:
    """Times what was asked for: both in turn, three rounds, the best of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="beginnings of names, separated by commas")
    parser.add_argument("--seconds", type=float, default=0.2, help="time for each figure and round")
    arguments = parser.parse_args()
    wanted = tuple(filter(None, arguments.only.split(",")))
    silence(QUIET)
    for group in (softmax_pairs, gelu_pairs, norm_pairs, attention_pairs, conv_pairs, other_pairs, recurrent_pairs):
        for name, (kernel, formula) in group().items():
            if wanted and not name.startswith(wanted):
                continue
            rounds = [(median_ms(kernel, arguments.seconds), median_ms(formula, arguments.seconds)) for _ in range(3)]
            ours, plain = (min(column) for column in zip(*rounds, strict=True))
            figure = {"name": f"kernel/{name}", "kernel_ms": ours, "formula_ms": plain, "ratio": ours / plain}
            print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in figure.items()}), flush=True)


if __name__ == "__main__":
    main()
