"""The CUDA kernels against float64 formulas: on the stand-in, which emulates them on the CPU, and on a real GPU.

On the stand-in it shows what they compute, and nothing of a GPU.
"""

import importlib
import itertools
import math

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.kernels import cuda
from ddpflow.dtype import as_numpy
from ddpflow.nn import functional as F
from tests.doubles.fake_cupy import installed
from tests.doubles.raw_kernels import needs_compiler
from tests.doubles.timeline import state

DTYPES = ["float16", "bfloat16", "float32", "float64"]
HALF = ("float16", "bfloat16")
# Relative to the greatest value: a rounding or two of the type itself, since half types accumulate in float32.
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 3e-6, "float64": 1e-13}
# One element, one column, not a multiple of a warp, several warps of rows, a block for a row, the largest block.
ROWS = [(1, 1), (5, 1), (1, 7), (6, 33), (2, 3, 64), (1025,), (2, 1500), (1, 8200)]


@pytest.fixture
def stand_in():
    """The stand-in with two devices."""
    with installed(devices=2):
        yield importlib.import_module("cupy")


@pytest.fixture(params=[pytest.param("stand-in", marks=needs_compiler), pytest.param("gpu", marks=pytest.mark.gpu)])
def cupy(request):
    """The stand-in, and the real CuPy where there is a GPU."""
    return request.getfixturevalue("stand_in") if request.param == "stand-in" else importlib.import_module("cupy")


def numbers(shape, dtype, seed=0, scale=2.0):
    """Random numbers in a dtype, and the same in float64."""
    x = (np.random.default_rng(seed).standard_normal(shape) * scale).astype(as_numpy(dtype))
    return x, x.astype(np.float64)


def close(found, expected, dtype, factor=1.0):
    """Equal to within the rounding of a dtype; NaN and infinities in the same places."""
    found = found.get()
    assert found.shape == np.shape(expected)
    expected = np.asarray(expected)
    finite = np.abs(expected[np.isfinite(expected)])
    tolerance = TOLERANCE[dtype] * factor
    atol = tolerance * max(finite.max(initial=0.0), 1e-30)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=tolerance, atol=atol)


def softmax_of(x):
    """Softmax along the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_softmax(cupy, shape, dtype):
    """Softmax, its logarithm, and their gradients."""
    (x, wide), (g, wide_g) = numbers(shape, dtype), numbers(shape, dtype, 1)
    y = cuda.softmax(cupy, cupy.asarray(x))
    p = softmax_of(wide)
    close(y, p, dtype)
    known = y.get().astype(np.float64)
    expected = known * (wide_g - (wide_g * known).sum(-1, keepdims=True))
    close(cuda.softmax_backward(cupy, cupy.asarray(g), y), expected, dtype, 4)
    logs = cuda.log_softmax(cupy, cupy.asarray(x))
    close(logs, np.log(p), dtype)
    known = logs.get().astype(np.float64)
    expected = wide_g - np.exp(known) * wide_g.sum(-1, keepdims=True)
    close(cuda.log_softmax_backward(cupy, cupy.asarray(g), logs), expected, dtype, 8)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("width", [5, 40, 1100])
def test_softmax_of_extremes(cupy, width, dtype):
    """Rows with NaN and infinities become NaN where the formula's do, and no others; great values do not overflow."""
    x, _ = numbers((9, width), dtype)
    inf, great = np.inf, 6e4 if dtype == "float16" else 3e38
    x[0] = -inf
    x[1, :-1] = -inf
    x[2, ::2] = -inf
    x[3, 2] = inf
    x[4, 3] = np.nan
    x[5] = great
    x[6, ::2] = -great
    x[7, 0], x[7, 1:] = np.nan, -inf
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = softmax_of(x.astype(np.float64))
        close(cuda.softmax(cupy, cupy.asarray(x)), expected, dtype)
        close(cuda.log_softmax(cupy, cupy.asarray(x))[[1, 2, 5, 8]], np.log(expected)[[1, 2, 5, 8]], dtype)
    assert np.isnan(expected).any(1).tolist() == [True, False, False, True, True, False, False, True, False]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3, 5), (2, 6, 3), (3, 40, 70), (2, 1200)], ids=str)
@pytest.mark.parametrize("causal", [True, False])
def test_attention_weights(cupy, shape, causal, dtype):
    """Only what a query sees gets weights; zeros for a query that sees nothing."""
    x, wide = numbers(shape, dtype)
    wide[..., 0, :] = x[..., 0, :] = -np.inf
    scaled = np.where(np.tri(*shape[-2:], dtype=bool) | (not causal), wide * 0.25, -np.inf)
    e = np.exp(scaled - np.maximum(scaled.max(-1, keepdims=True), -1e300))
    expected = e / np.maximum(e.sum(-1, keepdims=True), 1e-300)
    found = cuda.attention_weights(cupy, cupy.asarray(x), 0.25, causal)
    close(found, expected, dtype)
    assert (found.get()[expected == 0] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (7, 33), (2, 1500)], ids=str)
def test_cross_entropy(cupy, shape, dtype):
    """Loss, logarithm of the sum, and gradient; a row whose scale is 0 gets zeros whatever it holds."""
    x, wide = numbers(shape, dtype)
    x[-1, 0] = wide[-1, 0] = np.inf
    index = np.random.default_rng(2).integers(0, shape[1], shape[0])
    scale, wide_scale = numbers(shape[0], dtype, 3)
    scale[-1] = 0
    on_device = cupy.asarray(x), cupy.asarray(index)
    loss, lse = cuda.cross_entropy(cupy, *on_device)
    assert loss.dtype == lse.dtype == np.dtype("float64" if dtype == "float64" else "float32")
    with np.errstate(invalid="ignore"):
        logs = np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1)) + wide.max(1)
        accumulated = "float32" if dtype in HALF else dtype
        close(lse, logs, accumulated)
        close(loss, logs - wide[np.arange(shape[0]), index], accumulated, 4)
        expected = (np.exp(wide - logs[:, None]) - np.eye(shape[1])[index]) * wide_scale[:, None]
    expected[-1] = 0
    close(cuda.cross_entropy_backward(cupy, *on_device, lse, cupy.asarray(scale)), expected, dtype, 2)


LOSSES = [{}, {"reduction": "sum"}, {"reduction": "none"}, {"label_smoothing": 0.2}, {"ignore_index": 1}]
LOSSES += [{"weight": True}, {"weight": True, "ignore_index": 2, "label_smoothing": 0.1}]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("options", LOSSES, ids=str)
def test_the_loss_function(cupy, options, dtype):
    """F.cross_entropy gives the CPU's loss and gradient for labels of all kinds, also when all are ignored."""
    x, _ = numbers((6, 5), dtype)
    weight = numbers(5, dtype, 4)[0] ** 2 if "weight" in options else None
    skip = options.get("ignore_index", -100)
    for labels in ([0, 1, 4, 2, 1, 3], [skip, 2, skip, 0, 1, 2], [skip] * 6):
        results = []
        for place in ("cpu", "cuda"):
            options = {**options, "weight": None if weight is None else ddpflow.tensor(weight).to(place)}
            logits = ddpflow.tensor(x).to(place).requires_grad_()
            loss = F.cross_entropy(logits, ddpflow.tensor(labels).to(place), **options)
            loss.sum().backward()
            results.append((loss.detach().cpu().numpy(), logits.grad.cpu().numpy()))
        for cpu, gpu in zip(*results, strict=True):
            tolerance = TOLERANCE[dtype] * 2
            np.testing.assert_allclose(gpu, cpu, rtol=tolerance, atol=tolerance, err_msg=str(labels))


@needs_compiler
def test_labels_that_are_no_class(stand_in):
    """A label out of bounds makes the loss NaN; the host is not asked."""
    x = ddpflow.tensor(numbers((3, 4), "float32")[0]).cuda()
    state().syncs.clear()
    losses = F.cross_entropy(x, ddpflow.tensor([4, -1, 2]).cuda(), reduction="none")
    assert state().syncs == []
    assert losses.isnan().tolist() == [True, True, False]
    target = stand_in.asarray(np.array([3, -100, 9, -5, 0]))
    index, coefficient, valid = cuda.class_weights(stand_in, target, None, -100, 4, np.dtype("float32"))
    assert index.tolist() == [3, 0, 0, 0, 0] and valid.tolist() == [True, False, True, True, True]
    np.testing.assert_array_equal(coefficient.get(), [1, 0, np.nan, np.nan, 1])


@pytest.mark.parametrize(("dtype", "params"), [*zip(DTYPES, DTYPES, strict=True), *((h, "float32") for h in HALF)])
@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (6, 33), (2, 3, 64), (300, 5), (2, 1500)], ids=str)
@pytest.mark.parametrize("given", ["both", "weight", "bias", "neither"])
def test_layer_norm(cupy, shape, dtype, params, given):
    """Output, statistics and the gradients of input, weight and bias, over one and over several rows."""
    width = shape[-1]
    (x, wide), (g, wide_g) = numbers(shape, dtype), numbers(shape, dtype, 1)
    wide = wide + 3  # a mean far from 0
    x = wide.astype(x.dtype)
    wide = x.astype(np.float64)
    (w, wide_w), (b, wide_b) = numbers(width, params, 2), numbers(width, params, 3)
    w, wide_w = (w, wide_w) if given in ("both", "weight") else (None, np.ones(width))
    b, wide_b = (b, wide_b) if given in ("both", "bias") else (None, np.zeros(width))
    w, b = [None if p is None else cupy.asarray(p) for p in (w, b)]
    on_device = cupy.asarray(x)
    y, mean, rstd = cuda.layer_norm(cupy, on_device, w, b, width, 1e-3)
    centred = wide - wide.mean(-1, keepdims=True)
    scale = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3)
    normal = centred * scale
    accumulated = "float32" if dtype in HALF else dtype
    close(mean, wide.mean(-1).ravel(), accumulated)
    close(rstd, scale.ravel(), accumulated, 10)
    close(y, normal * wide_w + wide_b, dtype, 2)
    gx, gw, gb = cuda.layer_norm_backward(cupy, cupy.asarray(g), on_device, w, mean, rstd, width)
    scaled = wide_g * wide_w
    expected = scaled - scaled.mean(-1, keepdims=True) - normal * (scaled * normal).mean(-1, keepdims=True)
    if width > 1:  # one column is its own mean: what is left is rounding
        close(gx, expected * scale, dtype, 4)
        lead = tuple(range(len(shape) - 1))
        close(gw, (wide_g * normal).sum(lead), accumulated, 20)
        close(gb, wide_g.sum(lead), accumulated, 20)


@pytest.mark.parametrize(("dtype", "params"), [*zip(DTYPES, DTYPES, strict=True), ("bfloat16", "float32")])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (3, 2, 4, 4), (2, 1, 65, 70), (5, 1100)], ids=str)
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm(cupy, shape, dtype, params, affine):
    """Output, statistics and gradients, for channels in one share and in several."""
    axes, column = (0, *range(2, len(shape))), (1, -1, *[1] * (len(shape) - 2))
    channels, count = shape[1], math.prod(shape) // shape[1]
    x = (numbers(shape, dtype)[1] + 5).astype(as_numpy(dtype))
    wide, (g, wide_g) = x.astype(np.float64), numbers(shape, dtype, 1)
    (w, wide_w), (b, wide_b) = numbers(channels, params, 2), numbers(channels, params, 3)
    if not affine:
        w, wide_w, b, wide_b = None, np.ones(channels), None, np.zeros(channels)
    w, b = [None if p is None else cupy.asarray(p) for p in (w, b)]
    on_device = cupy.asarray(x)
    y, mean, var = cuda.batch_norm(cupy, on_device, w, b, 1e-3)
    accumulated = "float32" if dtype in HALF else dtype
    close(mean, wide.mean(axes), accumulated)
    close(var, wide.var(axes), accumulated, 10)
    rstd = 1 / np.sqrt(wide.var(axes) + 1e-3).reshape(column)
    normal = (wide - wide.mean(axes, keepdims=True)) * rstd
    close(y, normal * wide_w.reshape(column) + wide_b.reshape(column), dtype, 4)
    gx, gw, gb = cuda.batch_norm_backward(cupy, cupy.asarray(g), on_device, w, mean, var, 1e-3)
    sums, dots = wide_g.sum(axes), (wide_g * normal).sum(axes)
    close(gw, dots, accumulated, 30)
    close(gb, sums, accumulated, 30)
    expected = wide_g - (sums.reshape(column) + normal * dots.reshape(column)) / count
    close(gx, expected * rstd * wide_w.reshape(column), dtype, 4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(cupy, approximate, dtype):
    """Values and slopes, far into the tails; infinities as the formula has them."""
    x = np.concatenate([np.linspace(-9, 9, 1001), [0.0, -0.0, 100.0, -30.0]]).astype(as_numpy(dtype))
    wide, (g, wide_g) = x.astype(np.float64), numbers(x.shape, dtype)
    if approximate == "none":
        share = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in wide])
        slope = np.exp(-wide * wide / 2) / math.sqrt(2 * math.pi)
    else:
        c = math.sqrt(2 / math.pi)
        t = np.tanh(c * (wide + 0.044715 * wide**3))
        share, slope = 0.5 * (1 + t), 0.5 * (1 - t * t) * c * (1 + 3 * 0.044715 * wide * wide)
    close(cuda.gelu(cupy, cupy.asarray(x), approximate), wide * share, dtype)
    close(
        cuda.gelu_backward(cupy, cupy.asarray(g), cupy.asarray(x), approximate), wide_g * (share + wide * slope), dtype
    )
    ends = cuda.gelu(cupy, cupy.asarray(np.array([np.inf, -np.inf, np.nan], x.dtype)), approximate).get()
    np.testing.assert_array_equal(ends.astype(np.float32), [np.inf, np.nan, np.nan])


def test_the_tail_of_gelu(cupy):
    """Small shares keep their relative precision in float32: nothing is lost in 1 - erf."""
    x = np.array([-5.0, -8.0, -12.0], np.float32)
    expected = [v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x.tolist()]
    np.testing.assert_allclose(cuda.gelu(cupy, cupy.asarray(x), "none").get(), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (255,), (257,), (3, 5, 7)], ids=str)
def test_keep_scaled(cupy, shape, dtype):
    """The mask zeroes, the scale multiplies; NaN times 0 stays NaN."""
    x, wide = numbers(shape, dtype)
    keep = np.random.default_rng(1).random(shape) < 0.5
    x.flat[0] = wide.flat[0] = np.nan
    close(cuda.keep_scaled(cupy, cupy.asarray(x), cupy.asarray(keep), 1.25), wide * keep * 1.25, dtype)


def adam_reference(p, g, m, v, top, step, o):
    """One step in float64, as Kingma and Ba (2014), Loshchilov and Hutter (2017) and Reddi et al. (2018) write it."""
    g = -g if o["maximize"] else g
    if o["decoupled_weight_decay"]:
        p = p - o["lr"] * o["weight_decay"] * p
    else:
        g = g + o["weight_decay"] * p
    beta1, beta2 = o["betas"]
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
    top = np.maximum(top, v)
    used = top if o["amsgrad"] else v
    p = p - o["lr"] * (m / (1 - beta1**step)) / (np.sqrt(used / (1 - beta2**step)) + o["eps"])
    return p, m, v, top


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("amsgrad", "maximize", "decoupled"), list(itertools.product([True, False], repeat=3)))
def test_adam(cupy, dtype, amsgrad, maximize, decoupled):
    """Many parameters of different sizes in one launch, over three steps; their state is in float32 for half types."""
    options = {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1, "amsgrad": amsgrad}
    options |= {"maximize": maximize, "decoupled_weight_decay": decoupled}
    shapes = [(1,), (5,), (3, 1366), (4096,), (2, 4097), (7, 3)]
    state_dtype = np.float64 if dtype == "float64" else np.float32
    expected, device = [], []
    for k, shape in enumerate(shapes):
        p, wide = numbers(shape, dtype, k)
        expected.append([wide, *[np.zeros(shape)] * 3])
        device.append([cupy.asarray(p), *[cupy.zeros(shape, state_dtype) for _ in range(3)]])
    for step in (1, 2, 3):
        grads = [numbers(shape, dtype, 10 * step + k) for k, shape in enumerate(shapes)]
        params, *kept = [[d[i] for d in device] for i in range(4)]
        kept[2] = kept[2] if amsgrad else []
        arrays = [params, [cupy.asarray(g) for g, _ in grads], *kept]
        cuda.adam(cupy, arrays, step, options)
        for one, two, (_, g) in zip(expected, device, grads, strict=True):
            one[:] = adam_reference(one[0], g, *one[1:], step, options)
            for want, have in zip(one[1 : 4 if amsgrad else 3], two[1:], strict=False):
                close(have, want, "float64" if dtype == "float64" else "float32", 1e4 if dtype in HALF else 10)
            close(two[0], one[0], dtype, 4)
            one[0] = two[0].get().astype(np.float64)  # rounding of half types is carried on by design


@needs_compiler
def test_adam_keeps_its_table(stand_in):
    """Addresses are uploaded once for the same arrays, and anew on another stream, which has not waited for them."""
    arrays = [[stand_in.ones(5, np.float32)] for _ in range(4)] + [[]]
    options = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0}
    options |= {"maximize": False, "decoupled_weight_decay": True}
    allocated = []
    for _ in range(3):
        cuda.adam(stand_in, arrays, 1, options)
        allocated.append(state().next_address)
    assert allocated[0] == allocated[1] == allocated[2]
    side = stand_in.cuda.Stream(non_blocking=True)
    side.wait_event(stand_in.cuda.get_current_stream().record())
    with side:
        cuda.adam(stand_in, arrays, 2, options)
        assert state().next_address > allocated[0]
    stand_in.cuda.get_current_stream().wait_event(side.record())


@needs_compiler
def test_what_has_no_kernel(stand_in):
    """NumPy, integers, other dtypes beside it, empty arrays, other axes and other devices are left to the formulas."""
    x = stand_in.ones((2, 3), np.float32)
    assert cuda.fits(stand_in, x) and cuda.fits(stand_in, x, None, x) and cuda.fits_rows(stand_in, -1, x)
    assert cuda.fits_rows(stand_in, 1, x) and not cuda.fits_rows(stand_in, 0, x)
    assert not cuda.fits(np, np.ones(3)) and not cuda.fits(stand_in, stand_in.ones(3, np.int64))
    assert not cuda.fits(stand_in, x, stand_in.ones(3)) and not cuda.fits(stand_in, stand_in.ones((0, 3), np.float32))
    assert not cuda.fits(ddpflow.Tensor.namespace, ddpflow.ones(3))
    weight, double = stand_in.ones(3, np.float32), stand_in.ones(3)
    assert cuda.fits_normalized(stand_in, x, weight, weight) and cuda.fits_normalized(stand_in, x, None)
    assert not cuda.fits_normalized(stand_in, x, weight, double) and not cuda.fits_normalized(
        stand_in, x.astype(int), None
    )
    labels, single = stand_in.zeros(3, np.int64), np.dtype("float32")
    assert cuda.fits_classes(stand_in, labels, weight, single) and not cuda.fits_classes(
        stand_in, labels, double, single
    )
    assert not cuda.fits_classes(stand_in, labels.astype(np.int32), None, single)
    with stand_in.cuda.Device(1):
        assert not cuda.fits(stand_in, x)


@pytest.mark.parametrize(
    "make", [lambda a: a.T.copy().T, lambda a: a.repeat(2, 1)[:, ::2]], ids=["transposed", "sliced"]
)
def test_other_layouts(cupy, make):
    """Arrays that are not contiguous are copied first."""
    x, g = numbers((4, 6), "float32")[0], numbers((4, 6), "float32", 1)[0]
    plain, strange = [cupy.asarray(a) for a in (x, g)], [make(cupy.asarray(a)) for a in (x, g)]
    assert not strange[0].flags.c_contiguous
    for function in (cuda.softmax, cuda.log_softmax):
        np.testing.assert_array_equal(function(cupy, strange[0]).get(), function(cupy, plain[0]).get())
    for function in (cuda.softmax_backward, cuda.log_softmax_backward):
        np.testing.assert_array_equal(function(cupy, *strange).get(), function(cupy, *plain).get())
    for a, b in zip(
        cuda.layer_norm(cupy, strange[0], None, None, 6, 1e-5),
        cuda.layer_norm(cupy, plain[0], None, None, 6, 1e-5),
        strict=True,
    ):
        np.testing.assert_array_equal(a.get(), b.get())


@needs_compiler
def test_launches_saved(stand_in):
    """Each operation takes as many kernels as it is written to take, and the formula is not run beside them."""
    x = ddpflow.tensor(numbers((6, 8), "float32")[0]).cuda().requires_grad_()
    w, b = [ddpflow.tensor(numbers(8, "float32", k)[0]).cuda().requires_grad_() for k in (1, 2)]
    counted = {}
    for name, forward in {
        "softmax": lambda: x.softmax(-1),
        "log_softmax": lambda: x.log_softmax(-1),
        "gelu": lambda: F.gelu(x),
        "layer_norm": lambda: F.layer_norm(x, (8,), w, b),
        "batch_norm": lambda: F.batch_norm(x, None, None, w, b, training=True),
    }.items():
        before = state().launches
        y = forward()
        middle = state().launches
        g = ddpflow.tensor(numbers((6, 8), "float32", 3)[0]).cuda()
        ready = state().launches
        ddpflow.autograd.grad(y, x, g)
        after = state().launches
        counted[name] = (middle - before, after - ready)
    assert counted.pop("layer_norm") == (1, 2) and counted.pop("batch_norm") == (2, 2)
    assert set(counted.values()) == {(1, 1)}
