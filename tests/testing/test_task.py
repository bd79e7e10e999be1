"""The messages themselves."""

import pickle

from ddpflow.testing.task import Report, Task


def test_they_can_be_sent():
    """Tasks and reports survive pickling."""
    task = Task(1, {"RANK": "1"}, [("m", "/m.py")], b"x", "shm", 5.0, True)
    assert pickle.loads(pickle.dumps(task)) == task
    assert pickle.loads(pickle.dumps(Report(error=b"e", error_text="t"))) == Report(None, b"e", "t")
