"""Key-value stores through which ranks find each other: bytes in and out, a deadline on everything, no pickles."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from ddpflow.comm.work import seconds
from ddpflow.errors import CollectiveTimeout, ValueRangeError

__all__ = ["DEFAULT_TIMEOUT_S", "HashStore", "PrefixStore", "Store", "add_to", "as_bytes", "compare", "missing_keys"]

DEFAULT_TIMEOUT_S = 300.0


def as_bytes(value: str | bytes) -> bytes:
    """Returns the value as bytes, text as UTF-8.

    Raises:
        TypeError: The value is neither.
    """
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a store holds str or bytes, not {type(value).__name__}")


class Store(ABC):
    """A key-value store shared by all ranks; keys are text, values are bytes.

    Attributes:
        timeout_s: Deadline of ``get`` and ``wait`` where the call sets none.
        on_idle: Called about every 50 ms while an operation waits; may raise to end the wait.
    """

    def __init__(self, timeout: float | timedelta = DEFAULT_TIMEOUT_S) -> None:
        self.timeout_s = seconds(timeout, DEFAULT_TIMEOUT_S)
        self.on_idle: Callable[[], None] | None = None

    @abstractmethod
    def set(self, key: str, value: str | bytes) -> None:
        """Stores ``value`` under ``key``, replacing an earlier one."""

    @abstractmethod
    def add(self, key: str, amount: int) -> int:
        """Adds to the integer under ``key`` (0 when absent) in one step for all ranks, and returns the sum.

        Raises:
            ValueRangeError: The value under ``key`` is not an integer.
        """

    @abstractmethod
    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Stores ``desired`` if the value is ``expected`` (b"" matches an absent key); returns the value afterwards.

        For an absent key with another ``expected``, nothing is stored and ``expected`` is returned, as in PyTorch.
        """

    @abstractmethod
    def check(self, keys: Iterable[str]) -> bool:
        """Whether all the keys exist now."""

    @abstractmethod
    def try_get(self, key: str) -> bytes | None:
        """Returns the value, or None at once where there is none."""

    @abstractmethod
    def wait(self, keys: Iterable[str], timeout: float | timedelta | None = None) -> None:
        """Returns once all the keys exist.

        Raises:
            CollectiveTimeout: Some still do not; they are named.
        """

    @abstractmethod
    def delete(self, key: str) -> bool:
        """Removes the key; returns whether it existed."""

    @abstractmethod
    def num_keys(self) -> int:
        """Returns the number of keys."""

    def get(self, key: str, timeout: float | timedelta | None = None) -> bytes:
        """Returns the value of ``key``, waiting until there is one."""
        value = self.try_get(key)
        while value is None:
            self.wait([key], timeout)
            value = self.try_get(key)
        return value

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Returns the values of several keys, waiting until all exist."""
        self.wait(keys)
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Stores several values, one after the other."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    @property
    def timeout(self) -> timedelta:
        """The deadline of waits."""
        return timedelta(seconds=self.timeout_s)

    def delete_key(self, key: str) -> bool:
        """Removes the key (PyTorch's name for ``delete``)."""
        return self.delete(key)

    def set_timeout(self, timeout: float | timedelta) -> None:
        """Sets the deadline of later waits."""
        self.timeout_s = seconds(timeout, DEFAULT_TIMEOUT_S)

    def close(self) -> None:
        """Frees connections; later calls fail."""
        return


class HashStore(Store):
    """A store inside one process, for ranks that are threads, and for a world of one."""

    def __init__(self, timeout: float | timedelta = DEFAULT_TIMEOUT_S) -> None:
        super().__init__(timeout)
        self._data: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: str | bytes) -> None:
        """Stores ``value`` under ``key``."""
        with self._changed:
            self._data[key] = as_bytes(value)
            self._changed.notify_all()

    def add(self, key: str, amount: int) -> int:
        """Adds to the integer under ``key`` and returns the sum."""
        with self._changed:
            total = add_to(self._data.get(key), key, amount)
            self._data[key] = str(total).encode()
            self._changed.notify_all()
            return total

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Stores ``desired`` if the value is ``expected``."""
        with self._changed:
            result, store = compare(self._data.get(key), as_bytes(expected), as_bytes(desired))
            if store:
                self._data[key] = result
                self._changed.notify_all()
            return result

    def check(self, keys: Iterable[str]) -> bool:
        """Whether all the keys exist now."""
        return all(key in self._data for key in keys)

    def try_get(self, key: str) -> bytes | None:
        """Returns the value or None."""
        return self._data.get(key)

    def wait(self, keys: Iterable[str], timeout: float | timedelta | None = None) -> None:
        """Returns once all the keys exist."""
        wanted = list(keys)
        limit = seconds(timeout, self.timeout_s)
        deadline = time.monotonic() + limit
        with self._changed:
            while missing := [key for key in wanted if key not in self._data]:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise missing_keys(missing, limit)
                if self.on_idle is not None:
                    self.on_idle()
                self._changed.wait(min(left, 0.05))

    def delete(self, key: str) -> bool:
        """Removes the key."""
        with self._changed:
            return self._data.pop(key, None) is not None

    def num_keys(self) -> int:
        """Returns the number of keys."""
        return len(self._data)


class PrefixStore(Store):
    """A part of another store: every key gets a prefix."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__(store.timeout_s)
        self.prefix, self.store = prefix, store

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}"

    def set(self, key: str, value: str | bytes) -> None:
        """Stores ``value`` under the prefixed key."""
        self.store.set(self._key(key), value)

    def add(self, key: str, amount: int) -> int:
        """Adds to the integer under the prefixed key."""
        return self.store.add(self._key(key), amount)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Stores ``desired`` under the prefixed key if the value is ``expected``."""
        return self.store.compare_set(self._key(key), expected, desired)

    def check(self, keys: Iterable[str]) -> bool:
        """Whether all the prefixed keys exist now."""
        return self.store.check([self._key(key) for key in keys])

    def try_get(self, key: str) -> bytes | None:
        """Returns the value of the prefixed key or None."""
        return self.store.try_get(self._key(key))

    def wait(self, keys: Iterable[str], timeout: float | timedelta | None = None) -> None:
        """Returns once all the prefixed keys exist."""
        self.store.wait([self._key(key) for key in keys], seconds(timeout, self.timeout_s))

    def delete(self, key: str) -> bool:
        """Removes the prefixed key."""
        return self.store.delete(self._key(key))

    def num_keys(self) -> int:
        """Returns the number of keys of the whole store underneath, as in PyTorch."""
        return self.store.num_keys()


def add_to(value: bytes | None, key: str, amount: int) -> int:
    """Returns the integer in ``value`` plus ``amount``; the rule of ``Store.add``."""
    try:
        return int(value or b"0") + amount
    except ValueError:
        raise ValueRangeError(f"the store's key {key!r} holds {value!r}, which is not an integer") from None


def compare(value: bytes | None, expected: bytes, desired: bytes) -> tuple[bytes, bool]:
    """Returns (result, whether to store it); the rule of ``Store.compare_set``."""
    if value is None:
        return (desired, True) if not expected else (expected, False)
    return (desired, True) if value == expected else (value, False)


def missing_keys(keys: Sequence[str], timeout_s: float) -> CollectiveTimeout:
    """Returns the error of a ``wait`` whose deadline has passed."""
    shown = ", ".join(repr(key) for key in keys[:8]) + (", ..." if len(keys) > 8 else "")
    return CollectiveTimeout(f"the store got no value for {shown} in {timeout_s:g} s")
