"""Communication hooks that send less: gradients at half precision."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ddpflow.autograd.base import wrap
from ddpflow.comm.work import ChainedWork, Work
from ddpflow.dtype import as_numpy, bfloat16
from ddpflow.nn.parallel.bucket import Bucket
from ddpflow.nn.parallel.comm_hooks import allreduce_hook, as_work

__all__ = [
    "bf16_compress_hook",
    "bf16_compress_wrapper",
    "compress_wrapper",
    "fp16_compress_hook",
    "fp16_compress_wrapper",
]


def fp16_compress_hook(state: Any, bucket: Any) -> Any:
    """The mean, sent as float16: half the bytes of float32 gradients."""
    return fp16_compress_wrapper(allreduce_hook)(state, bucket)


def bf16_compress_hook(state: Any, bucket: Any) -> Any:
    """The mean, sent as bfloat16: half the bytes of float32 gradients, at their range."""
    return bf16_compress_wrapper(allreduce_hook)(state, bucket)


def fp16_compress_wrapper(hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Another hook, run on a float16 copy of the bucket."""
    return compress_wrapper(hook, np.dtype(np.float16))


def bf16_compress_wrapper(hook: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Another hook, run on a bfloat16 copy of the bucket."""
    return compress_wrapper(hook, as_numpy(bfloat16))


def compress_wrapper(hook: Callable[[Any, Any], Any], dtype: "np.dtype[Any]") -> Callable[[Any, Any], Any]:
    """Another hook, run on a copy of the bucket in the dtype."""

    def compress(state: Any, bucket: Any) -> Work:
        small = _copy_as(bucket, dtype)
        small.flat[...] = bucket.flat
        work = as_work(hook(state, small), small)

        def decompress() -> None:
            bucket.flat[...] = small.flat

        return ChainedWork(work, decompress)

    return compress


def _copy_as(bucket: Any, dtype: "np.dtype[Any]") -> Any:
    """A bucket of the same parameters in another dtype; kept for the next step."""
    copy = bucket._copies.get(dtype)
    if copy is None:
        copy = bucket._copies[dtype] = Bucket.__new__(Bucket)
        copy.__dict__.update(bucket.__dict__)
        copy._copies = {}
        copy.flat = bucket._empty(bucket.flat.size, dtype)
        copy.views = [
            copy.flat[start : start + v.size].reshape(v.shape)
            for start, v in zip(bucket.offsets, bucket.views, strict=True)
        ]
        copy.grads = [wrap(view) for view in copy.views]
    return copy
