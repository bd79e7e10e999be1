"""Run directories: private, one for each living run, gone afterwards."""

import fcntl
import os
import threading

import pytest

from ddpflow.errors import LaunchError
from ddpflow.launch.rundir import RunDir, live_runs, read_job, runs_folder


def test_life_of_a_run_directory(tmp_path):
    """It is for its user alone, is listed while it lives, tells what the run is, and goes with all in it."""
    folder = str(tmp_path / "runs")
    assert live_runs(folder) == []
    run_dir = RunDir(folder, "exp.1")
    assert os.stat(run_dir.path).st_mode & 0o777 == os.stat(folder).st_mode & 0o777 == 0o700
    run_dir.write_job({"world_size": 3})
    assert live_runs(folder) == ["exp.1"]
    assert read_job(folder, "exp.1") == {"world_size": 3}
    with pytest.raises(LaunchError, match="'exp.1' is alive on this host; choose another --run-id"):
        RunDir(folder, "exp.1")
    (tmp_path / "runs" / "exp.1" / "failed.0.json").write_text("{}")
    run_dir.remove()
    assert live_runs(folder) == [] and os.listdir(folder) == []
    with pytest.raises(LaunchError, match="no run 'exp.1'"):
        read_job(folder, "exp.1")


def test_what_a_dead_launcher_left(tmp_path):
    """A directory without a living launcher is cleaned, by the next run of that name or by any listing."""
    folder = str(tmp_path)
    for name in ("dead", "again", "beginning"):
        (tmp_path / name).mkdir()
    (tmp_path / "dead" / "job.json").write_text("{}")
    (tmp_path / "again" / "failed.0.json").write_text("{}")
    run_dir = RunDir(folder, "again")
    assert os.listdir(run_dir.path) == []
    assert live_runs(folder) == ["again"]
    # Without job.json, its launcher may just be about to lock it.
    assert sorted(os.listdir(folder)) == ["again", "beginning"]
    run_dir.remove()


@pytest.mark.parametrize("name", ["", "a/b", "..", "-x", "x" * 65, "a b"])
def test_bad_names(tmp_path, name):
    """What cannot name a folder is refused."""
    with pytest.raises(LaunchError, match="run id"):
        RunDir(str(tmp_path), name)


def test_folder_that_cannot_be_made(tmp_path):
    """An unusable temporary folder is named, with the remedy."""
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match="cannot make the run directory .*; set TMPDIR"):
        RunDir(str(tmp_path / "file"), "x")


def test_folder_follows_tmpdir():
    """Runs lie in a short path, in TMPDIR where it is set."""
    assert runs_folder({}) == f"/tmp/ddprun-{os.getuid()}"
    assert runs_folder({"TMPDIR": "/scratch"}) == f"/scratch/ddprun-{os.getuid()}"


def test_a_glance_is_no_run(tmp_path):
    """Somebody who lists the runs at the very moment a run begins does not stop it."""
    (tmp_path / "busy").mkdir()
    fd = os.open(tmp_path / "busy", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    timer = threading.Timer(0.05, lambda: os.close(fd))
    timer.start()
    RunDir(str(tmp_path), "busy").remove()
    timer.join()
