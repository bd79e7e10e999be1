"""One number, or one for each dimension."""

from ddpflow.nn.modules.sizes import tuple_of


def test_tuple_of():
    """A number is repeated, an iterable is taken as it is, a string is one value."""
    assert tuple_of(3, 2) == (3, 3)
    assert tuple_of([1, 2, 4], 3) == (1, 2, 4)
    assert tuple_of("same", 2) == ("same", "same")
