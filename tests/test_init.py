"""The face: what `import ddpflow as torch` finds."""

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ddpflow

SCRIPTS = """
Tensor FloatTensor LongTensor accelerator.is_available accelerator.current_accelerator accelerator.device_count
accelerator.set_device_index amp.autocast amp.GradScaler backends.cudnn.benchmark backends.cuda.matmul.allow_tf32
compile cuda.is_available cuda.device_count cuda.set_device cuda.is_bf16_supported cuda.manual_seed device float
double half bfloat16 int long bool float16 float32 float64 int8 int16 int32 int64 uint8 distributions.Categorical
distributions.Normal distributions.Bernoulli arange linspace zeros ones full empty eye zeros_like ones_like full_like
empty_like tensor from_numpy rand randn randint randperm randn_like manual_seed multinomial cat stack split chunk topk
sort argsort tril triu where diag flatten unique cumsum einsum matmul mm bmm exp log log1p sqrt sin cos sigmoid tanh
norm sum mean std var no_grad set_grad_enabled save load nn.Linear nn.functional.relu nn.init.normal_
nn.utils.clip_grad_norm_ optim.SGD optim.AdamW optim.lr_scheduler.StepLR utils.data.DataLoader
utils.data.distributed.DistributedSampler multiprocessing.spawn distributed.init_process_group
nn.parallel.DistributedDataParallel autograd.grad set_num_threads conv2d autocast hann_window finfo get_default_dtype
""".split()
METHODS = """
T add add_ argmax clone contiguous copy_ cpu cuda data detach dim double eq exp expand_as fill_ float item log
masked_fill max mean mm mul_ norm normal_ numel numpy permute pow relu reshape shape sigmoid size softmax split sqrt
squeeze std sum t to tolist topk transpose type unsqueeze view view_as where zero_ grad backward requires_grad_
retain_grad
""".split()


@pytest.mark.parametrize("name", SCRIPTS)
def test_names_that_scripts_use(name):
    """Collected from nanoGPT, minGPT and PyTorch's example collection."""
    found = ddpflow
    for part in name.split("."):
        found = getattr(found, part)


def test_methods_that_scripts_use():
    """The same for tensors."""
    assert [name for name in METHODS if not hasattr(ddpflow.Tensor, name)] == []


def test_the_list_is_complete():
    """Every name in `__all__` is there once, and the families of operations are there whole."""
    assert sorted(set(ddpflow.__all__)) == sorted(ddpflow.__all__)
    assert [name for name in ddpflow.__all__ if not hasattr(ddpflow, name)] == []
    for family in ("arithmetic", "shape", "joining", "selecting", "sorting", "reduce"):
        module = importlib.import_module(f"ddpflow.autograd.ops.{family}")
        for name in module.__all__:
            assert getattr(ddpflow, name) is getattr(module, name)


def test_what_does_not_exist():
    """A misspelt name is an AttributeError that says so; dir() lists the rooms."""
    with pytest.raises(AttributeError, match="tensro"):
        _ = ddpflow.tensro
    assert {"nn", "optim", "comm", "save"} <= set(dir(ddpflow))


def test_functions_that_are_loaded_later():
    """Each is found where the face says."""
    for name, room in ddpflow._LATER.items():
        assert getattr(ddpflow, name) is getattr(importlib.import_module(room), name)


def test_version():
    """The version is the project's."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert ddpflow.__version__ == project["version"]


def test_rooms_are_loaded_when_used():
    """Importing the package loads neither nn nor comm; using them does."""
    script = (
        "import sys, ddpflow; assert not {'ddpflow.nn', 'ddpflow.comm', 'ddpflow.serialization'} & set(sys.modules);"
        "ddpflow.nn.Linear; ddpflow.distributed.ReduceOp; ddpflow.save; assert 'ddpflow.comm' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
