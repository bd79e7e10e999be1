"""Saving and loading: nested state as one safetensors file, whole objects as a pickle that must be asked for.

A saved file holds the tensors under their dotted path (``model.fc.weight``), so any safetensors reader can use it; the
rest of the structure is JSON in the file's metadata. Files appear whole or not at all, and every tensor has a checksum.
"""

import contextlib
import hashlib
import json
import os
import pickle
import secrets
import zlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from ddpflow.autograd.base import TensorBase, wrap
from ddpflow.autograd.tensor import Size
from ddpflow.device import Device, as_device, move
from ddpflow.dtype import DType, as_dtype, as_numpy, dtype_of
from ddpflow.errors import SerializationError

__all__ = ["load", "save"]

_PICKLE_MAGIC = b"ddpflow-pickle-1\n"
_FORMAT = 1


class _NotPlain(Exception):
    """Something that is neither a tensor nor a plain value."""


def save(obj: Any, f: Any, *, plain_only: bool = False) -> None:
    """Save an object.

    Nested dicts, lists and tuples of tensors, arrays, numbers, strings, bytes, None, dtypes and devices (so: state
    dicts and checkpoints made of them) become a safetensors file. Anything else is pickled as a whole, and `load`
    wants ``weights_only=False`` for it. A tensor that appears twice is saved once and loaded as one tensor again.

    Args:
        obj: The object.
        f: A path, which is replaced only when the file is complete, or an object with ``write``.
        plain_only: Refuse what would be pickled, so that `load` needs no trust.

    Raises:
        SerializationError: When the object can be neither saved nor pickled, or the path cannot be written.
    """
    try:
        data = _plain_bytes(obj)
    except _NotPlain:
        if plain_only:
            raise SerializationError(
                f"save: this {type(obj).__name__} holds something beside tensors and plain values, such as numbers, "
                "strings, lists and dicts: save a state_dict of it instead"
            ) from None
        try:
            body = pickle.dumps(obj, protocol=4)
        except Exception as error:
            raise SerializationError(f"save: this {type(obj).__name__} cannot be pickled: {error}") from error
        data = _PICKLE_MAGIC + hashlib.sha256(body).digest() + body
    if hasattr(f, "write"):
        f.write(data)
    else:
        _write_atomically(os.fspath(f), data)


def load(f: Any, map_location: Any = None, weights_only: bool = True) -> Any:
    """Load what `save` saved; executes no code unless ``weights_only=False``.

    Args:
        f: A path, or an object with ``read``.
        map_location: Where tensors go: a device, or a function ``(tensor, location) -> tensor``; None for where they
            were.
        weights_only: False also reads whole pickled objects. Unpickling runs code from the file: only for files that
            you trust.

    Raises:
        SerializationError: When the file is damaged, not one of ours, or a pickled object and ``weights_only`` is set.
    """
    if hasattr(f, "read"):
        name, data = getattr(f, "name", "the stream"), f.read()
    else:
        name = os.fspath(f)
        with open(name, "rb") as file:
            data = file.read()
    if not data.startswith(_PICKLE_MAGIC):
        return _read_plain(str(name), data, map_location)
    if weights_only:
        raise SerializationError(
            f"{name} holds a pickled object, and unpickling can run any code: load(..., weights_only=False) if you "
            "trust it, or save a state_dict instead"
        )
    start = len(_PICKLE_MAGIC) + 32
    if hashlib.sha256(data[start:]).digest() != data[len(_PICKLE_MAGIC) : start]:
        raise SerializationError(f"{name} is damaged: its checksum does not fit")
    return pickle.loads(data[start:])


# --- plain structures -------------------------------------------------------------------------------------------------


def _plain_bytes(obj: Any) -> bytes:
    """The safetensors file of a plain structure."""
    from safetensors.numpy import save as to_bytes

    arrays: dict[str, np.ndarray[Any, Any]] = {}
    tree = _encode(obj, "", arrays, {})
    text = json.dumps(tree, separators=(",", ":"))
    metadata = {"ddpflow": json.dumps({"format": _FORMAT, "crc": zlib.crc32(text.encode())}), "structure": text}
    return to_bytes(arrays, metadata)


def _encode(value: Any, path: str, arrays: dict[str, Any], known: dict[int, Any]) -> Any:
    """The JSON form of a value; its arrays go into ``arrays``. Objects are lists that start with a letter."""
    if value is None or isinstance(value, (bool, str)) or type(value) in (int, float):
        return value
    if isinstance(value, TensorBase):
        if id(value) not in known:
            known[id(value)] = _add_array(value.array, path, arrays)
        flags = {"grad": True} if value.needs_grad and value.node is None else {}
        device = str(Device(value.device))  # type: ignore[attr-defined]
        return ["T", *known[id(value)], flags if device == "cpu" else {**flags, "device": device}]
    if isinstance(value, np.ndarray):
        return ["A", *_add_array(value, path, arrays)]
    if isinstance(value, np.generic):
        return _encode(value.item(), path, arrays, known)
    if type(value) in (list, tuple, Size):
        letter = "L" if type(value) is list else "U" if type(value) is tuple else "Z"
        return [letter, *[_encode(v, _join(path, i), arrays, known) for i, v in enumerate(value)]]
    if isinstance(value, OrderedDict) or type(value) is dict:
        pairs = [
            [_encode(k, path, arrays, known), _encode(v, _join(path, k), arrays, known)]
            for k, v in value.items()
            if isinstance(k, (str, int, float, bool, tuple)) or k is None or _refuse(k)
        ]
        return ["O" if isinstance(value, OrderedDict) else "D", *pairs]
    if isinstance(value, (bytes, bytearray)):
        return ["B", bytes(value).hex()]
    if isinstance(value, complex):
        return ["C", value.real, value.imag]
    if isinstance(value, DType):
        return ["Y", value.name]
    if isinstance(value, Device):
        return ["V", str(value)]
    if isinstance(value, (set, frozenset)) and all(isinstance(v, (str, int, float)) for v in value):
        return ["S", *sorted(value, key=repr)]
    raise _NotPlain


def _refuse(key: Any) -> bool:
    raise _NotPlain


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _add_array(array: Any, path: str, arrays: dict[str, Any]) -> tuple[str, str, int]:
    """Put an array among the file's tensors; gives its name, dtype and checksum."""
    host = move(array, as_device("cpu"))
    if host.dtype.hasobject:
        raise _NotPlain
    dtype = dtype_of(host.dtype)
    stored = np.ascontiguousarray(host).reshape(host.shape)
    if dtype.is_complex:  # safetensors has no complex128: pairs of real numbers
        stored = stored[..., None].view(dtype.to_real().dtype)
    elif dtype.name == "bfloat16":  # its NumPy side has no bfloat16: the bits
        stored = stored.view(np.uint16)
    name = path or "tensor"
    while name in arrays:
        name += "_"
    arrays[name] = stored
    return name, dtype.name, zlib.crc32(stored.tobytes())


def _read_plain(name: str, data: bytes, map_location: Any) -> Any:
    """What a safetensors file of ours holds; a file of somebody else's gives its tensors as a dict."""
    from safetensors import SafetensorError, deserialize

    try:
        entries = dict(deserialize(data))
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (SafetensorError, ValueError) as error:
        raise SerializationError(f"{name} is not a file that save() wrote, or it is damaged: {error}") from None
    metadata = header.get("__metadata__", {})
    place = _placer(map_location)
    if not {"ddpflow", "structure"} & set(metadata):
        return {k: place(wrap(_array(e, _dtype_of_entry(e))), "cpu") for k, e in entries.items()}
    try:
        text, about = metadata["structure"], json.loads(metadata["ddpflow"])
        version, crc = int(about["format"]), about["crc"]
    except (KeyError, ValueError, TypeError) as error:
        raise SerializationError(f"{name} is damaged: its metadata cannot be read ({error!r})") from None
    if version > _FORMAT:
        raise SerializationError(f"{name} was written by a newer ddpflow (format {version}); update to read it")
    if zlib.crc32(text.encode()) != crc:
        raise SerializationError(f"{name} is damaged: the checksum of its structure does not fit")
    tensors: dict[str, Any] = {}

    def decode(node: Any) -> Any:
        if not isinstance(node, list):
            return node
        letter, *rest = node
        if letter in "TA":
            key, dtype, crc = rest[:3]
            if key not in entries:
                raise SerializationError(f"{name} is damaged: tensor {key!r} is missing")
            if key not in tensors:
                if zlib.crc32(entries[key]["data"]) != crc:
                    raise SerializationError(f"{name} is damaged: the checksum of tensor {key!r} does not fit")
                array = _array(entries[key], as_dtype(dtype))
                if letter == "A":
                    tensors[key] = array
                else:
                    tensor = place(wrap(array), rest[3].get("device", "cpu"))
                    tensor.needs_grad = rest[3].get("grad", False)
                    tensors[key] = tensor
            return tensors[key]
        if letter == "L":
            return [decode(v) for v in rest]
        if letter in "UZ":
            return (tuple if letter == "U" else Size)(decode(v) for v in rest)
        if letter in "DO":
            return (dict if letter == "D" else OrderedDict)((decode(k), decode(v)) for k, v in rest)
        simple: dict[str, Callable[..., Any]] = {
            "B": bytes.fromhex,
            "C": complex,
            "Y": as_dtype,
            "V": as_device,
            "S": lambda *v: set(v),
        }
        return simple[letter](*rest)

    return decode(json.loads(text))


def _dtype_of_entry(entry: dict[str, Any]) -> DType:
    """The dtype of a tensor in a safetensors file."""
    names = {"F": "float", "I": "int", "U": "uint", "B": "bfloat", "C": "complex"}
    code = entry["dtype"]
    if code == "BOOL":
        return as_dtype("bool")
    if code == "BF16":
        return as_dtype("bfloat16")
    return as_dtype(names[code[0]] + code[1:])


def _array(entry: dict[str, Any], dtype: DType) -> np.ndarray[Any, Any]:
    shape = entry["shape"][:-1] if dtype.is_complex and entry["dtype"][0] == "F" else entry["shape"]
    return np.frombuffer(bytearray(entry["data"]), as_numpy(dtype)).reshape(shape)


def _placer(map_location: Any) -> Callable[[Any, str], Any]:
    """What puts a loaded tensor where it belongs."""
    if callable(map_location) and not isinstance(map_location, Device):
        return map_location  # type: ignore[no-any-return]
    if map_location is not None:
        target = as_device(map_location)
        return lambda tensor, _: wrap(move(tensor.array, target))

    def where_it_was(tensor: Any, location: str) -> Any:
        return tensor if location == "cpu" else wrap(move(tensor.array, as_device(location)))

    return where_it_was


def _write_atomically(path: str, data: bytes) -> None:
    """Write beside the path, make it last, then rename: a crash leaves the old file or the new one."""
    folder = os.path.dirname(path) or "."
    temporary = os.path.join(folder, f".{os.path.basename(path)}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise SerializationError(f"cannot write {path}: {error.strerror or error}") from error
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
