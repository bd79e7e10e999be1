"""Times whole training steps (zero_grad, forward, backward, SGD with momentum) of four models.

    python benchmarks/train_step.py --lib ddpflow
    ddprun --nproc-per-node 2 benchmarks/train_step.py --lib ddpflow
    torchrun --nproc-per-node 2 benchmarks/train_step.py --lib torch --only mlp,gpt

With more than one rank the model is wrapped in DistributedDataParallel. Prints one JSON object per model.
"""

import argparse

from library import Library, add_arguments, load
from models import MODELS


def train(lib: Library, name: str, seconds: float) -> None:
    """Times the training step of one model."""
    lib.torch.manual_seed(0)
    net, inputs, labels = MODELS[name](lib)
    if lib.world > 1:
        net = lib.nn.parallel.DistributedDataParallel(net)
    optimizer = lib.torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        lib.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()

    lib.say(f"train/{name}", lib.timed(step, seconds), parameters=sum(p.numel() for p in net.parameters()))


def main() -> None:
    """Runs the models that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--only", default=",".join(MODELS), help="models, separated by commas")
    arguments = parser.parse_args()
    lib = load(arguments.lib)
    lib.start()
    for name in arguments.only.split(","):
        train(lib, name, arguments.seconds)
    lib.finish()


if __name__ == "__main__":
    main()
