"""What a script sees in a rank: the same as under plain Python."""

import subprocess
import sys
import zipfile

from tests.launch.conftest import Starter

SELF_PORTRAIT = """
import json, os, pickle, sys
class Thing: pass
print(json.dumps({
    "name": __name__, "file": __file__, "argv": sys.argv, "path0": sys.path[0], "doc": __doc__, "spec": __spec__,
    "main": sys.modules["__main__"].__dict__ is globals(), "modules": sorted({"numpy", "ddpflow"} & set(sys.modules)),
    "pickle": type(pickle.loads(pickle.dumps(Thing()))) is Thing, "names": sorted(n for n in globals() if n[0] != "_"),
}))
"""


def test_script_sees_itself_as_under_python(ddprun: Starter):
    """Name, file, arguments, path, globals and pickling are as under `python script.py`; nothing is preloaded."""
    (ddprun.folder / "sub").mkdir()
    (ddprun.folder / "sub" / "portrait.py").write_text('"""Docs."""' + SELF_PORTRAIT)
    here = ddprun.start("-n", 1, "sub/portrait.py", "a", "-n").result()
    assert here.code == 0, here.err
    plain = subprocess.run(
        [sys.executable, "sub/portrait.py", "a", "-n"],
        cwd=ddprun.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert here.out == plain.stdout
    assert '"modules": []' in here.out


def test_folder_and_archive(ddprun: Starter):
    """A folder or a zip file with __main__.py runs."""
    (ddprun.folder / "app").mkdir()
    (ddprun.folder / "app" / "__main__.py").write_text("import helper; print(__name__, helper.VALUE)")
    (ddprun.folder / "app" / "helper.py").write_text("VALUE = 7")
    with zipfile.ZipFile(ddprun.folder / "app.pyz", "w") as archive:
        for name in ("__main__.py", "helper.py"):
            archive.write(ddprun.folder / "app" / name, name)
    for target in ("app", "app.pyz"):
        result = ddprun.start("-n", 1, target).result()
        assert (result.code, result.out) == (0, "__main__ 7\n"), result.err


def test_exit_paths_run_as_usual(ddprun: Starter):
    """Exit handlers and waiting threads run after the script's end, and an own exception hook is used."""
    result = ddprun.run(
        """
        import atexit, threading
        atexit.register(lambda: print("handler", hasattr(sys, "last_value")))
        reported = threading.Event()
        threading.Thread(target=lambda: (reported.wait(), print("thread"))).start()
        sys.excepthook = lambda kind, error, trace: (print("hook", kind.__name__, error), reported.set())
        raise OSError("disk")
        """,
        "-n",
        1,
    )
    assert result.code == 1
    assert result.out.splitlines() == ["hook OSError disk", "thread", "handler True"]
    assert "rank 0 failed first" in result.err


def test_forked_children_do_not_report(ddprun: Starter):
    """An exception in a process that a rank has forked is that process's own affair."""
    result = ddprun.run(
        """
        pid = os.fork()
        if pid == 0:
            raise ValueError("only mine")
        assert os.waitpid(pid, 0)[1] == 256
        """,
        "-n",
        2,
    )
    assert result.code == 0, result.err
    assert "ValueError: only mine" in result.err and "failed first" not in result.err


def test_failure_before_ddpflow_is_imported(ddprun: Starter):
    """A rank's failure is published even where ddpflow cannot be imported: a broken NumPy, say."""
    (ddprun.folder / "numpy.py").write_text("raise ImportError('numpy is broken')")
    result = ddprun.run("import numpy", "-n", 2)
    assert result.code == 1
    assert "ImportError: numpy is broken" in result.err and result.err.count("Traceback") == 1
