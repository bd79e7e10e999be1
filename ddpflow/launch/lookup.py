"""Asking the name service for a host's address without waiting for the answer, which nothing could interrupt."""

import socket
import threading

__all__ = ["Address", "Lookup"]

Address = tuple[socket.AddressFamily, tuple[object, ...]]


class Lookup:
    """One question; the answer appears in ``address``, or the reason why there is none in ``problem``.

    Args:
        host: Name or number of a host.
        port: Port that becomes part of the address.
    """

    def __init__(self, host: str, port: int) -> None:
        self.address: Address | None = None
        self.problem: str | None = None
        self._host, self._port = host, port
        threading.Thread(target=self._ask, name="ddprun-lookup", daemon=True).start()

    @property
    def is_done(self) -> bool:
        """Whether there is an answer."""
        return self.address is not None or self.problem is not None

    def _ask(self) -> None:
        try:
            info = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)[0]
            self.address = info[0], info[4]
        except OSError as error:
            self.problem = error.strerror or str(error)
        except UnicodeError:
            self.problem = "no valid host name"
