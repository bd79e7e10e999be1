"""Times an optimizer's step over many small parameters: 1,000 tensors of 100 elements.

    python benchmarks/optimizer_step.py --lib ddpflow
    python benchmarks/optimizer_step.py --lib torch

PyTorch takes its `foreach` path, the quicker one here.
"""

import argparse
from typing import Any

from library import add_arguments, load

TENSORS, ELEMENTS = 1000, 100


def main() -> None:
    """Times the step of each optimizer, all gradients present."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    arguments = parser.parse_args()
    lib = load(arguments.lib)
    torch, optim = lib.torch, lib.torch.optim
    torch.manual_seed(0)
    optimizers: dict[str, tuple[Any, dict[str, Any]]] = {
        "sgd": (optim.SGD, {"lr": 1e-3, "momentum": 0.9}),
        "adam": (optim.Adam, {"lr": 1e-3}),
        "adamw": (optim.AdamW, {"lr": 1e-3}),
    }
    for name, (optimizer, options) in optimizers.items():
        parameters = [lib.nn.Parameter(torch.randn(ELEMENTS)) for _ in range(TENSORS)]
        for parameter in parameters:
            parameter.grad = torch.randn(ELEMENTS)
        lib.say(f"optim/{name}", lib.timed(optimizer(parameters, foreach=True, **options).step, arguments.seconds))


if __name__ == "__main__":
    main()
