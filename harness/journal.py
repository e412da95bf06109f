"""The journal of a scene: a file to which each attempt appends lines, as JSON.

They say who ran, when, and whether processes of earlier attempts were still alive at that moment.
Tasks of an application that a scene runs call ``begin`` first.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import outlast

JOURNAL = Path(os.environ.get("OUTLAST_TEST_JOURNAL", "journal"))
AHEAD = float(
    os.environ.get("OUTLAST_TEST_BOOT_AHEAD", "0")
)  # of the machine's clock, on this host


def boot() -> float:
    """Return the clock on which the journal is written, the same on all hosts of a test."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - AHEAD


def note(event: str, **fields: object) -> None:
    line = json.dumps({"event": event, "at": boot(), **fields})
    with JOURNAL.open("a") as journal:
        journal.write(f"{line}\n")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def pids_of_earlier_attempts(job_id: int) -> list[int]:
    if not JOURNAL.exists():
        return []
    lines = [json.loads(line) for line in JOURNAL.read_text().splitlines()]
    return [pid for line in lines if line.get("job") == job_id for pid in line.get("pids", [])]


def begin(*children: int) -> outlast.Attempt:
    attempt = outlast.current()
    earlier = pids_of_earlier_attempts(attempt.job_id)
    note(
        "start",
        job=attempt.job_id,
        token=attempt.token,
        number=attempt.number,
        pid=os.getpid(),
        still_alive=[pid for pid in earlier if alive(pid)],
        pids=[os.getpid(), *children],
    )
    return attempt
