"""What cannot be run is said in one line before anything starts."""

import re

import pytest

from ddpflow.errors import LaunchError
from ddpflow.launch.target import check_target


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.py", None, "there is no script .*absent.py"),
        ("bad.py", b"x = = 1\n", "bad.py is not Python, line 1: invalid syntax; --no-python"),
        ("binary", b"\x7fELF\x00\x00", "binary is not Python"),
    ],
)
def test_script_that_cannot_run(tmp_path, name, content, message):
    """A missing file, a syntax error with its line, and what is no text."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(LaunchError, match=message) as caught:
        check_target("script", str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_what_can_run(tmp_path):
    """A script, a folder with __main__.py, an archive, modules of files and of packages, and programs on the path."""
    (tmp_path / "ok.py").write_text("import never_imported_here\nprint('\\d')\n")
    (tmp_path / "folder").mkdir()
    with pytest.raises(LaunchError, match=r"folder without __main__\.py"):
        check_target("script", str(tmp_path / "folder"))
    (tmp_path / "folder" / "__main__.py").touch()
    (tmp_path / "archive").write_bytes(b"PK\x03\x04 and so on")
    for name in ("ok.py", "folder", "archive"):
        check_target("script", str(tmp_path / name))
    for name in ("json.tool", "sys"):
        check_target("module", name)
    check_target("command", "sh")


@pytest.mark.parametrize("name", ["no_such_module_here", "no_such_package.sub", ".relative", ""])
def test_module_that_is_not_there(name):
    """A module that nobody can find is named."""
    with pytest.raises(LaunchError, match=re.escape(f"there is no module {name!r}")):
        check_target("module", name)


def test_program_instead_of_script():
    """A program where a script belongs gets the hint at --no-python; an unknown program is named."""
    with pytest.raises(LaunchError, match="there is no script sh; --no-python runs programs, and sh is one"):
        check_target("script", "sh")
    with pytest.raises(LaunchError, match="there is no program 'no_such_program'"):
        check_target("command", "no_such_program")
