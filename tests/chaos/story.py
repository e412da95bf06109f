"""The last events of a chaos run, from which to understand why it failed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from harness.scene import boot
from tests.chaos.verdict import lines_of

LAST = 60  # events that a failure shows
WIDTH = 300
LOGS = "worker-*.log"
ON_BOOT_CLOCK = ("journal", "faults")


class Told(NamedTuple):
    """One event: its wall-clock time, its source, and its job, if any."""

    at: float
    who: str
    job: int | None
    line: str


def last_events(folder: Path, violations: Iterable[str] = ()) -> list[str]:
    """Return the last events of workers' logs, journal and faults, in their order.

    If violations name jobs: the events up to the last one of these, without other jobs' events.
    """
    named = {int(job) for each in violations for job in re.findall(r"\bjob (\d+)", each)}
    in_order = sorted(_told(folder), key=lambda each: each.at)
    told = [each for each in in_order if not named or each.job in {*named, None}]
    ends = [number for number, each in enumerate(told, 1) if each.job in named]
    end = ends[-1] if ends else len(told)
    return [_shown(each) for each in told[max(0, end - LAST) : end]]


def _told(folder: Path) -> Iterator[Told]:
    to_wall = time.time() - boot()
    for who in sorted(path.name for path in folder.glob(LOGS)):
        for line in lines_of(folder, who):
            if isinstance(line, dict) and {"event", "timestamp"} <= line.keys():
                at = datetime.fromisoformat(line.pop("timestamp")).timestamp()
                yield _event(at, who.removesuffix(".log"), line, line.get("job_id"))
    for who in ON_BOOT_CLOCK:
        for line in lines_of(folder, who):
            yield _event(line.pop("at") + to_wall, who, line, line.get("job"))


def _event(at: float, who: str, line: dict[str, Any], job: int | None) -> Told:
    line.pop("level", None)
    fields = " ".join(f"{key}={value}" for key, value in line.items() if key != "event")
    return Told(at, who, job, f"{line['event']} {fields}"[:WIDTH].rstrip())


def _shown(each: Told) -> str:
    when = datetime.fromtimestamp(each.at, UTC).strftime("%H:%M:%S.%f")[:-3]
    return f"  {when}  {each.who:10} {each.line}"
