"""Random streams: repeatable, separate by thread, with a state that can be kept."""

import threading

import numpy as np
import pytest

import ddpflow
from ddpflow import random
from ddpflow.errors import DeviceError, DtypeError, ValueRangeError


def test_a_seed_repeats():
    """The same seed gives the same numbers; another gives others."""
    ddpflow.manual_seed(3)
    first = ddpflow.rand(5)
    ddpflow.manual_seed(3)
    assert ddpflow.equal(first, ddpflow.rand(5))
    ddpflow.manual_seed(4)
    assert not ddpflow.equal(first, ddpflow.rand(5))


def test_values_of_a_seed_stay():
    """The stream of a seed is part of what users rely on: PCG64 through NumPy's SeedSequence."""
    expected = np.random.Generator(np.random.PCG64(5)).random(3, np.float32)
    ddpflow.manual_seed(5)
    np.testing.assert_array_equal(ddpflow.rand(3).numpy(), expected)


def test_generators_are_separate():
    """A generator of one's own neither disturbs the default stream nor is disturbed by it."""
    ddpflow.manual_seed(1)
    expected = ddpflow.rand(4)
    ddpflow.manual_seed(1)
    own = ddpflow.Generator().manual_seed(9)
    drawn = ddpflow.rand(3, generator=own)
    assert ddpflow.equal(ddpflow.rand(4), expected)
    assert ddpflow.equal(drawn, ddpflow.rand(3, generator=ddpflow.Generator().manual_seed(9)))
    assert own.initial_seed() == 9


def test_state_can_be_kept():
    """A state put back gives the same numbers again, also after an odd number of 32-bit draws."""
    ddpflow.manual_seed(2)
    ddpflow.rand(3)
    state = ddpflow.get_rng_state()
    assert state.dtype == ddpflow.uint8
    first = ddpflow.rand(5), ddpflow.randint(0, 10, (3,))
    ddpflow.set_rng_state(state)
    again = ddpflow.rand(5), ddpflow.randint(0, 10, (3,))
    assert all(ddpflow.equal(a, b) for a, b in zip(first, again, strict=True))
    other = ddpflow.Generator()
    other.set_state(state)
    assert ddpflow.equal(ddpflow.rand(5, generator=other), first[0])
    assert other.initial_seed() == 2
    with pytest.raises(DtypeError, match="48 bytes"):
        other.set_state(np.zeros(3, np.uint8))


def test_seeds():
    """seed() draws one from the system; negative ones wrap to 64 bits; longer ones and text are refused."""
    chosen = ddpflow.seed()
    first = ddpflow.rand(3)
    ddpflow.manual_seed(chosen)
    assert ddpflow.initial_seed() == chosen
    assert ddpflow.equal(first, ddpflow.rand(3))
    assert ddpflow.manual_seed(-1).initial_seed() == 2**64 - 1
    with pytest.raises(ValueRangeError):
        ddpflow.manual_seed(2**64)
    with pytest.raises(DtypeError):
        ddpflow.manual_seed("x")
    ddpflow.manual_seed(0)


def in_thread(function):
    """What a function returns in a thread of its own."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_threads_have_streams_of_their_own():
    """A thread that seeds is repeatable and leaves others alone; one that does not seed draws other numbers."""
    ddpflow.manual_seed(7)
    main = ddpflow.rand(4).tolist()
    ddpflow.manual_seed(7)

    def seeded():
        ddpflow.manual_seed(7)
        return ddpflow.rand(4).tolist()

    assert in_thread(seeded) == main
    unseeded = in_thread(lambda: ddpflow.rand(4).tolist()), in_thread(lambda: ddpflow.rand(4).tolist())
    assert unseeded[0] != unseeded[1] and main not in unseeded
    assert ddpflow.rand(4).tolist() == main


def test_default_generator():
    """The face's default_generator is this thread's, and can be passed on."""
    ddpflow.default_generator.manual_seed(6)
    first = ddpflow.rand(2)
    ddpflow.manual_seed(6)
    assert ddpflow.equal(first, ddpflow.rand(2, generator=ddpflow.default_generator))


def test_ranges_and_moments():
    """Draws lie in their range and have their mean and deviation."""
    ddpflow.manual_seed(0)
    for dtype in (ddpflow.float16, ddpflow.float32, ddpflow.float64):
        even = ddpflow.rand(40000, dtype=dtype).double()
        assert 0 <= even.min().item() and even.max().item() < 1
        assert abs(even.mean().item() - 0.5) < 0.01 and abs(even.var().item() - 1 / 12) < 0.003
        normal = ddpflow.randn(40000, dtype=dtype).double()
        assert abs(normal.mean().item()) < 0.02 and abs(normal.std().item() - 1) < 0.02
    pairs = ddpflow.randn(40000, dtype=ddpflow.complex64)
    assert abs((pairs.numpy().real ** 2).mean() - 0.5) < 0.02


def test_the_generators_device_is_checked():
    """A generator for a GPU makes no numbers for the CPU."""
    with pytest.raises(DeviceError, match="cuda"):
        random.stream(np, ddpflow.Generator("cuda"))
    with pytest.raises(DeviceError, match="cannot be read"):
        ddpflow.Generator("cuda").get_state()
