"""DataParallel: PyTorch's older form of data parallelism, on the one device that there is."""

from collections.abc import Sequence
from typing import Any

from ddpflow.errors import DeviceError
from ddpflow.nn.module import Module

__all__ = ["DataParallel"]


class DataParallel(Module):
    """Calls the module: a wrapper that lets scripts written for PyTorch's DataParallel run on one device.

    Args:
        module: The module.
        device_ids: At most one device.
        output_device: Taken for compatibility.
        dim: Taken for compatibility.

    Raises:
        DeviceError: For several devices, for which `ddpflow.nn.parallel.DistributedDataParallel` is there.
    """

    def __init__(
        self, module: Module, device_ids: Sequence[Any] | None = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        if device_ids is not None and len(device_ids) > 1:
            raise DeviceError(
                f"DataParallel runs on one device, not on {len(device_ids)}: use DistributedDataParallel, one process "
                "a device, started by ddprun"
            )
        self.module = module
        self.device_ids = list(device_ids or [])
        self.output_device = output_device
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)
