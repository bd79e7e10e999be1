"""The record that ``ddprun --status`` reads."""

from ddpflow.comm.progress import COLLECTIVES, STEPS, Progress, read_progress


def test_reader_sees_what_the_rank_wrote(tmp_path):
    """Counters appear as they are assigned, texts from waiting to resumed."""
    progress = Progress(str(tmp_path), 3)
    progress.words[COLLECTIVES] = 41
    progress.words[STEPS] += 7
    progress.waiting("all_reduce #41 (bucket 2: fc.weight)", waited_s=7.0)
    snapshot = read_progress(str(tmp_path), 3)
    assert (snapshot.collectives, snapshot.steps) == (41, 7)
    assert snapshot.waiting_for == "all_reduce #41 (bucket 2: fc.weight)"
    assert snapshot.waited_s >= 7
    progress.resumed()
    assert read_progress(str(tmp_path), 3).waiting_for == ""


def test_long_text_is_cut(tmp_path):
    """A text longer than the record loses its end, and nothing else."""
    progress = Progress(str(tmp_path), 0)
    progress.words[COLLECTIVES] = 5
    progress.waiting("é" * 1000)
    snapshot = read_progress(str(tmp_path), 0)
    assert snapshot.collectives == 5
    assert snapshot.waiting_for.startswith("é" * 190)


def test_without_a_launcher_nothing_is_written(tmp_path):
    """Without a run directory, or with one that is gone, the record works and nobody sees it."""
    for folder in (None, str(tmp_path / "gone")):
        progress = Progress(folder, 0)
        progress.words[COLLECTIVES] = 1
        progress.waiting("barrier #1")
    assert list(tmp_path.iterdir()) == []


def test_strange_files_are_no_records(tmp_path):
    """A missing, short or foreign file reads as None."""
    assert read_progress(str(tmp_path), 0) is None
    (tmp_path / "progress.1").write_bytes(b"short")
    (tmp_path / "progress.2").write_bytes(bytes(512))
    assert read_progress(str(tmp_path), 1) is None
    assert read_progress(str(tmp_path), 2) is None
