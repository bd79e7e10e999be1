"""How ranks of mpiexec find an address for the store."""

import importlib.util

import pytest

if importlib.util.find_spec("mpi4py") is None:
    pytest.skip("mpi4py is not installed (pip install 'ddpflow[mpi]')", allow_module_level=True)

from ddpflow.comm.backends import mpi_meeting
from ddpflow.errors import ConfigError


def record(identity: bytes, *addresses: str) -> bytes:
    """What a rank tells of itself."""
    return (identity * 32)[:32] + " ".join(addresses).encode() + bytes(10)


def test_one_host():
    """On one host the store stays on the loopback interface."""
    assert mpi_meeting._choose_address([record(b"a", "10.0.0.1")] * 3, "") == "127.0.0.1"


def test_a_given_address_is_respected():
    """MASTER_ADDR wins."""
    assert mpi_meeting._choose_address([record(b"a"), record(b"b")], "10.9.9.9") == "10.9.9.9"


def test_other_hosts():
    """Otherwise it is the address from which the kernel would reach the other host; without one, there is an error."""
    own = mpi_meeting.local_addresses()
    if own:
        assert mpi_meeting._choose_address([record(b"a", *own), record(b"b", *own)], "") in own
    with pytest.raises(ConfigError, match="set MASTER_ADDR"):
        mpi_meeting._choose_address([record(b"a"), record(b"b", "127.0.0.5")], "")


def test_identity():
    """It is the same each time, and says nothing of the host in clear."""
    assert mpi_meeting.host_identity() == mpi_meeting.host_identity() and len(mpi_meeting.host_identity()) == 32
    assert not any(address.startswith("127.") for address in mpi_meeting.local_addresses())
