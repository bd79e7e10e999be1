"""Every exception that ddpflow raises: one base class, each also the built-in type that PyTorch users expect."""

__all__ = [
    "AutogradError",
    "BackendUnavailable",
    "CollectiveTimeout",
    "CommError",
    "ConfigError",
    "DdpflowError",
    "DeviceError",
    "DtypeError",
    "EarlyTermination",
    "IndexRangeError",
    "LaunchError",
    "MismatchError",
    "ModelError",
    "NonFiniteError",
    "MixedDtypeError",
    "ModuleAttributeError",
    "ModuleNameError",
    "PeerError",
    "PlaceError",
    "RankFailed",
    "SerializationError",
    "ShapeError",
    "StateDictError",
    "UnsupportedDtypeError",
    "ValueRangeError",
    "WorkerError",
]


class DdpflowError(Exception):
    """Base class of everything ddpflow raises on purpose."""


class ShapeError(DdpflowError, RuntimeError):
    """Shapes that do not fit together."""


class DtypeError(DdpflowError, TypeError, RuntimeError):
    """A dtype that an operation does not take (PyTorch raises now one, now the other of the two built-in types)."""


class MixedDtypeError(DtypeError, RuntimeError):
    """Tensors of several dtypes in an operation that takes one, such as float64 data and a float32 weight."""


class UnsupportedDtypeError(DtypeError, NotImplementedError):
    """A dtype for which an operation is not defined, such as integers in a function of real numbers."""


class IndexRangeError(DdpflowError, IndexError):
    """An index, label or dimension outside its range."""


class PlaceError(IndexRangeError, RuntimeError):
    """An index outside a dimension where PyTorch raises, by operation and device, RuntimeError or IndexError."""


class ValueRangeError(DdpflowError, ValueError):
    """An argument whose value makes no sense."""


class DeviceError(DdpflowError, RuntimeError):
    """A device that is absent, or arrays of different devices in one operation."""


class AutogradError(DdpflowError, RuntimeError):
    """A backward pass that cannot be run: freed graph, changed value, non-scalar root."""


class ModuleAttributeError(DdpflowError, AttributeError):
    """A part of a module that does not exist, or that came before ``Module.__init__()``."""


class ModuleNameError(DdpflowError, KeyError):
    """A name under which a module cannot register a part."""

    __str__ = Exception.__str__  # KeyError would put the text in quotes


class StateDictError(DdpflowError, RuntimeError):
    """A state dict that does not fit the module it is loaded into; the text lists all differences."""


class SerializationError(DdpflowError, RuntimeError):
    """A file that cannot be written or read back safely."""


class ConfigError(DdpflowError, ValueError):
    """Launcher variables or options that are missing or contradict each other."""


class WorkerError(DdpflowError, RuntimeError):
    """A worker process of a DataLoader that failed, ended or is too slow."""


class LaunchError(DdpflowError, RuntimeError):
    """A process that could not be started."""


class RankFailed(LaunchError):
    """A rank started by ``spawn`` failed; its traceback is a note of this error.

    Attributes:
        rank: The first that failed.
        exitcode: Its exit code, or None.
        signal: The signal that ended it, or None.
    """

    def __init__(self, message: str, *, rank: int = -1, exitcode: int | None = None, signal: int | None = None) -> None:
        super().__init__(message)
        self.rank, self.exitcode, self.signal = rank, exitcode, signal


class CommError(DdpflowError, RuntimeError):
    """A collective that cannot be carried out; the base of all communication errors."""


class PeerError(CommError):
    """Another rank failed or left; the text says which, and why."""


class CollectiveTimeout(CommError, TimeoutError):
    """A deadline passed; the text says who arrived and who did not."""


class MismatchError(CommError):
    """Ranks called different collectives, or brought different arrays or models."""


class ModelError(DdpflowError, ValueError, RuntimeError):
    """A model that cannot be trained in parallel as it is."""


class EarlyTermination(CommError):
    """A rank ran out of work while others had some left, and that was to be an error (``Join``)."""


class NonFiniteError(DdpflowError, ArithmeticError):
    """A gradient with an infinity or NaN; the text says whose and where."""


class BackendUnavailable(CommError):
    """A transport that this machine or installation does not have; the text says how to get it."""
