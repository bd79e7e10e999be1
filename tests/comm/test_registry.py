"""Backends by name."""

import pytest

from ddpflow.comm import registry
from ddpflow.comm.backends.solo import SoloBackend
from ddpflow.errors import BackendUnavailable, ConfigError


@pytest.fixture(autouse=True)
def own_names(monkeypatch):
    """Registrations of a test end with it."""
    monkeypatch.setattr(registry, "_TARGETS", dict(registry._TARGETS))


def test_unknown_names_list_what_exists():
    """A wrong name, such as PyTorch's gloo, is an error with all that there is, and what for."""
    with pytest.raises(
        ConfigError, match=r"no backend 'gloo'; the backends are: solo \(a world of one\).*shm \(CPU arrays"
    ):
        registry.load_backend("gloo")
    assert {"solo", "thread", "shm", "mpi", "nccl"} <= set(registry.backend_names())


def test_loading():
    """A name gives the class; whether it is available can be asked."""
    assert registry.load_backend("solo") is SoloBackend
    assert registry.is_backend_available("solo") and not registry.is_backend_available("gloo")


def test_registering():
    """A target is loaded when first used; names cannot be taken over or malformed."""
    registry.register_backend("mine", "tests.comm.plain:PlainBackend")
    registry.register_backend("mine", "tests.comm.plain:PlainBackend")
    assert registry.load_backend("mine").name == "plain"
    with pytest.raises(ConfigError, match="already stands for"):
        registry.register_backend("shm", "a.b:C")
    for name, target in (("Bad", "a:B"), ("my backend", "a:B"), ("ok", "a.b.C"), ("ok", "a:"), ("ok", "a:b:c")):
        with pytest.raises(ConfigError, match="looks like|lower-case"):
            registry.register_backend(name, target)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("no_such_module:Backend", "No module named"),
        ("ddpflow.comm.backends.solo:Nothing", "no attribute"),
        ("ddpflow.comm.store:HashStore", "is not a subclass"),
    ],
)
def test_broken_targets(target, text):
    """What cannot be loaded says why."""
    registry.register_backend("broken", target)
    with pytest.raises(BackendUnavailable, match=text):
        registry.load_backend("broken")
    assert not registry.is_backend_available("broken")


def test_unavailable():
    """A transport may say why this machine cannot use it."""
    registry.register_backend("absent", "tests.comm.test_registry:AbsentBackend")
    with pytest.raises(BackendUnavailable, match="'absent' is not available: needs a telegraph"):
        registry.load_backend("absent")


class AbsentBackend(SoloBackend):
    """A transport that this machine lacks."""

    @classmethod
    def unavailable_reason(cls) -> str:
        """Why not."""
        return "needs a telegraph"


def test_by_device():
    """One name serves its devices; pairs choose per device."""
    assert registry.parse_backend("thread") == {"cpu": "thread"}
    assert registry.parse_backend(" Solo ") == {"cpu": "solo", "cuda": "solo"}
    assert registry.parse_backend("cpu:thread,cuda:solo") == {"cpu": "thread", "cuda": "solo"}
    for text in ("cpu:thread,cpu:solo", "tpu:solo", "cpu:", "cpu:thread,"):
        with pytest.raises(ConfigError, match="looks like"):
            registry.parse_backend(text)
    with pytest.raises(ConfigError, match="does not carry cuda"):
        registry.parse_backend("cuda:thread")
