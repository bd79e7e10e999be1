"""PyTorch's older names, which leave the device out."""

import pickle

import ddpflow
from ddpflow.amp import is_autocast_enabled
from ddpflow.cuda.amp import GradScaler, autocast


def test_autocast_for_gpus():
    """`autocast()` and `autocast(False)` are about GPUs, with float16 unless another type is given."""
    with autocast():
        assert is_autocast_enabled("cuda") and not is_autocast_enabled("cpu")
        with autocast(False):
            assert not is_autocast_enabled("cuda")
    assert ddpflow.cuda.amp.autocast(dtype=ddpflow.bfloat16).dtype == ddpflow.bfloat16


def test_the_first_argument_is_the_scale():
    """As in PyTorch's `torch.cuda.amp.GradScaler`; a scaler can be pickled."""
    scaler = GradScaler(8.0, growth_interval=3)
    assert scaler.get_scale() == 8
    assert pickle.loads(pickle.dumps(scaler)).state_dict() == scaler.state_dict()
