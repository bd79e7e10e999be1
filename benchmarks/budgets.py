"""What the project promises for each figure: the ratio to another figure of the same round that it must not pass."""

from dataclasses import dataclass

__all__ = ["Budget", "find"]

KB, MB = 1 << 10, 1 << 20
Key = tuple[str, int]  # a figure's name and its number of ranks

TRAIN = {
    ("train/mlp", 1): 1.0,
    ("train/deep", 1): 0.6,
    ("train/gpt", 1): 0.8,
    ("train/cnn", 1): 1.2,
    ("train/mlp", 2): 0.65,
    ("train/deep", 2): 0.3,
    ("train/gpt", 2): 0.8,
    ("train/cnn", 2): 1.15,
}
OTHER = {("op/forward", 1): 1.3, ("op/forward+backward", 1): 1.0, ("startup/launch", 2): 0.25}
OPTIM = {(f"optim/{name}", 1): 1.0 for name in ("sgd", "adam", "adamw")}
MEMORY = {(f"memory/{model}", 1): 1.0 for model in ("mlp", "deep", "gpt", "cnn")}
# Figures that are compared with another figure of our own.
IMPORT_TO_NUMPY = 1.4
COPY_TO_ALL_REDUCE = 1 / 0.7  # at least 70 % of what memory bandwidth allows


@dataclass(frozen=True)
class Budget:
    """The figure to compare with, and the largest ratio to it; None where nothing is promised."""

    beside: Key
    ratio: float | None = None


def find(key: Key, peer: str) -> Budget:
    """Returns the budget of one of our figures beside a peer's, or beside our own when `peer` is "ddpflow"."""
    name, world = key
    kind, _, size = name.partition("/")
    if peer == "ddpflow":
        if name == "startup/import":
            return Budget(("startup/numpy", world), IMPORT_TO_NUMPY)
        if kind.startswith("all_reduce"):
            nbytes = int(size)
            return Budget((f"copy/{nbytes}", world), COPY_TO_ALL_REDUCE if nbytes == 64 * MB else None)
        return Budget(key)
    if kind.startswith("all_reduce"):
        nbytes = int(size)
        beside = (f"all_reduce/{nbytes}", world)
        if world != 2:
            return Budget(beside)
        if peer == "torch":
            return Budget(beside, 0.05 if nbytes <= 256 * KB else 0.2)
        return Budget(beside, 1.3 if nbytes <= KB else 0.5 if nbytes >= MB else 1.0)
    return Budget(key, {**TRAIN, **OTHER, **OPTIM, **MEMORY}.get(key) if peer == "torch" else None)
