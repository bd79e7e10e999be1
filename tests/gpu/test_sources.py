"""The CUDA sources compile, without a GPU: by nvcc and, as CuPy does it, by NVRTC, for three generations of GPUs."""

import importlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ddpflow.autograd.kernels import cuda

ARCHITECTURES = ("80", "90", "100")
FAMILIES = sorted(path.stem for path in Path(cuda.__file__).with_name("sources").glob("*.cu") if path.stem != "common")
# Characters of the dtypes of arrays and of parameters: all that may meet.
TYPES = [("f", "f"), ("d", "d"), ("e", "e"), ("E", "E"), ("e", "f"), ("E", "f")]


def everything(dtype: str, params: str) -> str:
    """All sources for one choice of types as one text: to compile it takes as long as one of them."""
    parts = [cuda.source(family, dtype, params).partition("typedef") for family in FAMILIES]
    spaces = [f"namespace {name} {{\ntypedef{rest}}}\n" for name, (_, _, rest) in zip(FAMILIES, parts, strict=True)]
    return parts[0][0] + "".join(spaces)


def kernels_in(text: str) -> list[str]:
    """The names of the kernels in a source."""
    return re.findall(r'extern "C" __global__ void (\w+)\(', text)


def header_folders() -> list[Path]:
    """Where the headers of CUDA's half types lie, if anywhere: the toolkit's folder, and that of the wheel."""
    wheels = Path(pytest.__file__).parents[1].glob("nvidia/*/include")
    return [p for p in (Path("/usr/local/cuda/include"), *wheels) if (p / "cuda_fp16.h").exists()]


def test_what_there_is():
    """Every kernel in the sources is launched, by its name."""
    written = kernels_in(everything("f", "f"))
    assert len(set(written)) == len(written) > 15
    assert set(written) <= set(re.findall(r'"(\w+)"', Path(cuda.__file__).read_text()))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is missing: the sources cannot be compiled for GPUs")
@pytest.mark.parametrize(("dtype", "params"), TYPES)
def test_nvcc(tmp_path, dtype, params):
    """CUDA's compiler takes the sources, and finds nothing to warn of."""
    (tmp_path / "source.cu").write_text(everything(dtype, params))
    targets = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in ARCHITECTURES]
    command = ["nvcc", "-std=c++17", "-Werror", "all-warnings", "-fatbin", *targets, "-o", "result", "source.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    compiled = (tmp_path / "result").read_bytes()
    assert len(compiled) > 10000


@pytest.mark.parametrize(("dtype", "params"), TYPES)
def test_nvrtc(dtype, params):
    """The compiler that CuPy calls when a kernel is first used takes the sources, with all of their kernels."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed: pip install 'ddpflow[cuda13]'")
    nvrtc = importlib.import_module("cupy.cuda").nvrtc

    headers = header_folders()
    if dtype in "eE" and not headers:
        pytest.skip("the headers of CUDA's half types are missing: pip install nvidia-cuda-runtime")
    text = everything(dtype, params)
    assert cupy.RawModule(code=text, options=("-std=c++17",)).code == text  # to compile it there takes a GPU
    for architecture in ARCHITECTURES:
        program = nvrtc.createProgram(text, "source.cu", (), ())
        options = ["-std=c++17", f"-arch=sm_{architecture}", *[f"-I{path}" for path in headers]]
        try:
            nvrtc.compileProgram(program, options)
        except nvrtc.NVRTCError:
            pytest.fail(nvrtc.getProgramLog(program))
        binary = nvrtc.getCUBIN(program)
        assert [name for name in kernels_in(text) if name.encode() not in binary] == []
        nvrtc.destroyProgram(program)
