"""Asking for a host's address."""

import socket
import threading

from ddpflow.launch.lookup import Lookup
from tests.launch.conftest import wait_until


def test_answers():
    """A number or a known name becomes an address, anything else a reason."""
    for host, expected in (("127.0.0.1", ("127.0.0.1", 77)), ("localhost", None)):
        lookup = Lookup(host, 77)
        wait_until(lambda lookup=lookup: lookup.is_done)
        assert lookup.problem is None
        assert expected is None or lookup.address == (socket.AF_INET, expected)
    for host in ("no.such.host.invalid", "x" * 300, "a..b"):
        lookup = Lookup(host, 77)
        wait_until(lambda lookup=lookup: lookup.is_done)
        assert lookup.address is None and lookup.problem


def test_nobody_waits_for_the_name_service(monkeypatch):
    """A name service that does not answer holds nothing up."""
    asked = threading.Event()
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *args, **kwargs: asked.wait() and (_ for _ in ()).throw(OSError("late"))
    )
    lookup = Lookup("slow.example.org", 77)
    assert not lookup.is_done
    asked.set()
    wait_until(lambda: not any(thread.name == "ddprun-lookup" for thread in threading.enumerate()))
