"""Making tensors from data, filled, and counted."""

import numpy as np
import pytest

import ddpflow
from ddpflow.errors import DtypeError, ShapeError, ValueRangeError


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (1, "int64"),
        (1.5, "float32"),
        (True, "bool"),
        (2 + 1j, "complex64"),
        ([1, 2], "int64"),
        ([1, 2.5], "float32"),
        ([True, 2], "int64"),
        ([[1.0], [True]], "float32"),
        ([], "float32"),
        ([[], []], "float32"),
        ((1, 2), "int64"),
        (range(3), "int64"),
        (np.float64(1.5), "float64"),
        (np.int32(3), "int32"),
        (np.array([1.5, 2]), "float64"),
        (np.array([1, 2], np.uint8), "uint8"),
        ([np.float32(1), np.float64(2)], "float64"),
        ([np.array([1, 2]), np.array([3, 4])], "int64"),
    ],
)
def test_tensor_infers_pytorchs_dtype(data, dtype):
    """Python floats give float32, integers int64, booleans bool; NumPy's numbers keep their type."""
    made = ddpflow.tensor(data)
    assert made.dtype.name == dtype
    np.testing.assert_array_equal(made.numpy(), np.array(data))


def test_tensor_of_tensors():
    """Nested lists may hold tensors; their dtypes count, and they are copied."""
    a = ddpflow.tensor([1.5, 2.5], dtype=ddpflow.float64)
    made = ddpflow.tensor([[a[0], 3], [a[1], 4]])
    assert made.dtype == ddpflow.float64
    assert made.tolist() == [[1.5, 3.0], [2.5, 4.0]]
    copy = ddpflow.tensor(a)
    copy.zero_()
    assert a.tolist() == [1.5, 2.5]


def test_default_dtype():
    """set_default_dtype changes what Python floats become, and only that."""
    try:
        ddpflow.set_default_dtype(ddpflow.float64)
        assert ddpflow.tensor([1.5]).dtype == ddpflow.zeros(2).dtype == ddpflow.rand(2).dtype == ddpflow.float64
        assert ddpflow.tensor([1j]).dtype == ddpflow.complex128
        assert ddpflow.tensor([1]).dtype == ddpflow.int64
    finally:
        ddpflow.set_default_dtype(ddpflow.float32)
    with pytest.raises(TypeError, match="int64"):
        ddpflow.set_default_dtype(ddpflow.int64)


def test_tensor_copies_and_from_numpy_shares():
    """tensor() copies an array; from_numpy() and as_tensor() share its memory, both ways."""
    array = np.arange(4.0)
    copied, shared, same = ddpflow.tensor(array), ddpflow.from_numpy(array), ddpflow.as_tensor(array)
    array[0] = 9.0
    assert copied[0].item() == 0.0 and shared[0].item() == same[0].item() == 9.0
    shared[1] = 8.0
    assert array[1] == 8.0
    assert shared.numpy() is array
    assert ddpflow.as_tensor(shared) is shared
    assert ddpflow.as_tensor(array, dtype=ddpflow.float32).dtype == ddpflow.float32
    assert ddpflow.asarray(array, copy=True).numpy() is not array


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: ddpflow.tensor("text"), DtypeError),
        (lambda: ddpflow.tensor({"a": 1}), DtypeError),
        (lambda: ddpflow.tensor([1, "a"]), DtypeError),
        (lambda: ddpflow.tensor([None]), DtypeError),
        (lambda: ddpflow.tensor([[1, 2], [3]]), ValueRangeError),
        (lambda: ddpflow.tensor([1, [2]]), ValueRangeError),
        (lambda: ddpflow.from_numpy([1, 2]), DtypeError),
        (lambda: ddpflow.from_numpy(np.array(["a"])), DtypeError),
        (lambda: ddpflow.from_numpy(np.array([1], ">i4")), DtypeError),
        (lambda: ddpflow.zeros(-1), ShapeError),
        (lambda: ddpflow.zeros(1.5), DtypeError),
        (lambda: ddpflow.arange(0, 3, 0), ShapeError),
        (lambda: ddpflow.arange(0, 3, -1), ShapeError),
        (lambda: ddpflow.linspace(0, 1, -1), ShapeError),
        (lambda: ddpflow.tensor([1, 2], requires_grad=True), RuntimeError),
        (lambda: ddpflow.zeros(2, dtype="float31"), DtypeError),
        (lambda: ddpflow.zeros(2, device="tpu"), RuntimeError),
        (lambda: ddpflow.complex(ddpflow.zeros(2), ddpflow.zeros(2, dtype=ddpflow.float64)), RuntimeError),
    ],
)
def test_bad_input(make, error):
    """What makes no tensor raises PyTorch's exception type."""
    with pytest.raises(error):
        make()


def test_from_numpy_keeps_views_and_byte_order():
    """A strided array is wrapped as it is; tensor() also takes foreign byte order."""
    array = np.arange(12.0).reshape(3, 4)[::2, 1:]
    made = ddpflow.from_numpy(array)
    assert made.shape == (2, 3) and not made.is_contiguous() and made.stride() == (8, 1)
    assert ddpflow.tensor(np.array([1, 2], ">i4")).tolist() == [1, 2]


@pytest.mark.parametrize("name", ["zeros", "ones", "empty"])
def test_filled(name):
    """Sizes come as numbers, as one tuple, or by keyword; dtype and requires_grad are set."""
    make = getattr(ddpflow, name)
    for made in (make(2, 3), make((2, 3)), make([2, 3]), make(ddpflow.Size((2, 3)))):
        assert made.shape == (2, 3) and made.dtype == ddpflow.float32 and not made.requires_grad
    made = make(2, dtype=ddpflow.float64, requires_grad=True, device="cpu")
    assert made.dtype == ddpflow.float64 and made.requires_grad and made.is_leaf
    assert make().shape == () and make(0, 3).numel() == 0
    if name != "empty":
        assert made.tolist() == [float(name == "ones")] * 2


def test_full_takes_the_type_of_the_number():
    """An integer gives int64, a float the default dtype, a truth value bool."""
    assert ddpflow.full((2,), 3).dtype == ddpflow.int64
    assert ddpflow.full((2,), 3.0).dtype == ddpflow.float32
    assert ddpflow.full((2,), True).dtype == ddpflow.bool
    assert ddpflow.full((), ddpflow.tensor(2.5)).item() == 2.5
    assert ddpflow.full((1, 2), 7, dtype=ddpflow.float64).tolist() == [[7.0, 7.0]]


@pytest.mark.parametrize("name", ["zeros_like", "ones_like", "empty_like", "rand_like", "randn_like", "full_like"])
def test_like(name):
    """The shape and dtype of another tensor, unless another dtype is asked for; a fresh leaf."""
    source = ddpflow.ones(2, 3, dtype=ddpflow.float64, requires_grad=True)
    extra = (5,) if name == "full_like" else ()
    made = getattr(ddpflow, name)(source, *extra)
    assert made.shape == (2, 3) and made.dtype == ddpflow.float64 and not made.requires_grad
    other = getattr(ddpflow, name)(source, *extra, dtype=ddpflow.float32, requires_grad=True)
    assert other.dtype == ddpflow.float32 and other.requires_grad


def test_new_methods():
    """new_* take dtype and device from the tensor they are called on."""
    source = ddpflow.ones(2, dtype=ddpflow.float64)
    assert source.new_zeros(3).dtype == source.new_ones((1, 2)).dtype == source.new_empty(2).dtype == ddpflow.float64
    assert source.new_full((2,), 4).tolist() == [4.0, 4.0]
    made = source.new_tensor([1, 2], requires_grad=True)
    assert made.dtype == ddpflow.float64 and made.requires_grad
    assert source.new_zeros(2, dtype=ddpflow.int64).dtype == ddpflow.int64
    assert source.new(3).shape == (3,)
    assert source.new([1.5]).tolist() == [1.5]


@pytest.mark.parametrize(
    ("args", "dtype"),
    [((5,), "int64"), ((1, 5), "int64"), ((1, 5, 2), "int64"), ((5, 1, -2), "int64"), ((1.0, 4), "float32"),
     ((0, 1, 0.25), "float32"), ((0,), "int64"), ((3, 3), "int64")],
)  # fmt: skip
def test_arange(args, dtype):
    """Integers count in int64, anything else in the default dtype; the end is not included."""
    made = ddpflow.arange(*args)
    assert made.dtype.name == dtype
    np.testing.assert_allclose(made.numpy(), np.arange(*args))


def test_arange_does_not_pass_its_end():
    """Steps are multiplied, not added up: no rounding brings one element too many or too few."""
    made = ddpflow.arange(0, 1, 0.1, dtype=ddpflow.float64)
    assert made.numel() == 10
    np.testing.assert_array_equal(made.numpy(), np.arange(10) * 0.1)
    assert ddpflow.arange(ddpflow.tensor(3)).tolist() == [0, 1, 2]


def test_spaces_and_eye():
    """A linspace includes both ends, logspace is its exponential, eye has ones on the diagonal."""
    np.testing.assert_allclose(ddpflow.linspace(-1, 1, 5).numpy(), [-1, -0.5, 0, 0.5, 1])
    assert ddpflow.linspace(3, 4, 1).tolist() == [3.0]
    np.testing.assert_allclose(ddpflow.logspace(0, 2, 3).numpy(), [1, 10, 100])
    np.testing.assert_array_equal(ddpflow.eye(2, 3).numpy(), np.eye(2, 3, dtype=np.float32))
    assert ddpflow.tril_indices(2, 2).tolist() == [[0, 1, 1], [0, 0, 1]]
    assert ddpflow.triu_indices(2, 3, 1).tolist() == [[0, 0, 1], [1, 2, 2]]


def test_complex_and_scalar_tensor():
    """Complex numbers are made of two parts; scalar_tensor has the default dtype."""
    made = ddpflow.complex(ddpflow.tensor([1.0, 2.0]), ddpflow.tensor([3.0, 4.0]))
    assert made.dtype == ddpflow.complex64 and made.tolist() == [1 + 3j, 2 + 4j]
    assert ddpflow.scalar_tensor(3).dtype == ddpflow.float32


def test_dlpack_both_ways():
    """from_dlpack shares memory with any exporter, and NumPy reads our tensors."""
    array = np.arange(3.0)
    made = ddpflow.from_dlpack(array)
    made[0] = 5.0
    assert array[0] == 5.0
    back = np.from_dlpack(made)
    assert back[0] == 5.0 and np.shares_memory(back, array)
    with pytest.raises(RuntimeError, match="detach"):
        np.from_dlpack(ddpflow.ones(2, requires_grad=True))


def test_frombuffer():
    """A bytes-like object is read in place."""
    memory = bytearray(np.array([1, 2, 3], np.int32).tobytes())
    made = ddpflow.frombuffer(memory, dtype=ddpflow.int32, offset=4)
    assert made.tolist() == [2, 3]
    made[0] = 7
    assert np.frombuffer(memory, np.int32)[1] == 7


def test_polar():
    """Absolute values and angles; both get gradients; other dtypes are refused."""
    size, angle = ddpflow.tensor([2.0, 3.0], requires_grad=True), ddpflow.tensor([0.0, np.pi / 2])
    found = ddpflow.polar(size, angle)
    np.testing.assert_allclose(found.detach().numpy(), [2, 3j], atol=1e-6)
    found.real.sum().backward()
    assert size.grad.tolist() == pytest.approx([1.0, 0.0], abs=1e-6)
    with pytest.raises(RuntimeError, match="one floating dtype"):
        ddpflow.polar(size, angle.double())
