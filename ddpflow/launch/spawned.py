"""A rank that ``spawn`` has started: fetches the call, runs it, and leaves the result in a file.

Run by path, because only the call says where modules, ddpflow among them, are found.
"""

import importlib
import os
import pickle
import runpy
import sys
from types import ModuleType
from typing import Any

__all__ = ["main"]


def main(folder: str) -> None:
    """Runs the call in ``folder`` and writes its result there.

    The folder is private to the user who called ``spawn``, who wrote the pickle in it.
    """
    rank = int(os.environ["RANK"])
    with open(os.path.join(folder, "call"), "rb") as file:
        where, call = pickle.load(file)
    sys.path[:] = where["path"]
    _import_main(where)
    fn, args = pickle.loads(call)
    result = fn(rank, *args)
    path = os.path.join(folder, f"result.{rank}")
    with open(path + ".new", "wb") as file:
        pickle.dump(result, file)
    os.replace(path + ".new", path)


def _import_main(where: dict[str, Any]) -> None:
    """Imports the caller's script: what it defines in ``__main__`` is then there, but what it guards does not run."""
    if where["module"] is None and where["file"] is None:
        return
    with importlib.import_module("ddpflow.launch.spawning").importing_main():
        if where["module"] is not None:
            values = runpy.run_module(where["module"], run_name="__mp_main__", alter_sys=True)
        else:
            values = runpy.run_path(where["file"], run_name="__mp_main__")
    module = ModuleType("__mp_main__")
    module.__dict__.update(values)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module


if __name__ == "__main__":
    main(sys.argv[1])
