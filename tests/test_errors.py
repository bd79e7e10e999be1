"""Every exception can be caught as ddpflow's, and as the built-in type that PyTorch raises."""

import inspect

import pytest

from ddpflow import errors

PYTORCH = {
    "ShapeError": RuntimeError,
    "DtypeError": TypeError,
    "IndexRangeError": IndexError,
    "PlaceError": (IndexError, RuntimeError),
    "ValueRangeError": ValueError,
    "DeviceError": RuntimeError,
    "AutogradError": RuntimeError,
    "SerializationError": RuntimeError,
    "ConfigError": ValueError,
    "CollectiveTimeout": TimeoutError,
    "CommError": RuntimeError,
}


@pytest.mark.parametrize("name", errors.__all__)
def test_hierarchy(name):
    """One base class; a docstring that says when; PyTorch's type where it has one."""
    found = getattr(errors, name)
    assert issubclass(found, errors.DdpflowError) and inspect.getdoc(found)
    expected = PYTORCH.get(name, Exception)
    for builtin in expected if isinstance(expected, tuple) else (expected,):
        assert issubclass(found, builtin)
    assert name == "DdpflowError" or len(found.__mro__) > 4, "no built-in type beside the base class"


def test_one_catch_for_all_of_communication():
    """PeerError, timeouts and mismatches are communication errors."""
    for name in ("PeerError", "CollectiveTimeout", "MismatchError", "BackendUnavailable"):
        assert issubclass(getattr(errors, name), errors.CommError)
