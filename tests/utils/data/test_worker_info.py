"""What a worker process knows of itself."""

from ddpflow.utils.data.worker_info import WorkerInfo, get_worker_info, set_worker_info


def test_only_a_worker_has_info():
    """The parent knows no worker number; what is set is given."""
    assert get_worker_info() is None
    info = WorkerInfo(1, 2, 3, [4])
    set_worker_info(info)
    try:
        assert get_worker_info() is info
    finally:
        set_worker_info(None)
