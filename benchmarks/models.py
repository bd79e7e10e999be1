"""The four models of the training benchmarks, each with a batch: `MODELS[name](lib)` returns (net, inputs, labels)."""

from collections.abc import Callable
from typing import Any

from library import Library

__all__ = ["MODELS"]


def mlp(lib: Library) -> tuple[Any, Any, Any]:
    """1.86 M parameters in 6 tensors, batch 64: bound by communication."""
    nn, torch = lib.nn, lib.torch
    net = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    return net, torch.randn(64, 784), torch.randint(0, 10, (64,))


def deep(lib: Library) -> tuple[Any, Any, Any]:
    """0.2 M parameters in 102 tensors, batch 16: bound by overhead."""
    nn, torch = lib.nn, lib.torch
    layers = [layer for _ in range(50) for layer in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(64, 10)), torch.randn(16, 64), torch.randint(0, 10, (16,))


def cnn(lib: Library) -> tuple[Any, Any, Any]:
    """0.6 M parameters, batch 32 of 3x32x32: bound by convolutions."""
    nn, torch = lib.nn, lib.torch

    def convolution(inputs: int, outputs: int) -> list[Any]:
        return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]

    net = nn.Sequential(
        *convolution(3, 32),
        *convolution(32, 32),
        nn.MaxPool2d(2),
        *convolution(32, 64),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 8 * 8, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    return net, torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))


def gpt(lib: Library) -> tuple[Any, Any, Any]:
    """3.3 M parameters, batch 8 x 128 tokens: bound by matrix products."""
    nn, torch, functional = lib.nn, lib.torch, lib.functional
    vocabulary, context, width, depth, heads = 256, 128, 256, 4, 4

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
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class GPT(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(depth)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

        def forward(self, tokens: Any) -> Any:
            x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
            return self.head(self.norm(self.blocks(x))).flatten(0, 1)

    return GPT(), torch.randint(0, vocabulary, (8, context)), torch.randint(0, vocabulary, (8 * context,))


MODELS: dict[str, Callable[[Library], tuple[Any, Any, Any]]] = {"mlp": mlp, "deep": deep, "cnn": cnn, "gpt": gpt}
