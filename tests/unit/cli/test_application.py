"""An application whose import hangs is reported, with the line, and given up in the end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.cli import application
from outlast.cli.errors import AppImportError

SOON = """
import sys
from outlast.cli import application
application.IMPORT_SLOW_SECONDS = 0.1
application.main("hangs:app", int(sys.argv[1]))
"""


@pytest.fixture
def hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a module whose import takes a long time."""
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_import_that_does_not_end_is_given_up_and_its_process_is_gone(
    hangs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "IMPORT_SECONDS_MAX", 0.2)
    with application.start_check("hangs:app") as look:
        with pytest.raises(AppImportError, match=r"^importing hangs:app has taken more than 0\.2"):
            look.wait()
        child = look._child
        assert child.poll() is None
    assert child.returncode == -9


def test_an_import_that_takes_long_shows_its_line(hangs: Path) -> None:
    read, write = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", SOON, str(write)],
        pass_fds=(write,),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stderr is not None
        assert any('hangs.py", line 2' in line for line in child.stderr)
    finally:
        child.kill()
        child.communicate()
        os.close(read)
        os.close(write)


def test_a_check_whose_parent_has_gone_prints_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a worker is told to end while it starts."""
    (tmp_path / "quick.py").write_text("import outlast\n\napp = outlast.App()\n")
    monkeypatch.chdir(tmp_path)
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "outlast.cli.application", "quick:app", str(write)]
    ended = subprocess.run(command, check=True, pass_fds=(write,), stderr=subprocess.PIPE)
    os.close(write)
    assert ended.stderr == b""
