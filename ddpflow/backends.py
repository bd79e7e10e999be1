"""Switches of PyTorch's backends that scripts set. They can be set and read.

``cuda.matmul.allow_tf32`` changes how GPUs multiply, convolutions included, as those are matrix products here. The
others change nothing.
"""

from typing import Any

from ddpflow.device import usable_cupy, use_precision
from ddpflow.errors import ValueRangeError
from ddpflow.precision import chosen_precision

__all__ = ["MatmulSwitches", "Switches", "cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]


class Switches:
    """A group of switches of one backend.

    Args:
        available: Whether this backend is there, or a function that tells.
        switches: Names and starting values.
    """

    def __init__(self, available: Any = False, **switches: Any) -> None:
        self._available = available
        self.__dict__.update(switches)

    def is_available(self) -> bool:
        """Whether this backend is there."""
        return bool(self._available() if callable(self._available) else self._available)

    def is_built(self) -> bool:
        """Whether this backend is there."""
        return self.is_available()

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "_available" and not hasattr(self, name):
            raise AttributeError(f"there is no switch {name!r}; known: {', '.join(self.names())}")
        super().__setattr__(name, value)

    def names(self) -> list[str]:
        """The names of the switches."""
        return sorted(name for name in self.__dict__ if not name.startswith("_"))


class MatmulSwitches(Switches):
    """The switches of matrix products on GPUs, of which two are one: whether float32 may be computed in TF32."""

    @property
    def allow_tf32(self) -> bool:
        """Whether TF32, with 10 bits of fraction, may stand for float32 in products; False at first."""
        return chosen_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        use_precision("high" if value else "highest")

    @property
    def fp32_precision(self) -> str:
        """``"tf32"`` or ``"ieee"``: the same switch under its newer name."""
        return "tf32" if self.allow_tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, value: str) -> None:
        if value not in ("tf32", "ieee", "none"):
            raise ValueRangeError(f"fp32_precision of products is tf32, ieee or none, not {value!r}")
        self.allow_tf32 = value == "tf32"

    def names(self) -> list[str]:
        """The names of the switches."""
        return sorted([*super().names(), "allow_tf32", "fp32_precision"])


def _gpu() -> bool:
    return usable_cupy() is not None


cudnn = Switches(
    _gpu,
    enabled=True,
    benchmark=False,
    benchmark_limit=10,
    deterministic=False,
    allow_tf32=True,
    fp32_precision="none",
    version=lambda: None,
)
cuda = Switches(
    _gpu,
    matmul=MatmulSwitches(
        _gpu, allow_fp16_reduced_precision_reduction=True, allow_bf16_reduced_precision_reduction=True
    ),
    enable_flash_sdp=lambda enabled: None,
    enable_math_sdp=lambda enabled: None,
    enable_mem_efficient_sdp=lambda enabled: None,
    flash_sdp_enabled=lambda: True,
    math_sdp_enabled=lambda: True,
    mem_efficient_sdp_enabled=lambda: True,
)
mps = Switches(False)
mkl = Switches(False)
mkldnn = Switches(False, enabled=False)
openmp = Switches(False)
cpu = Switches(True, get_cpu_capability=lambda: "DEFAULT")
