"""The plan as a table, with the times of a step."""

from ddpflow.nn.parallel import DistributedDataParallel as DDP
from ddpflow.testing import run_ranks
from tests.nn.parallel.models import Weights, tensor, total


def _plan(rank):
    ddp = DDP(Weights([1.0, 2.0], 3.0, 4.0), bucket_cap_mb=20 / 2**20)
    before = ddp.plan()
    total(ddp(tensor([1.0, 2.0]))).backward()
    return before, ddp.plan()


def test_the_table_has_names_bytes_order_and_times():
    """Before a step there are no times; afterwards a bucket is ready before it is launched, in launch order."""
    before, after = run_ranks(_plan, 2, "shm")[0]
    assert [row.names for row in before.buckets] == [("w2", "w1"), ("w0",)]
    assert [(row.index, row.nbytes, row.dtype) for row in after.buckets] == [(0, 128, "float64"), (1, 64, "float64")]
    assert before.divisor == after.divisor == 2
    assert before.exposed is None and before.buckets[0].ready_ms is None
    for row in after.buckets:
        assert 0 <= row.ready_ms <= row.launched_ms
        assert row.waited_ms >= 0
    assert after.buckets[0].launched_ms <= after.buckets[1].launched_ms
    assert 0 <= after.exposed <= 1
    text = str(after)
    assert "w2, w1" in text and "not hidden behind backward" in text and len(text.splitlines()) == 4
