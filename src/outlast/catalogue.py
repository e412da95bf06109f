"""What an event is, and those of schedules; ``outlast/events.py`` has the others."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Event(NamedTuple):
    """What an event says: ``sentence`` is what has happened, ``fields`` are the names of the
    facts that it always carries, all of them and no others."""

    sentence: str
    fields: tuple[str, ...] = ()
    level: Literal["info", "warning", "error"] = "info"


SCHEDULES: dict[str, Event] = {
    "schedule_fired": Event(
        "A tick of a schedule has its job. `late`: seconds from the tick until it was stored.",
        ("schedule", "tick", "job_id", "late"),
    ),
    "schedule_skipped": Event(
        "A tick of a schedule has no job, since that of an earlier tick, `in_the_way` (null if it"
        " has ended since), was unfinished. Reported once a minute, with the `ticks` since then.",
        ("schedule", "tick", "in_the_way", "ticks"),
        "warning",
    ),
    "schedule_missed": Event(
        "Ticks of a schedule have no job: no worker was there in time (they are past its grace, or"
        " are not caught up), or it was paused or changed.",
        ("schedule", "ticks", "until"),
        "warning",
    ),
    "schedule_failed": Event(
        "A schedule is due and cannot be fired, as where its zone is unknown here or the store"
        " refuses its call; other schedules are not held up. Reported once a minute.",
        ("schedule", "error"),
        "error",
    ),
    "schedule_declared": Event(
        "A schedule of the code is new in the store, or has replaced an older declaration.",
        ("schedule", "what"),
    ),
    "schedule_not_declared": Event(
        "A schedule of this worker's code is not in use: a newer release declares another, one"
        " that was put at run time has its name, or another transaction holds its row.",
        ("schedule", "reason"),
        "warning",
    ),
    "schedules_asleep": Event(
        "Schedules are due that no worker's code declares any more; they are not fired, and are"
        " removed after a week.",
        ("count",),
        "warning",
    ),
}
