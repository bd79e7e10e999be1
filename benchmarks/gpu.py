"""Times training steps and all-reduces on GPUs, for ddpflow (CuPy, NCCL) or PyTorch; prints one JSON object per figure.

    python benchmarks/gpu.py --lib ddpflow
    ddprun --nproc-per-node 8 benchmarks/gpu.py --lib ddpflow --only all_reduce,mlp
    torchrun --nproc-per-node 8 benchmarks/gpu.py --lib torch

With more than one rank the models are wrapped in DistributedDataParallel. Times are taken from events on the GPU.
`make gpu-check` runs it for both libraries and puts the figures into docs/gpu.md.
"""

import argparse
import os
import statistics
from collections.abc import Callable
from typing import Any

from library import Library, add_arguments, load
from models import mlp

__all__ = ["MODELS", "main"]


def gpt(lib: Library) -> tuple[Any, Any, Any]:
    """GPT-2's smallest shape: 124 M parameters, batch 8 x 1024 tokens."""
    nn, torch, functional = lib.nn, lib.torch, lib.functional
    vocabulary, context, width, depth, heads = 50304, 1024, 768, 12, 12

    class Block(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, t, d = x.shape
            q, k, v = self.qkv(self.norm1(x)).reshape(b, t, 3, heads, d // heads).permute(2, 0, 3, 1, 4)
            a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(depth)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
            self.head.weight = self.token.weight

        def forward(self, tokens: Any) -> Any:
            x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
            return self.head(self.norm(self.blocks(x))).flatten(0, 1)

    return GPT(), torch.randint(0, vocabulary, (8, context)), torch.randint(0, vocabulary, (8 * context,))


def resnet(lib: Library) -> tuple[Any, Any, Any]:
    """ResNet-18's shape for 32 x 32 images: 11 M parameters, batch 256."""
    nn, torch, functional = lib.nn, lib.torch, lib.functional

    class Block(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
            self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else nn.Identity()

        def forward(self, x: Any) -> Any:
            h = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))
            return functional.relu(h + self.short(x))

    widths = [
        (64, 64, 1),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
    ]
    blocks = [Block(*w) for w in widths]
    start = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    net = nn.Sequential(*start, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    return net, torch.randn(256, 3, 32, 32), torch.randint(0, 10, (256,))


MODELS: dict[str, Callable[[Library], tuple[Any, Any, Any]]] = {"mlp": mlp, "resnet": resnet, "gpt": gpt}


def timed(lib: Library, step: Callable[[], object], repeats: int) -> list[float]:
    """Milliseconds of each call, from events on the current stream."""
    cuda = lib.torch.cuda
    for _ in range(3):
        step()
    marks = [cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    cuda.synchronize()
    return sorted(a.elapsed_time(b) for a, b in zip(marks, marks[1:], strict=False))


def train(lib: Library, name: str, dtype: str, repeats: int) -> None:
    """Times the training step of one model."""
    lib.torch.manual_seed(0)
    net, inputs, labels = MODELS[name](lib)
    net, inputs, labels = net.cuda(), inputs.cuda(), labels.cuda()
    if dtype != "float32":
        kind = getattr(lib.torch, dtype)
        net = net.to(kind)
        inputs = inputs.to(kind) if inputs.is_floating_point() else inputs
    parameters = sum(p.numel() for p in net.parameters())
    if lib.world > 1:
        net = lib.nn.parallel.DistributedDataParallel(net)
    optimizer = lib.torch.optim.AdamW(net.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        lib.functional.cross_entropy(net(inputs).float(), labels).backward()
        optimizer.step()

    times = timed(lib, step, repeats)
    more: dict[str, object] = {}
    if lib.world > 1 and lib.side == "ddpflow":
        more["exposed"] = net.plan().exposed
    report(lib, f"train/{name}/{dtype}", times, parameters=parameters, **more)


def all_reduce(lib: Library, repeats: int) -> None:
    """Times all-reduces from 1 KB to 256 MB; bus bandwidth as NCCL's own tests count it."""
    for exponent in range(10, 29, 3):
        x = lib.torch.ones(1 << exponent - 2).cuda()
        times = timed(lib, lambda x=x: lib.dist.all_reduce(x), repeats)  # type: ignore[misc]
        seconds = statistics.median(times) / 1e3
        bus = (1 << exponent) / seconds * 2 * (lib.world - 1) / lib.world / 1e9
        report(lib, f"all_reduce/{1 << exponent}", times, bus_gb_per_s=round(bus, 2))


def report(lib: Library, name: str, times: list[float], **more: object) -> None:
    """Prints one figure on the first rank."""
    lib.say(name, [t / 1e3 for t in times], **more)


def main() -> None:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--only", default="mlp,resnet,gpt,all_reduce", help="figures, separated by commas")
    parser.add_argument("--dtype", default="float32", help="float32 or bfloat16")
    parser.add_argument("--repeats", type=int, default=20, help="timed calls of each")
    arguments = parser.parse_args()
    lib = load(arguments.lib)
    if not lib.torch.cuda.is_available():
        raise SystemExit(f"{lib.side} finds no GPU here: nothing can be measured")
    lib.torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if lib.world > 1:
        lib.dist.init_process_group("cpu:shm,cuda:nccl" if lib.side == "ddpflow" else "nccl")
    for name in arguments.only.split(","):
        if name != "all_reduce":
            train(lib, name, arguments.dtype, arguments.repeats)
        elif lib.world > 1:
            all_reduce(lib, arguments.repeats)
    lib.finish()


if __name__ == "__main__":
    main()
