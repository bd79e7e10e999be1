"""Layers that take the number of their input's channels from the first input, and then are the plain layers."""

import functools
from collections.abc import Callable
from typing import Any, ClassVar

from ddpflow.autograd.tensor import Tensor
from ddpflow.nn.module import Module
from ddpflow.nn.modules.batchnorm import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from ddpflow.nn.modules.conv import Conv1d, Conv2d, Conv3d
from ddpflow.nn.modules.conv_transpose import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ddpflow.nn.modules.linear import Linear
from ddpflow.nn.parameter import UninitializedParameter

__all__ = [
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
]


class LazyModule(Module):
    """What lazy layers share: their parameters have no shape until the first forward, or until a state is loaded.

    Then each is a layer of its class ``becomes``, with the same parameter objects, hooks and attributes.
    """

    make: Callable[[int], Any]
    becomes: ClassVar[Any]
    channels: ClassVar[int]  # which dimension of the input counts
    loaded: ClassVar[tuple[tuple[str, int], ...]]  # from which dimension of which tensor of a state the size is known

    def _start(self, *arguments: Any, **options: Any) -> None:
        """Be the layer for no channels, which has every attribute; its first argument is what comes later."""
        self.becomes.__init__(self, 0, *arguments, **options)
        for name, parameter in self._parameters.items():
            if parameter is not None:
                self._parameters[name] = self.__dict__[name] = UninitializedParameter(parameter.detach())
        self.make = functools.partial(_make, self.becomes, arguments, options)
        self.register_forward_pre_hook(_complete_for)

    def reset_parameters(self) -> None:
        """Nothing: the layer that this becomes starts its parameters itself."""

    def _complete(self, size: int) -> None:
        """Become the layer for so many channels, with parameters where and of the type that this one's are."""
        made, own = self.make(size), self.__dict__
        for name, parameter in self._parameters.items():
            if isinstance(parameter, UninitializedParameter):
                parameter.materialize(made.get_parameter(name).detach().to(parameter.device, parameter.dtype))
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = own[name] = made.get_buffer(name).to(buffer.device, buffer.dtype)
        for name, value in made.__dict__.items():
            if not name.startswith("_") and name not in (*self._parameters, *self._buffers, "training"):
                own[name] = value
        del own["make"]
        for number, hook in list(self._forward_pre_hooks.items()):
            if hook.function is _complete_for:
                del self._forward_pre_hooks[number]
        self.__class__ = self.becomes

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, dim in self.loaded:
            found = state_dict.get(prefix + name)
            if found is not None and found.numel():
                self._complete(found.shape[dim] * (getattr(self, "groups", 1) if dim == 1 else 1))
                return self._load_from_state_dict(state_dict, prefix, *rest)
        return super()._load_from_state_dict(state_dict, prefix, *rest)


def _make(kind: Any, arguments: tuple[Any, ...], options: dict[str, Any], size: int) -> Any:
    return kind(size, *arguments, **options)


def _complete_for(module: LazyModule, inputs: tuple[Tensor, ...]) -> None:
    """The hook that sees the first input."""
    module._complete(inputs[0].shape[module.channels])


class LazyLinear(LazyModule, Linear):
    """A `Linear` layer whose ``in_features`` is the length of its first input's last dimension.

    Args:
        out_features: The length of the output's last dimension.
        bias: Add a learned constant.
        device: Where the parameters live.
        dtype: Their type.

    Example:
        >>> import ddpflow
        >>> layer = ddpflow.nn.LazyLinear(2)
        >>> layer(ddpflow.ones(4, 3)).shape, layer
        (ddpflow.Size([4, 2]), Linear(in_features=3, out_features=2, bias=True))
    """

    becomes, channels, loaded = Linear, -1, (("weight", 1),)

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        self._start(out_features, bias, device, dtype)


class _LazyConv(LazyModule):
    loaded = (("weight", 1),)

    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        self._start(out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype)


class LazyConv1d(_LazyConv, Conv1d):
    """A `Conv1d` whose ``in_channels`` is that of its first input; the other arguments are the same."""

    becomes, channels = Conv1d, -2


class LazyConv2d(_LazyConv, Conv2d):
    """A `Conv2d` whose ``in_channels`` is that of its first input; the other arguments are the same."""

    becomes, channels = Conv2d, -3


class LazyConv3d(_LazyConv, Conv3d):
    """A `Conv3d` whose ``in_channels`` is that of its first input; the other arguments are the same."""

    becomes, channels = Conv3d, -4


class _LazyConvTranspose(LazyModule):
    loaded = (("weight", 0),)

    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        rest = (groups, bias, dilation, padding_mode, device, dtype)
        self._start(out_channels, kernel_size, stride, padding, output_padding, *rest)


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """A `ConvTranspose1d` whose ``in_channels`` is that of its first input; the other arguments are the same."""

    becomes, channels = ConvTranspose1d, -2


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """A `ConvTranspose2d` whose ``in_channels`` is that of its first input; the other arguments are the same."""

    becomes, channels = ConvTranspose2d, -3


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """A `ConvTranspose3d` whose ``in_channels`` is that of its first input; the other arguments are the same."""

    becomes, channels = ConvTranspose3d, -4


class _LazyNorm(LazyModule):
    loaded = (("weight", 0), ("running_mean", 0))

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        self._start(eps, momentum, affine, track_running_stats, device, dtype, bias=bias)


class LazyBatchNorm1d(_LazyNorm, BatchNorm1d):
    """A `BatchNorm1d` whose ``num_features`` is its first input's channels; the other arguments are the same."""

    becomes, channels = BatchNorm1d, 1


class LazyBatchNorm2d(_LazyNorm, BatchNorm2d):
    """A `BatchNorm2d` whose ``num_features`` is its first input's channels; the other arguments are the same."""

    becomes, channels = BatchNorm2d, 1


class LazyBatchNorm3d(_LazyNorm, BatchNorm3d):
    """A `BatchNorm3d` whose ``num_features`` is its first input's channels; the other arguments are the same."""

    becomes, channels = BatchNorm3d, 1


class LazyInstanceNorm1d(_LazyNorm, InstanceNorm1d):
    """An `InstanceNorm1d` whose ``num_features`` is its first input's channels; by default with all options."""

    becomes, channels = InstanceNorm1d, -2


class LazyInstanceNorm2d(_LazyNorm, InstanceNorm2d):
    """An `InstanceNorm2d` whose ``num_features`` is its first input's channels; by default with all options."""

    becomes, channels = InstanceNorm2d, -3


class LazyInstanceNorm3d(_LazyNorm, InstanceNorm3d):
    """An `InstanceNorm3d` whose ``num_features`` is its first input's channels; by default with all options."""

    becomes, channels = InstanceNorm3d, -4
