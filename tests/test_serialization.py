"""Saving and loading of nested state, and of whole objects."""

import io
import os
import pickle
from collections import OrderedDict

import numpy as np
import pytest
from safetensors.numpy import load_file

from ddpflow.autograd.tensor import Size, Tensor
from ddpflow.device import Device
from ddpflow.dtype import bfloat16, complex128, float16
from ddpflow.errors import SerializationError
from ddpflow.serialization import load, save


class Custom:
    """A class that only pickle can bring back."""

    def __init__(self, value):
        self.value = value


def checkpoint():
    """Returns a nested structure with every kind of plain value."""
    weight = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3) * 1.5, requires_grad=True)
    return {
        "model": OrderedDict([("fc.weight", weight), ("fc.bias", Tensor(np.array([0.25, -1.0], np.float64)))]),
        "tied": weight,
        "optimizer": {"state": {0: {"step": 3, "exp_avg": Tensor(np.ones((2, 3), np.float16) * 0.1)}}, "lr": 1e-3},
        "numbers": [1, -2.5, float("inf"), True, None, 3 + 4j],
        "tuple": (1, ("a", b"\x00\xff")),
        "size": Size((2, 3)),
        "dtype": float16,
        "device": Device("cpu"),
        "set": {"x", "y"},
        "array": np.arange(4, dtype=np.int16),
        "scalar": np.float64(2.25),
        "empty": Tensor(np.zeros((0, 3), np.float32)),
        "zero_d": Tensor(np.array(7, np.int64)),
        "bool": Tensor(np.array([True, False])),
        "complex": Tensor(np.array([1 + 2j, -3j], complex128.dtype)),
    }


def same(a, b):
    """Asserts that two structures are equal in values, types and dtypes."""
    assert type(a) is type(b)
    if isinstance(a, Tensor):
        assert a.dtype is b.dtype and a.requires_grad == b.requires_grad
        np.testing.assert_array_equal(a.array, b.array)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    else:
        assert a == b


def test_every_kind_of_plain_value_comes_back(tmp_path):
    """A nested checkpoint is equal after loading, in values, types, dtypes and order of keys."""
    state = checkpoint()
    save(state, tmp_path / "a.ckpt")
    loaded = load(tmp_path / "a.ckpt")
    state["scalar"] = 2.25  # NumPy scalars come back as Python numbers
    same(state, loaded)
    assert loaded["tied"] is loaded["model"]["fc.weight"]


def test_tensors_are_writable_and_own_their_memory(tmp_path):
    """Loaded tensors can be trained in place and do not alias each other."""
    save({"a": Tensor(np.ones(3, np.float32)), "b": Tensor(np.ones(3, np.float32))}, tmp_path / "a.ckpt")
    loaded = load(tmp_path / "a.ckpt")
    loaded["a"].array += 1
    assert loaded["b"].tolist() == [1, 1, 1]


def test_bfloat16_comes_back(tmp_path):
    """bfloat16 keeps its bits."""
    value = np.array([1.5, -2.0, 3.25]).astype(pytest.importorskip("ml_dtypes").bfloat16)
    save(Tensor(value), tmp_path / "a.ckpt")
    loaded = load(tmp_path / "a.ckpt")
    assert loaded.dtype is bfloat16
    np.testing.assert_array_equal(loaded.array.astype(np.float32), [1.5, -2.0, 3.25])


def test_the_file_is_readable_by_the_safetensors_library(tmp_path):
    """Another reader finds the tensors under their dotted paths."""
    save(checkpoint(), tmp_path / "a.safetensors")
    found = load_file(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(found["model.fc.weight"], np.arange(6).reshape(2, 3) * 1.5)
    assert found["optimizer.state.0.exp_avg"].dtype == np.float16


def test_a_foreign_safetensors_file_gives_its_tensors(tmp_path):
    """A safetensors file that we did not write loads as a dict of tensors."""
    from safetensors.numpy import save_file

    save_file({"w": np.arange(3, dtype=np.int32), "b": np.array([True])}, tmp_path / "x.safetensors")
    loaded = load(tmp_path / "x.safetensors")
    assert loaded["w"].tolist() == [0, 1, 2] and loaded["b"].dtype.name == "bool"


def test_streams_work():
    """Both take objects with write and read."""
    stream = io.BytesIO()
    save([Tensor(np.array([1.0, 2.0]))], stream)
    stream.seek(0)
    assert load(stream)[0].tolist() == [1.0, 2.0]


def test_an_object_is_pickled_and_must_be_asked_for(tmp_path):
    """What is not plain is read back only with weights_only=False; the refusal says so."""
    save({"thing": Custom(5)}, tmp_path / "a.ckpt")
    with pytest.raises(SerializationError, match="weights_only=False"):
        load(tmp_path / "a.ckpt")
    assert load(tmp_path / "a.ckpt", weights_only=False)["thing"].value == 5


def test_a_foreign_pickle_is_not_executed(tmp_path):
    """A pickle that was put in place of a file is refused without running it."""

    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    (tmp_path / "a.ckpt").write_bytes(pickle.dumps(Bomb()))
    for weights_only in (True, False):
        with pytest.raises(SerializationError, match=r"a\.ckpt"):
            load(tmp_path / "a.ckpt", weights_only=weights_only)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("kind", ["plain", "pickle"])
def test_damage_is_noticed(tmp_path, kind):
    """Whatever byte is changed, and wherever the file is cut, loading fails or gives the true values."""
    state = {"w": Tensor(np.arange(8, dtype=np.float32)), "n": 3} if kind == "plain" else Custom(list(range(20)))
    path = tmp_path / "a.ckpt"
    save(state, path)
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in [*rng.integers(0, len(good), 60), len(good) - 1]:
        damaged = bytearray(good)
        damaged[at] ^= 0x41
        path.write_bytes(damaged)
        try:
            loaded = load(path, weights_only=False)
        except SerializationError:
            continue
        if kind == "plain":
            same(state, loaded)
    for cut in (0, 7, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:cut])
        with pytest.raises(SerializationError):
            load(path, weights_only=False)


def test_a_failed_save_leaves_the_old_file(tmp_path):
    """A path that cannot be replaced keeps its contents, and nothing else is left beside it."""
    path = tmp_path / "a.ckpt"
    save([1], path)
    (tmp_path / "sub").mkdir()
    with pytest.raises(SerializationError, match="cannot write"):
        save([2], tmp_path / "sub" / ".." / "sub")
    with pytest.raises(SerializationError, match="cannot be pickled"):
        save(lambda: 0, path)
    assert load(path) == [1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.ckpt", "sub"]


def test_map_location_places_tensors(tmp_path):
    """A device, its name and a function decide where loaded tensors go."""
    save(Tensor(np.array([1.0])), tmp_path / "a.ckpt")
    for where in ("cpu", Device("cpu"), lambda tensor, location: tensor):
        assert load(tmp_path / "a.ckpt", map_location=where).device == Device("cpu")
