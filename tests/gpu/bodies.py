"""What is checked of a GPU, written once: tests/gpu runs it on a real one, tests/doubles on the stand-in for CuPy."""

from typing import Any

import numpy as np

import ddpflow
from ddpflow import nn, optim
from ddpflow.dtype import as_numpy
from ddpflow.nn import functional as F
from tests.autograd.samples import Case, cases, distinct

# Ops that are not run on a device as they are, and why.
LEFT_OUT = {"moved": "it moves its input to the CPU: that is its purpose"}
# Ops whose numbers are drawn on the device, by another generator than the CPU's.
RANDOM = {"bernoulli", "dropout", "multinomial", "poisson", "rand_like", "randn_like", "randint_like", "rrelu"}
# Ops whose array options are tables that stay on the host.
HOST_OPTIONS = {"choose_axis", "weigh_axis"}
TOLERANCE = {"float32": 2e-4, "float64": 1e-9, "float16": 2e-2, "bfloat16": 8e-2}
# Ops that have no half precision, here or in CuPy.
NO_HALF: set[Any] = {*LEFT_OUT, *RANDOM, "cholesky", "det", "eigh", "full_svd", "inverse", "reduced_qr", "reduced_svd"}
NO_HALF |= {"pseudo_inverse", "slogdet", "solve_matrix", "view_as_complex"}
NO_HALF |= {("bfloat16", name) for name in ("histc", "logical_not", "logical_xor", "scatter_extreme")}


def on_device(value: Any) -> Any:
    """Arrays and tensors, in tuples and lists too, moved to the GPU."""
    if isinstance(value, np.ndarray):
        return ddpflow.Tensor(value).cuda().array
    if isinstance(value, ddpflow.Tensor):
        return value.detach().cuda()
    return type(value)(map(on_device, value)) if type(value) in (tuple, list) else value


def on_host(array: Any) -> np.ndarray:
    """A copy on the CPU."""
    return array if isinstance(array, np.ndarray) else array.get()


def check_op(definition: Any, dtype: Any) -> None:
    """An op gives the same values and gradients on the GPU as on the CPU, as arrays of the GPU."""
    dtype = as_numpy(dtype)
    tolerance = TOLERANCE[dtype.name]
    for number, case in enumerate(cases(definition)):
        arrays = case.typed(dtype)
        args = case.tensors([None if a is None else a.copy() for a in arrays])
        outs = case.run(args)
        grads = gradients(case, args, outs)
        if definition.name not in HOST_OPTIONS:
            case.specs = [on_device(s) if a is None else s for s, a in zip(case.specs, arrays, strict=True)]
            case.kwargs = {name: on_device(value) for name, value in case.kwargs.items()}
        args = case.tensors([None if a is None else on_device(a) for a in arrays])
        device_outs = case.run(args)
        device_grads = gradients(case, args, device_outs)
        for out, expected in zip(device_outs, outs, strict=True):
            assert out.is_cuda and out.dtype == expected.dtype and out.shape == expected.shape, f"sample {number}"
            if definition.name not in RANDOM:
                close(on_host(out.array), expected.array, tolerance, f"sample {number}")
        for g, expected in zip(device_grads, grads, strict=True):
            if expected is not None and definition.name not in RANDOM:
                close(g, expected, tolerance, f"sample {number}: gradient")


def close(actual: np.ndarray, expected: np.ndarray, tolerance: float, message: str) -> None:
    """Equal up to rounding, relative to the greatest value."""
    if expected.dtype.itemsize == 2 and expected.dtype.kind in "fV":
        actual, expected = actual.astype(np.float32), expected.astype(np.float32)
    finite = expected[np.isfinite(expected)] if expected.dtype.kind in "fc" else expected
    scale = max(1.0, float(np.abs(finite).max())) if finite.size and finite.dtype.kind in "fc" else 1.0
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * scale, err_msg=message)


def gradients(case: Case, args: list[Any], outs: list[Any]) -> list[Any]:
    """The gradients of weighted sums of the outputs, on the host; None where there is none."""
    seeds, chosen = [], []
    for k, out in enumerate(outs):
        if out.requires_grad:
            weights = distinct(out.array.shape, 0.5, 1.5, np.random.default_rng(k)).astype(out.array.dtype)
            chosen.append(out)
            seeds.append(ddpflow.Tensor(on_device(weights) if out.is_cuda else weights))
    if not chosen:
        return []
    ddpflow.autograd.backward(chosen, seeds)
    return [None if args[i].grad is None else on_host(args[i].grad.array) for i in case.float_places]


def numbers(*shape: int, seed: int = 0, positive: bool = False) -> Any:
    """A tensor of distinct numbers."""
    return ddpflow.tensor(
        distinct(shape, 0.1 if positive else -1.5, 1.5, np.random.default_rng(seed)).astype(np.float32)
    )


def integers(high: int, *shape: int, seed: int = 0) -> Any:
    """A tensor of indices."""
    return ddpflow.tensor(np.random.default_rng(seed).integers(0, high, shape))


# name -> (module, its inputs)
MODULES: dict[str, tuple[Any, Any]] = {
    "Linear": (lambda: nn.Linear(5, 3), lambda: [numbers(4, 5)]),
    "Bilinear": (lambda: nn.Bilinear(3, 4, 2), lambda: [numbers(5, 3), numbers(5, 4, seed=1)]),
    "Embedding": (lambda: nn.Embedding(7, 3, padding_idx=1), lambda: [integers(7, 4, 2)]),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(7, 3, mode="mean"), lambda: [integers(7, 4, 3)]),
    "Conv1d": (lambda: nn.Conv1d(3, 4, 3, padding=1), lambda: [numbers(2, 3, 8)]),
    "Conv2d": (lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1), lambda: [numbers(2, 3, 7, 6)]),
    "Conv2d groups": (lambda: nn.Conv2d(4, 4, 3, groups=2, dilation=2), lambda: [numbers(2, 4, 7, 7)]),
    "Conv3d": (lambda: nn.Conv3d(2, 3, 2), lambda: [numbers(2, 2, 4, 4, 4)]),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(3, 2, 3, stride=2), lambda: [numbers(2, 3, 5)]),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(3, 2, 3, stride=2), lambda: [numbers(2, 3, 4, 4)]),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(4), lambda: [numbers(6, 4)]),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), lambda: [numbers(2, 3, 4, 4)]),
    "LayerNorm": (lambda: nn.LayerNorm(6), lambda: [numbers(3, 4, 6)]),
    "RMSNorm": (lambda: nn.RMSNorm(6), lambda: [numbers(3, 6)]),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), lambda: [numbers(2, 4, 3, 3)]),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(3, affine=True), lambda: [numbers(2, 3, 4, 4)]),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), lambda: [numbers(2, 4, 3)]),
    "MaxPool1d": (lambda: nn.MaxPool1d(2), lambda: [numbers(2, 3, 8)]),
    "MaxPool2d": (lambda: nn.MaxPool2d(3, 2, 1), lambda: [numbers(2, 3, 7, 7)]),
    "AvgPool2d": (lambda: nn.AvgPool2d(2, padding=1), lambda: [numbers(2, 3, 6, 6)]),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d((3, 2)), lambda: [numbers(2, 3, 7, 5)]),
    "AdaptiveMaxPool2d": (lambda: nn.AdaptiveMaxPool2d(2), lambda: [numbers(2, 3, 5, 5)]),
    "LPPool2d": (lambda: nn.LPPool2d(2, 2), lambda: [numbers(2, 3, 4, 4)]),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d(1), lambda: [numbers(2, 3, 4, 4)]),
    "CircularPad1d": (lambda: nn.CircularPad1d(2), lambda: [numbers(2, 3, 5)]),
    "ConstantPad2d": (lambda: nn.ConstantPad2d(1, 2.0), lambda: [numbers(2, 3, 4, 4)]),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), lambda: [numbers(2, 8, 3, 3)]),
    "Unfold": (lambda: nn.Unfold(2), lambda: [numbers(2, 3, 4, 4)]),
    "Fold": (lambda: nn.Fold((4, 4), 2), lambda: [numbers(2, 12, 9)]),
    "Upsample bilinear": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), lambda: [numbers(2, 3, 4, 4)]),
    "Upsample nearest": (lambda: nn.Upsample(scale_factor=2), lambda: [numbers(2, 3, 4, 4)]),
    "RNN": (lambda: nn.RNN(4, 3, 2), lambda: [numbers(5, 2, 4)]),
    "LSTM": (lambda: nn.LSTM(4, 3, bidirectional=True), lambda: [numbers(5, 2, 4)]),
    "GRU": (lambda: nn.GRU(4, 3, batch_first=True), lambda: [numbers(2, 5, 4)]),
    "LSTMCell": (lambda: nn.LSTMCell(4, 3), lambda: [numbers(2, 4)]),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(8, 2), lambda: [numbers(5, 2, 8, seed=s) for s in (0, 1, 2)]),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0), lambda: [numbers(5, 2, 8)]),
    "TransformerDecoderLayer": (
        lambda: nn.TransformerDecoderLayer(8, 2, 16, 0.0),
        lambda: [numbers(5, 2, 8), numbers(4, 2, 8, seed=1)],
    ),
    **{
        name: (lambda name=name: getattr(nn, name)(), lambda: [numbers(3, 4)])
        for name in (
            "CELU ELU GELU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid Mish PReLU ReLU ReLU6 SELU "
            "SiLU Sigmoid Softplus Softshrink Softsign Tanh Tanhshrink GLU"
        ).split()
    },
    "Softmax": (lambda: nn.Softmax(1), lambda: [numbers(3, 4)]),
    "LogSoftmax": (lambda: nn.LogSoftmax(0), lambda: [numbers(3, 4)]),
    "CrossEntropyLoss": (
        lambda: nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=2),
        lambda: [numbers(6, 4), integers(4, 6)],
    ),
    "NLLLoss": (lambda: nn.NLLLoss(), lambda: [numbers(6, 4), integers(4, 6)]),
    "MSELoss": (lambda: nn.MSELoss(), lambda: [numbers(3, 4), numbers(3, 4, seed=1)]),
    "L1Loss": (lambda: nn.L1Loss(), lambda: [numbers(3, 4), numbers(3, 4, seed=1)]),
    "SmoothL1Loss": (lambda: nn.SmoothL1Loss(), lambda: [numbers(3, 4), numbers(3, 4, seed=1)]),
    "BCEWithLogitsLoss": (lambda: nn.BCEWithLogitsLoss(), lambda: [numbers(3, 4), numbers(3, 4, positive=True)]),
    "KLDivLoss": (lambda: nn.KLDivLoss(reduction="batchmean"), lambda: [numbers(3, 4), numbers(3, 4, positive=True)]),
    "CosineSimilarity": (lambda: nn.CosineSimilarity(), lambda: [numbers(3, 4), numbers(3, 4, seed=1)]),
    "TripletMarginLoss": (lambda: nn.TripletMarginLoss(), lambda: [numbers(3, 4, seed=s) for s in (0, 1, 2)]),
    "CTCLoss": (
        lambda: nn.CTCLoss(),
        lambda: [
            numbers(6, 2, 5).log_softmax(2),
            integers(4, 2, 3) + 1,
            ddpflow.tensor([6, 5]),
            ddpflow.tensor([3, 2]),
        ],
    ),
}  # fmt: skip


def tensors_of(value: Any) -> list[Any]:
    """The tensors in a nested output, those with a gradient first class."""
    if isinstance(value, ddpflow.Tensor):
        return [value]
    return [t for v in value for t in tensors_of(v)] if isinstance(value, (tuple, list)) else []


def check_module(name: str) -> None:
    """A module made on the CPU and moved gives the CPU's outputs and gradients."""
    make, inputs = MODULES[name]
    ddpflow.manual_seed(3)
    module = make()
    twin = make()
    twin.load_state_dict(module.state_dict())
    twin.to("cuda")
    results = []
    for m, place in ((module, "cpu"), (twin, "cuda")):
        xs = [x.detach().to(place) for x in inputs()]
        for x in xs:
            if x.is_floating_point():
                x.requires_grad_()
        outs = tensors_of(m(*xs))
        assert all(out.device.type == place for out in outs)
        floating = [out for out in outs if out.requires_grad]
        sum((out * out).sum() for out in floating).backward()
        grads = [p.grad for p in [*m.parameters(), *xs]]
        results.append([*outs, *[g for g in grads if g is not None], *m.buffers()])
    for cpu, gpu in zip(*results, strict=True):
        close(on_host(gpu.array), on_host(cpu.array), 5e-4, name)


OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda p: optim.SGD(p, 0.1),
    "SGD momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: optim.Adam(p, 0.01, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, 0.01),
    "NAdam": lambda p: optim.NAdam(p, 0.01),
    "RAdam": lambda p: optim.RAdam(p, 0.01),
    "Adamax": lambda p: optim.Adamax(p, 0.01),
    "Adagrad": lambda p: optim.Adagrad(p, 0.1),
    "Adadelta": lambda p: optim.Adadelta(p, 1.0),
    "RMSprop": lambda p: optim.RMSprop(p, 0.01, momentum=0.5, centered=True),
    "Rprop": lambda p: optim.Rprop(p, 0.01),
    "ASGD": lambda p: optim.ASGD(p, 0.01),
}


def small_model() -> Any:
    """A network with several kinds of layers; a bias before the norm would have no gradient but noise."""
    return nn.Sequential(nn.Linear(6, 8, bias=False), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 3))


def check_optimizer(name: str) -> None:
    """Four steps on the GPU end where four steps on the CPU do."""
    ends = []
    for place in ("cpu", "cuda"):
        ddpflow.manual_seed(5)
        model = small_model().to(place)
        optimizer = OPTIMIZERS[name](model.parameters())
        x, y = numbers(7, 6).to(place), integers(3, 7).to(place)
        for _ in range(4):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        ends.append([on_host(p.detach().array) for p in model.parameters()])
    for cpu, gpu in zip(*ends, strict=True):
        close(gpu, cpu, 1e-3, name)


class TinyGPT(nn.Module):
    """A decoder with embeddings, attention and a loss over a vocabulary."""

    def __init__(self, vocabulary: int = 11, width: int = 8) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(6, width)
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("order", ddpflow.arange(6))

    def forward(self, x: Any) -> Any:
        """Logits."""
        h = self.tokens(x) + self.places(self.order[: x.shape[1]])
        q, k, v = self.mix(self.norm(h)).chunk(3, -1)
        h = h + F.scaled_dot_product_attention(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), is_causal=True).squeeze(
            1
        )
        return self.head(h + self.down(F.gelu(self.up(h), approximate="tanh")))
