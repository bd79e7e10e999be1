"""The tensor that users hold."""

import copy
import pickle
import weakref

import numpy as np
import pytest

import ddpflow
from ddpflow.autograd.tensor import Size, Tensor
from ddpflow.errors import AutogradError, DtypeError, ShapeError
from ddpflow.factories import ones, tensor, zeros


def test_wrapping_shares_memory():
    """An array is wrapped as it is; lists are copied, as float32; what holds no numbers is refused."""
    array = np.array([1.0, 2.0])
    x = Tensor(array)
    array[0] = 9.0
    assert x.tolist() == [9.0, 2.0] and x.dtype is ddpflow.float64
    assert Tensor([1, 2]).dtype is ddpflow.float32
    assert Tensor(x).array is array
    with pytest.raises(DtypeError, match="<U1"):
        Tensor(np.array(["a"]))


def test_what_it_is():
    """Shape, dtype, device, strides and counts under PyTorch's names."""
    x = zeros(2, 3, dtype="float64")
    assert x.shape == (2, 3) == x.size() and x.size(-1) == 3 and isinstance(x.shape, Size)
    assert x.shape.numel() == x.numel() == x.nelement() == 6
    assert repr(x.shape) == "ddpflow.Size([2, 3])"
    assert x.ndim == x.dim() == x.ndimension() == 2
    assert (x.itemsize, x.element_size(), x.nbytes) == (8, 8, 48)
    assert x.stride() == (3, 1) and x.T.stride(0) == 1
    assert x.is_contiguous() and not x.T.is_contiguous()
    assert x.is_floating_point() and not x.is_complex() and not x.is_cuda
    assert str(x.device) == "cpu" and x.data_ptr() == x.array.ctypes.data


def test_requires_grad():
    """Set on leaves of floating types; inherited by results, from which it cannot be taken."""
    x = tensor([1.0])
    x.requires_grad = True
    y = x * 2
    assert x.is_leaf and y.requires_grad and not y.is_leaf
    with pytest.raises(AutogradError, match="detach"):
        y.requires_grad_(False)
    with pytest.raises(AutogradError, match="int64"):
        tensor([1]).requires_grad_()
    assert x.requires_grad_(False) is x and not x.requires_grad


def test_detach_and_data():
    """Both share memory outside the graph; writes through detach are noticed, through data not."""
    x = tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    z = y.exp()
    assert y.detach().array is y.array and y.detach().node is None
    y.data.array[0] = 3.0
    z.sum().backward(retain_graph=True)
    z.detach().bump_version()
    with pytest.raises(AutogradError, match="changed in place"):
        z.sum().backward()
    y.detach_()
    assert y.is_leaf and not y.requires_grad
    x.data = tensor([5.0, 6.0])
    assert x.tolist() == [5.0, 6.0] and x.requires_grad


def test_grad_takes_what_fits():
    """Only a tensor of the same shape and dtype, or None."""
    x = tensor([1.0, 2.0], requires_grad=True)
    x.grad = tensor([3.0, 4.0])
    assert x.grad.tolist() == [3.0, 4.0]
    x.grad = None
    with pytest.raises(TypeError, match="ndarray"):
        x.grad = np.zeros(2)
    with pytest.raises(ShapeError, match=r"\(3,\).*\(2,\)"):
        x.grad = zeros(3)
    with pytest.raises(ShapeError, match="float64"):
        x.grad = zeros(2, dtype="float64")


def test_to_numpy():
    """numpy() shares memory; with a graph it wants detach or force; NumPy functions take tensors."""
    x = ones(2)
    x.numpy()[0] = 5.0
    assert x.tolist() == [5.0, 1.0]
    y = tensor([1.0, 4.0], requires_grad=True)
    with pytest.raises(AutogradError, match="detach"):
        y.numpy()
    assert y.numpy(force=True).tolist() == [1.0, 4.0]
    assert np.asarray(x).tolist() == [5.0, 1.0] and np.asarray(x, dtype=np.float64).dtype == np.float64
    assert np.sqrt(tensor([4.0])).tolist() == [2.0]


def test_dlpack_both_ways():
    """NumPy takes a tensor's memory and a tensor NumPy's, without a copy."""
    x = ones(3)
    assert np.shares_memory(np.from_dlpack(x), x.array)
    assert x.__dlpack_device__()[0] == 1
    array = np.arange(3.0)
    assert np.shares_memory(ddpflow.from_dlpack(array).array, array)
    with pytest.raises(AutogradError, match="detach"):
        np.from_dlpack(ones(1, requires_grad=True))


def test_to_python():
    """item, int, float, bool, index, format and tolist, and what they refuse."""
    x = tensor([2.5])
    assert x.item() == float(x) == 2.5 and int(x) == 2 and complex(x) == 2.5 + 0j and bool(x)
    assert f"{tensor(2.5):.2f}" == "2.50" and f"{x}" == "tensor([2.5000])"
    assert [10, 20, 30][tensor(1)] == 20
    with pytest.raises(ShapeError, match="item"):
        ones(2).item()
    with pytest.raises(ShapeError, match="ambiguous"):
        bool(ones(2))
    with pytest.raises(TypeError, match="integer tensors"):
        [1, 2][tensor(1.0)]
    with pytest.raises(TypeError, match="0-d"):
        len(tensor(1.0))


def test_iteration():
    """A tensor gives its rows, each in the graph."""
    x = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    rows = list(x)
    assert len(x) == len(rows) == 2 and rows[1].tolist() == [3.0, 4.0]
    rows[0].sum().backward()
    assert x.grad.tolist() == [[1.0, 1.0], [0.0, 0.0]]


def test_deepcopy():
    """A leaf is copied with its gradient and its wish for one; a result is refused; the memo is kept."""
    x = tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    y = copy.deepcopy(x)
    assert y.tolist() == x.tolist() and y.requires_grad and y.grad.tolist() == x.grad.tolist()
    assert not np.shares_memory(x.array, y.array)
    a, b = copy.deepcopy([x, x])
    assert a is b
    with pytest.raises(AutogradError, match="detach"):
        copy.deepcopy(x * 2)


def test_pickling():
    """Values, dtype and requires_grad survive; a result is refused."""
    x = tensor([1.0, 2.0], dtype="float16", requires_grad=True)
    y = pickle.loads(pickle.dumps(x))
    assert y.tolist() == x.tolist() and y.dtype is x.dtype and y.requires_grad and y.is_leaf
    with pytest.raises(AutogradError, match="detach"):
        pickle.dumps(x * 2)


def test_hooks_need_a_gradient():
    """Hooks on what collects none are refused, post-accumulate hooks on results too."""
    x = tensor([1.0])
    with pytest.raises(AutogradError):
        x.register_hook(print)
    with pytest.raises(AutogradError, match="leaf"):
        (x.requires_grad_() * 2).register_post_accumulate_grad_hook(print)
    with pytest.raises(AutogradError):
        tensor([1.0]).retain_grad()


def test_retain_grad():
    """A result keeps its gradient when asked; a leaf does so anyhow; asking twice changes nothing."""
    x = tensor([1.0], requires_grad=True)
    y = x * 2
    assert not y.retains_grad
    y.retain_grad()
    y.retain_grad()
    x.retain_grad()
    assert y.retains_grad
    (y * 3).backward()
    assert y.grad.tolist() == [3.0] and x.grad.tolist() == [6.0]


def test_weak_references():
    """A tensor is gone with its last name."""
    x = tensor([1.0])
    watched = weakref.ref(x)
    del x
    assert watched() is None
