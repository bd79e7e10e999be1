"""Starting processes as PyTorch scripts do."""

import os

import pytest

import ddpflow
from ddpflow import comm, multiprocessing
from ddpflow.errors import LaunchError


def reduce_and_write(rank, world, folder):
    """What a script of PyTorch's tutorial does, its own address included."""
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
    comm.init_process_group("shm", rank=rank, world_size=world)
    x = ddpflow.ones(2) * (rank + 1)
    comm.all_reduce(x)
    (folder / f"{rank}").write_text(str(x.tolist()))
    comm.destroy_process_group()


def test_spawn(tmp_path):
    """Ranks are numbered from 0 and find each other, whatever address the script sets."""
    multiprocessing.spawn(reduce_and_write, args=(2, tmp_path), nprocs=2)
    assert [(tmp_path / name).read_text() for name in ("0", "1")] == ["[3.0, 3.0]"] * 2


def test_not_waiting_is_refused():
    """There is no handle to wait on later."""
    with pytest.raises(LaunchError, match="join"):
        multiprocessing.spawn(print, join=False)


def test_the_standard_librarys_names():
    """Scripts find get_context and its relatives here."""
    assert multiprocessing.get_context("spawn").Queue is not None and multiprocessing.cpu_count() >= 1
