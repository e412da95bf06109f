"""A wall clock of its own for a process: libfaketime, from Debian's package faketime."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
HOUR = 3600
_SHARED, _LEFT = Path("/dev/shm"), "*faketime_s*"


def faked(clock: Path) -> dict[str, str]:
    """Return the environment of a process whose wall clock is off by what a file says.

    CLOCK_MONOTONIC and CLOCK_BOOTTIME stay as they are (``python -m bench alarms`` checks it).
    Raises FileNotFoundError where the library is missing.
    """
    if not LIBRARY.exists():
        raise FileNotFoundError(f"{LIBRARY}: install Debian's package faketime")
    return {
        "LD_PRELOAD": str(LIBRARY),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def write_offset(clock: Path, seconds: int) -> None:
    """Set the clocks of all that read this file, at once: never half a file."""
    new = clock.with_suffix(".new")
    new.write_text(f"{seconds:+d}\n")
    new.chmod(0o644)
    new.replace(clock)


@contextlib.contextmanager
def no_faked_leftovers() -> Iterator[None]:
    """Remove what processes under libfaketime leave in /dev/shm when they are killed."""
    before = set(_SHARED.glob(_LEFT))
    try:
        yield
    finally:
        for left in set(_SHARED.glob(_LEFT)) - before:
            left.unlink(missing_ok=True)
