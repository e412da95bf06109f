"""Finds the process that holds the write lock of a SQLite file, where the system lists locks."""

from __future__ import annotations

import os
from pathlib import Path

WRITE_LOCK = "120"  # the byte of FILE-shm that a writer locks (sqlite.org/walformat.html, 2.3.1)


def find_writer(path: Path) -> int | None:
    """Return the process that holds the write lock of a file in WAL mode; None: none does, or it
    cannot be seen (another system than Linux, another container)."""
    try:
        inode = str(os.stat(f"{path}-shm").st_ino)
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in locks:  # 3: POSIX  ADVISORY  WRITE 1066 fe:00:2171530 120 120
        words = line.split()  # of one that waits for a lock the second word is ->
        if words[-2:] != [WRITE_LOCK] * 2 or words[-5] != "WRITE" or "->" in words:
            continue
        if words[-3].rpartition(":")[2] == inode and (pid := int(words[-4])) > 0:
            return pid
    return None


def describe_writer(path: Path) -> str:
    """Return who holds the lock, for a message."""
    pid = find_writer(path)
    if pid is None:
        return "another program"
    if pid == os.getpid():
        return "another connection of this process"
    try:
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    except OSError:  # it has ended since
        return f"process {pid}"
