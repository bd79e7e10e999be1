"""Batches in pinned memory, on the CuPy stand-in; without a GPU the option changes nothing."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import ddpflow
from ddpflow import cuda, pinned
from ddpflow.utils.data import DataLoader, TensorDataset
from ddpflow.utils.data.pinning import pin_batch
from tests.doubles.fake_cupy import installed

Pair = namedtuple("Pair", "left right")


class Own:
    """A batch that pins itself."""

    def pin_memory(self):
        """The PyTorch protocol."""
        return "pinned by itself"


def test_structure_is_kept():
    """Tensors anywhere in a batch are pinned; what is none, or lies on a GPU, stays as it is."""
    with installed():
        x = ddpflow.arange(3.0)
        on_gpu = x.cuda()
        found = pin_batch(OrderedDict(a=[x, "text"], b=Pair(x + 1, 2), c=(x * 2, Own()), d=on_gpu, e={"x": x}))
        assert type(found) is OrderedDict and type(found["b"]) is Pair and type(found["c"]) is tuple
        tensors = (found["a"][0], found["b"].left, found["c"][0], found["e"]["x"])
        assert all(t.is_pinned() for t in tensors) and [t[2].item() for t in tensors] == [2, 3, 4, 2]
        assert found["a"][1] == "text" and found["b"].right == 2 and found["d"] is on_gpu
        assert found["c"][1] == "pinned by itself"


@pytest.mark.parametrize("workers", [0, 2])
def test_loader(workers):
    """A loader's batches are pinned, hold the data, and reach the GPU without a wait of the host."""
    data = np.arange(14, dtype=np.float32).reshape(7, 2)
    with installed() as machine:
        seen = []
        for (batch,) in DataLoader(TensorDataset(ddpflow.tensor(data)), 3, num_workers=workers, pin_memory=True):
            assert batch.is_pinned()
            seen.append(batch.to("cuda", non_blocking=True))
            del batch
        assert machine.syncs == []
        np.testing.assert_array_equal(np.concatenate([b.cpu().numpy() for b in seen]), data)
        pinned._in_flight.clear()


def test_without_a_gpu():
    """The option is taken and nothing happens."""
    if cuda.is_available():
        pytest.skip("there is a GPU")
    (batch,) = DataLoader(TensorDataset(ddpflow.arange(3)), 3, pin_memory=True)
    assert batch[0].tolist() == [0, 1, 2] and not batch[0].is_pinned()
