"""Rewrites the assertions of the tests as pytest does, before it starts: `-m tests.rewritten`.

pytest keeps what it has rewritten for its next run. But in a first run, and after many changes,
each of its processes rewrites all files, at the same time. Here each file is rewritten once. Files
that have not changed are passed over. This uses what is private to pytest, whose version is pinned.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from _pytest.assertion.rewrite import (
    PYC_TAIL,
    _read_pyc,
    _rewrite_test,
    _write_pyc,
    get_cache_dir,
    try_makedirs,
)

TESTS = Path(__file__).parent
REWRITTEN = ("test_*.py", "conftest.py")
_STATE: Any = SimpleNamespace(trace=lambda text: None)
_NO_CONFIG: Any = None


def rewrite(path: Path) -> None:
    """Rewrite a file, and keep it where pytest looks for it, unless it is there."""
    folder = get_cache_dir(path)
    kept = folder / f"{path.stem}{PYC_TAIL}"
    if _read_pyc(path, kept) is None and try_makedirs(folder):
        stat, code = _rewrite_test(path, _NO_CONFIG)
        _write_pyc(_STATE, code, stat, kept)


def main() -> None:
    paths = [path for each in REWRITTEN for path in TESTS.rglob(each)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(rewrite, paths, chunksize=16))


if __name__ == "__main__":
    main()
