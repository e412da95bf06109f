"""Puts the temporary files of the tests into memory, where there is enough of it.

Tests make thousands of small databases. On a slow or shared disk that takes several times as long
as the tests themselves, and nothing that they check depends on it: they kill processes and cut
connections, never the power. `TMPDIR` in the environment decides otherwise.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import psutil

_IN_MEMORY = "/dev/shm"
_NEEDED = 4 * 1024**3  # bytes; two processes were seen to use a quarter of it


def use_memory() -> None:
    """Put temporary files of this process and its children into memory, if possible."""
    if "TMPDIR" not in os.environ and _has_room(_IN_MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = _IN_MEMORY


def _has_room(folder: str) -> bool:
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return False  # tests write programs and run them
    return min(shutil.disk_usage(folder).free, psutil.virtual_memory().available) >= _NEEDED
