"""Measures the peak memory of a training step: the resident size that a few steps reach, above the bare process.

    python benchmarks/step_memory.py --lib ddpflow
    python benchmarks/step_memory.py --lib torch --only cnn

The bare process has the library imported and has taken one step of a model of a single number. Parameters, gradients,
the optimizer's momentum, the batch and all temporaries count. Each model has a process of its own; Linux only.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from library import Library, add_arguments, load
from models import MODELS

STEPS = 5


def resident_mb(field: str) -> float:
    """Returns a field of this process's status in MB: VmRSS for what is resident, VmHWM for its peak."""
    [kilobytes] = re.findall(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    return int(kilobytes) / 1024


def train(lib: Library, net: Any, inputs: Any, labels: Any, steps: int) -> None:
    """Takes some steps."""
    optimizer = lib.torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        lib.functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()


def measure(lib: Library, name: str) -> None:
    """Prints the peak of one model."""
    lib.torch.manual_seed(0)
    train(lib, lib.nn.Linear(1, 1), lib.torch.ones(1, 1), lib.torch.zeros(1, dtype=lib.torch.int64), 1)
    before = resident_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    train(lib, *MODELS[name](lib), STEPS)
    figure = {"side": lib.side, "name": f"memory/{name}", "world": 1, "mb": round(resident_mb("VmHWM") - before, 2)}
    print(json.dumps(figure), flush=True)


def main() -> None:
    """Measures one model, or starts a process for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--only", default=",".join(MODELS), help="models, separated by commas")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if len(names) == 1:
        measure(load(arguments.lib), names[0])
        return
    for name in names:
        subprocess.run([sys.executable, __file__, "--lib", arguments.lib, "--only", name], check=True)


if __name__ == "__main__":
    main()
