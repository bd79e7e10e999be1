"""Recurrent layers over whole sequences: RNN, LSTM, GRU; stacked, in both directions, padded or packed."""

import math
from typing import Any
from warnings import warn

from ddpflow.autograd.ops.joining import cat, stack
from ddpflow.autograd.tensor import Tensor
from ddpflow.errors import DtypeError, ShapeError, ValueRangeError
from ddpflow.factories import empty, zeros
from ddpflow.nn import functional as F
from ddpflow.nn import init
from ddpflow.nn.module import Module
from ddpflow.nn.modules.recurrence import State, run
from ddpflow.nn.parameter import Parameter
from ddpflow.nn.utils.rnn import PackedSequence

__all__ = ["GRU", "LSTM", "RNN", "RNNBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
_PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")


class RNNBase(Module):
    """What the recurrent layers share; users take `RNN`, `LSTM` or `GRU`, whose arguments are explained at `LSTM`.

    Args:
        mode: ``"RNN_TANH"``, ``"RNN_RELU"``, ``"LSTM"`` or ``"GRU"``.

    Raises:
        DtypeError: When ``hidden_size`` is no integer.
        ValueRangeError: When a size is not positive, ``dropout`` no probability, or ``proj_size`` out of range.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueRangeError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed, "
                f"not {dropout}"
            )
        if dropout > 0 and num_layers == 1:
            warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}",
                stacklevel=3,
            )
        if not isinstance(hidden_size, int):
            raise DtypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
        if hidden_size <= 0 or num_layers <= 0:
            raise ValueRangeError(f"hidden_size {hidden_size} and num_layers {num_layers} must be positive")
        if not 0 <= proj_size < hidden_size:
            raise ValueRangeError(f"proj_size should be between 0 and hidden_size - 1, not {proj_size}")
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        rows, width = _GATES[mode] * hidden_size, proj_size or hidden_size
        for layer in range(num_layers):
            features = input_size if layer == 0 else width * (2 if bidirectional else 1)
            shapes = [(rows, features), (rows, width), (rows,), (rows,), (width, hidden_size)]
            for suffix in self._suffixes(layer):
                for part, shape in zip(_PARTS, shapes, strict=True):
                    if (bias or not part.startswith("bias")) and (proj_size or part != "weight_hr"):
                        made = Parameter(empty(shape, device=device, dtype=dtype))
                        self.register_parameter(f"{part}{suffix}", made)
        self.reset_parameters()

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"] if self.bidirectional else [f"_l{layer}"]

    def _weights(self, suffix: str) -> tuple[Any, ...]:
        return tuple(self._parameters.get(f"{part}{suffix}") for part in _PARTS)

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        suffixes = [suffix for layer in range(self.num_layers) for suffix in self._suffixes(layer)]
        return [[weight for weight in self._weights(suffix) if weight is not None] for suffix in suffixes]

    def flatten_parameters(self) -> None:
        """Nothing: here for PyTorch's scripts, where it puts the weights side by side in GPU memory."""

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        for name, default in (("bias", True), ("batch_first", False), ("dropout", 0), ("bidirectional", False)):
            value = getattr(self, name)
            if value != default:
                text += f", {name}={value}"
        return text

    def _state_widths(self) -> list[int]:
        """The widths of the states' parts: hidden, and for an LSTM the cell."""
        hidden = self.proj_size or self.hidden_size
        return [hidden, self.hidden_size] if self.mode == "LSTM" else [hidden]

    def _initial(self, hx: Any, batch: int, like: Tensor, batched: bool, order: Tensor | None) -> State:
        """The states before the first step, each ``(layers * directions, batch, width)``.

        Raises:
            ShapeError: When a given one has another shape.
        """
        count = self.num_layers * (2 if self.bidirectional else 1)
        widths = self._state_widths()
        if hx is None:
            return tuple(zeros(count, batch, width, dtype=like.dtype, device=like.device) for width in widths)
        given = tuple(hx) if self.mode == "LSTM" else (hx,)
        if len(given) != len(widths):
            raise ShapeError(f"LSTM takes a state (h_0, c_0), not {len(given)} tensors")
        parts = []
        for place, (part, width) in enumerate(zip(given, widths, strict=True)):
            if part.ndim != (3 if batched else 2):
                kind = "batched 3-D" if batched else "unbatched 2-D"
                raise ShapeError(
                    f"For {kind} input, the hidden state should have {3 if batched else 2} dimensions but got shape "
                    f"{tuple(part.shape)}"
                )
            part = part if batched else part.unsqueeze(1)
            if tuple(part.shape) != (count, batch, width):
                name = f"hidden[{place}]" if self.mode == "LSTM" else "hidden"
                raise ShapeError(f"Expected {name} size {(count, batch, width)}, got {tuple(part.shape)}")
            parts.append(part if order is None else part.index_select(1, order))
        return tuple(parts)

    def forward(self, input: Any, hx: Any = None) -> Any:
        packed = input if isinstance(input, PackedSequence) else None
        if packed is not None:
            data, order = packed.data, packed.sorted_indices
            sizes: list[int] = packed.batch_sizes.tolist()
            batched = True
        else:
            data, sizes, batched = self._unpadded(input)
            order = None
        if data.shape[-1] != self.input_size:
            raise ShapeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {data.shape[-1]} in "
                f"{tuple(data.shape)}"
            )
        weight: Any = self._parameters["weight_ih_l0"]
        if data.dtype is not weight.dtype:
            raise ValueRangeError(
                f"RNN input dtype ({data.dtype}) does not match weight dtype ({weight.dtype}): convert the input or "
                "the module with to()"
            )
        states = self._initial(hx, sizes[0], data, batched, order)
        output, final = self._run(data, sizes, states)
        if packed is not None:
            back = packed.unsorted_indices
            result: Any = PackedSequence(output, packed.batch_sizes, order, back)
            if back is not None:
                final = tuple(part.index_select(1, back) for part in final)
        else:
            result = output.reshape(len(sizes), sizes[0], output.shape[-1])
            if not batched:
                result = result.squeeze(1)
                final = tuple(part.squeeze(1) for part in final)
            elif self.batch_first:
                result = result.transpose(0, 1)
        return result, (final if self.mode == "LSTM" else final[0])

    def _unpadded(self, input: Tensor) -> tuple[Any, list[int], bool]:
        """A padded batch's steps one after another, their sizes, and whether there was a batch dimension."""
        if input.ndim not in (2, 3):
            name = type(self).__name__
            raise ValueRangeError(f"{name}: Expected input to be 2D or 3D, got shape {tuple(input.shape)} instead")
        batched = input.ndim == 3
        steps: Any = input if batched else input.unsqueeze(1)
        if batched and self.batch_first:
            steps = steps.transpose(0, 1)
        length, batch, features = steps.shape
        if length == 0:
            raise ShapeError(f"Expected sequence length to be larger than 0 in RNN, got shape {tuple(input.shape)}")
        return steps.reshape(length * batch, features), [batch] * length, batched

    def _run(self, data: Any, sizes: list[int], states: State) -> tuple[Any, State]:
        """All layers, in both directions."""
        finals: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for suffix in self._suffixes(layer):
                before = tuple(part[len(finals)] for part in states)
                reverse = suffix.endswith("_reverse")
                output, final = run(self.mode, data, sizes, before, self._weights(suffix), reverse)
                outputs.append(output)
                finals.append(final)
            data = outputs[0] if len(outputs) == 1 else cat(outputs, -1)
            if self.dropout and layer < self.num_layers - 1:
                data = F.dropout(data, self.dropout, self.training)
        return data, tuple(stack(list(parts)) for parts in zip(*finals, strict=True))


class RNN(RNNBase):
    """The plain recurrent layer: ``h = tanh(W_ih x + b_ih + W_hh h + b_hh)``.

    Args:
        input_size: The features of each step.
        hidden_size: The features of the hidden state.
        num_layers: Layers on top of one another.
        nonlinearity: ``"tanh"`` or ``"relu"``.
        bias: Add learned constants.
        batch_first: Inputs and outputs are ``(N, T, *)``.
        dropout: Dropout between layers.
        bidirectional: Run in both directions, and give both outputs.
        device: Where the parameters live.
        dtype: Their type.

    Raises:
        ValueRangeError: For an unknown nonlinearity.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueRangeError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        mode = f"RNN_{nonlinearity.upper()}"
        super().__init__(
            mode,
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
        )
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), with PyTorch's gates and weights.

    ``forward`` takes ``(T, N, input_size)``, one sequence ``(T, input_size)`` or a `PackedSequence`, and
    optionally the state ``(h_0, c_0)``, each ``(layers * directions, N, width)``. It returns the top
    layer's hidden states and the state after the last step.

    Args:
        input_size: The features of each step.
        hidden_size: The features of the hidden state.
        num_layers: Layers on top of one another.
        bias: Add learned constants.
        batch_first: Inputs and outputs are ``(N, T, *)``; states are not.
        dropout: Dropout between layers.
        bidirectional: Run in both directions, and give both outputs.
        proj_size: Project the hidden state to this width; 0 for none.
        device: Where the parameters live.
        dtype: Their type.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
        )


class GRU(RNNBase):
    """The gated recurrent unit (Cho et al. 2014), with PyTorch's gates; the arguments are those of `LSTM`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "GRU",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
        )
