"""Which error of a world is its root cause."""

from ddpflow.errors import CollectiveTimeout, PeerError
from ddpflow.testing.outcome import Outcome, note, root_cause


def test_root_cause():
    """The earliest own error wins over errors that pass on another's; without errors there is none."""
    peer, own, later = PeerError("x"), ValueError("y"), CollectiveTimeout("z")
    outcomes = [Outcome(0, error=peer, time=1.0), Outcome(1, error=own, time=2.0), Outcome(2, error=later, time=3.0)]
    assert root_cause(outcomes) is own
    assert root_cause([outcomes[0], Outcome(1, 5)]) is peer
    assert root_cause([Outcome(0, 5)]) is None


def test_note():
    """The rank and the traceback go into the notes."""
    try:
        raise ValueError("x")
    except ValueError as error:
        assert note(error, 3) is error
        assert error.__notes__[0].startswith("raised by rank 3:\n") and "test_note" in error.__notes__[0]
