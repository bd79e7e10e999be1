"""What every store must do, on each of them."""

import threading
from collections.abc import Callable, Iterator

import pytest

from ddpflow.comm.file_store import FileStore
from ddpflow.comm.store import HashStore, PrefixStore, Store, add_to, as_bytes, compare, missing_keys
from ddpflow.comm.tcp_store import TCPStore
from ddpflow.errors import CollectiveTimeout, PeerError, ValueRangeError

Opener = Callable[[], Store]


@pytest.fixture(params=["hash", "file", "tcp", "prefix", "prefix of tcp"])
def open_store(request, tmp_path) -> Iterator[Opener]:
    """Returns a function that opens the same store once more."""
    opened: list[Store] = []
    shared = HashStore(5)
    server = TCPStore("127.0.0.1", 0, is_master=True, timeout=5, token=b"secret") if "tcp" in request.param else None

    def opener() -> Store:
        if server is not None:
            store: Store = TCPStore("127.0.0.1", server.port, timeout=5, token=b"secret")
        else:
            store = FileStore(str(tmp_path / "store"), timeout=5) if request.param == "file" else shared
        opened.append(store)
        return PrefixStore("part/of", store) if "prefix" in request.param else store

    yield opener
    for store in [*opened, *([server] if server is not None else [])]:
        store.close()


def test_set_and_get(open_store):
    """What one client sets, all get: bytes as they are, text as UTF-8, empty values too."""
    a, b = open_store(), open_store()
    a.set("k", "héllo")
    a.set("bytes", bytes(range(256)))
    a.set("empty", b"")
    assert b.get("k") == "héllo".encode() and b.get("bytes") == bytes(range(256)) and b.get("empty") == b""
    b.set("k", b"new")
    assert a.get("k") == b"new" and a.try_get("missing") is None
    with pytest.raises(TypeError, match="str or bytes"):
        a.set("k", 3)


def test_add(open_store):
    """Add counts from nothing, also down, and refuses what is no number."""
    a, b = open_store(), open_store()
    assert [a.add("n", 2), b.add("n", 3), a.add("n", -10)] == [2, 5, -5]
    assert b.get("n") == b"-5"
    a.set("n", "x")
    with pytest.raises(ValueRangeError, match="not an integer"):
        b.add("n", 1)
    assert b.get("n") == b"x"


def test_add_is_one_step(open_store):
    """Concurrent additions are all counted, and each gets a sum of its own."""
    sums: list[int] = []

    def count() -> None:
        store = open_store()
        sums.extend(store.add("n", 1) for _ in range(25))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sums) == list(range(1, 101))


def test_compare_set(open_store):
    """The value changes only from what was expected; an empty expectation also takes an absent key."""
    a, b = open_store(), open_store()
    assert a.compare_set("k", "x", "y") == b"x" and a.try_get("k") is None
    assert a.compare_set("k", "", "one") == b"one"
    assert b.compare_set("k", "", "two") == b"one"
    assert b.compare_set("k", "one", "two") == b"two"
    assert a.get("k") == b"two"


def test_check_delete_count(open_store):
    """Keys can be looked for, removed and counted."""
    a, b = open_store(), open_store()
    a.set("x", b"1")
    a.set("y", b"2")
    assert b.check(["x", "y"]) and not b.check(["x", "z"]) and b.check([])
    assert b.num_keys() == 2
    assert b.delete("x") and not b.delete("x") and b.delete_key("y")
    assert a.num_keys() == 0 and not a.check(["x"])


def test_several_at_once(open_store):
    """Lists of keys can be set and read together."""
    a, b = open_store(), open_store()
    a.multi_set(["x", "y"], ["1", b"2"])
    assert b.multi_get(["y", "x"]) == [b"2", b"1"] and b.timeout.total_seconds() == 5
    with pytest.raises(ValueError):
        a.multi_set(["x"], [])


def test_wait(open_store):
    """Wait returns when the last key comes."""
    a, b = open_store(), open_store()
    a.set("early", b"")
    timer = threading.Timer(0.1, lambda: a.set("late", b"x"))
    timer.start()
    b.wait(["early", "late"], 5)
    assert b.get("late") == b"x"
    timer.join()


def test_get_waits(open_store):
    """Get waits for its key."""
    a, b = open_store(), open_store()
    timer = threading.Timer(0.1, lambda: a.set("late", b"x"))
    timer.start()
    assert b.get("late") == b"x"
    timer.join()


def test_deadline(open_store):
    """A wait that is over names just the keys that are missing, and the store works on."""
    store = open_store()
    store.set("there", b"")
    with pytest.raises(CollectiveTimeout, match=r"'(part/of/)?absent' in 0.1 s") as caught:
        store.wait(["there", "absent"], 0.1)
    assert "there'" not in str(caught.value) and isinstance(caught.value, TimeoutError)
    store.set("after", b"1")
    assert store.get("after") == b"1"
    store.set_timeout(0.05)
    with pytest.raises(CollectiveTimeout, match=r"0.05 s"):
        store.get("absent")


def test_a_wait_can_be_ended(open_store):
    """on_idle is asked while a wait lasts, and what it raises ends the wait; the store works on."""
    store = open_store()
    inner = store
    while isinstance(inner, PrefixStore):
        inner = inner.store

    def fail() -> None:
        raise PeerError("rank 1 raised ValueError: early")

    inner.on_idle = fail
    with pytest.raises(PeerError, match="early"):
        store.wait(["absent"], 5)
    inner.on_idle = None
    store.set("after", b"1")
    assert store.get("after") == b"1"


def test_prefixes_keep_apart():
    """Two parts of one store do not see each other's keys."""
    root = HashStore()
    a, b = PrefixStore("a", root), PrefixStore("b", root)
    a.set("k", "1")
    assert b.try_get("k") is None and PrefixStore("a", root).get("k") == b"1" and root.get("a/k") == b"1"
    assert a.num_keys() == 1


def test_rules():
    """The rules that all stores share."""
    assert add_to(None, "k", 3) == 3 and add_to(b"4", "k", 3) == 7
    assert compare(None, b"", b"d") == (b"d", True) and compare(None, b"e", b"d") == (b"e", False)
    assert compare(b"v", b"v", b"d") == (b"d", True) and compare(b"v", b"w", b"d") == (b"v", False)
    assert as_bytes(memoryview(b"ab")) == b"ab"
    text = str(missing_keys([f"k{i}" for i in range(20)], 1.0))
    assert "'k0'" in text and text.endswith(", ... in 1 s")


def test_time_outs_are_positive():
    """A store with a senseless deadline is refused."""
    with pytest.raises(ValueRangeError, match="timeout"):
        HashStore(0)
