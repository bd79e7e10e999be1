"""Recurrent cells: one step of a recurrent layer."""

import math
from typing import Any

from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import ShapeError, ValueRangeError
from ddpflow.factories import empty, zeros
from ddpflow.nn import functional as F
from ddpflow.nn import init
from ddpflow.nn.module import Module
from ddpflow.nn.modules.recurrence import STEPS, State
from ddpflow.nn.parameter import Parameter

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]


class RNNCellBase(Module):
    """What the cells share; users take `RNNCell`, `LSTMCell` or `GRUCell`.

    Args:
        input_size: The input's features.
        hidden_size: The state's features.
        bias: Add learned constants.
        num_chunks: How many gates there are.
        device: Where the parameters live.
        dtype: Their type.
    """

    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(empty(rows, input_size, device=device, dtype=dtype))
        self.weight_hh = Parameter(empty(rows, hidden_size, device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(empty(rows, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            text += f", bias={self.bias}"
        nonlinearity = getattr(self, "nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"

    def _step(self, mode: str, input: Tensor, given: tuple[Tensor | None, ...]) -> State:
        """One step from the given states (None: zeros), with or without a batch dimension.

        Raises:
            ValueRangeError: When input or state has neither one dimension nor two.
            ShapeError: When sizes do not fit.
        """
        name = type(self).__name__
        if input.ndim not in (1, 2):
            raise ValueRangeError(f"{name}: Expected input to be 1D or 2D, got shape {tuple(input.shape)} instead")
        if input.shape[-1] != self.input_size:
            raise ShapeError(
                f"input has inconsistent input_size: got {input.shape[-1]} in {tuple(input.shape)}, expected "
                f"{self.input_size}"
            )
        batched = input.ndim == 2
        x: Any = input if batched else input.unsqueeze(0)
        state: list[Any] = []
        for part in given:
            if part is None:
                part = zeros(x.shape[0], self.hidden_size, dtype=input.dtype, device=input.device)
            elif part.ndim not in (1, 2):
                raise ValueRangeError(f"{name}: Expected hidden to be 1D or 2D, got shape {tuple(part.shape)} instead")
            elif part.ndim == 1:
                part = part.unsqueeze(0)
            if tuple(part.shape) != (x.shape[0], self.hidden_size):
                raise ShapeError(
                    f"a hidden state of shape {tuple(part.shape)} does not fit an input of shape "
                    f"{tuple(input.shape)} and hidden_size {self.hidden_size}"
                )
            state.append(part)
        projected = F.linear(x, self.weight_ih, self.bias_ih)
        after = STEPS[mode](projected, tuple(state), self.weight_hh, self.bias_hh, None)
        return after if batched else tuple(part.squeeze(0) for part in after)


class RNNCell(RNNCellBase):
    """One step of `RNN`: ``h = tanh(W_ih x + b_ih + W_hh h + b_hh)``.

    Args:
        input_size: The input's features.
        hidden_size: The state's features.
        bias: Add learned constants.
        nonlinearity: ``"tanh"`` or ``"relu"``.
        device: Where the parameters live.
        dtype: Their type.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Any:
        mode = f"RNN_{self.nonlinearity.upper()}"
        if mode not in STEPS:
            raise ShapeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(mode, input, (hx,))[0]


class LSTMCell(RNNCellBase):
    """One step of `LSTM`; ``forward(input, (h, c))`` returns the next ``(h, c)``.

    Args:
        input_size: The input's features.
        hidden_size: The state's features.
        bias: Add learned constants.
        device: Where the parameters live.
        dtype: Their type.
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> Any:
        return self._step("LSTM", input, (None, None) if hx is None else tuple(hx))


class GRUCell(RNNCellBase):
    """One step of `GRU`.

    Args:
        input_size: The input's features.
        hidden_size: The state's features.
        bias: Add learned constants.
        device: Where the parameters live.
        dtype: Their type.
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Any:
        return self._step("GRU", input, (hx,))[0]
