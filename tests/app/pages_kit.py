"""Runs the code that a page of the docs shows: its files, its tests, what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
PLUGINS = ("-p", "pytest_outlast", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider")
FILE = re.compile(r"^<!-- (\w+\.\w+) -->$", re.MULTILINE)


def blocks_of(page: str, name: str, language: str = "python") -> str:
    """Return what the page shows of a file, in its order."""
    mark = re.escape(f"<!-- {name} -->")
    text = (DOCS / page).read_text()
    found = re.findall(rf"^{mark}\n```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found, name
    return "\n\n".join(found)


def write_files(page: str, folder: Path) -> None:
    """Write all files of a page into a folder."""
    for name in FILE.findall((DOCS / page).read_text()):
        language = "ini" if name.endswith(".ini") else "python"
        (folder / name).write_text(blocks_of(page, name, language))


def run_pytest(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the tests in a folder, in a process of their own; return it, ended."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGINS],
        cwd=folder,
        env={
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # those of this suite take seconds
            **env,
        },
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def said(done: subprocess.CompletedProcess[str]) -> set[str]:
    """Return the lines of pytest's output, without the mark of an error."""
    return {line.removeprefix("E").strip() for line in done.stdout.splitlines()}
