"""Defines the counters of workers: by minute, queue, task and outcome, for sparklines and counters.

Each worker writes one row for each queue, task and outcome once a minute
(``worker/claims/counters.py``), and ``merge`` adds them up: to minutes of all workers, which stay
for a day, and to totals. No decision depends on them: a worker that dies loses a minute's counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from outlast.store.statements import Row, Rows

BOUNDS = (0.01, 0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0)
"""The upper bounds of the buckets, in seconds; the last bucket has none."""
BUCKETS = len(BOUNDS) + 1
OTHER = "_other"  # stands for all queues or tasks beyond the number that is counted apart
WORKER_SECONDS = 300  # how long the rows of each worker are kept apart
MINUTE_SECONDS = 86_400  # how long minutes are kept
TOTAL_SECONDS = 30 * 86_400  # how long totals are kept to which nothing is added
MINUTES_MAX = 20_000  # rows that one look at the history reads
TOTALS_MAX = 10_000  # rows of a kind that one look at the totals reads
NUMBER_MAX = 10**14  # as the tables allow, so that no row from elsewhere makes a merge fail


class MinuteFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which counts are read: of a ``queue`` and a ``task``, or of all; and whether queues and tasks
    are told apart or added up under the empty name."""

    queue: str | None = None
    task: str | None = None
    by_queue: bool = True
    by_task: bool = True


EVERY_MINUTE = MinuteFilter()


class CountKind(StrEnum):
    """The kinds of counts: ended attempts; workers found gone, by their cause of death; refused
    writes, by their verb."""

    ATTEMPT = "attempt"
    DEATH = "death"
    REFUSAL = "refusal"


class Counted(msgspec.Struct, kw_only=True):
    """The counts of one kind, queue, task and outcome.

    Attributes:
        jobs: how many; firsts: how many were the first attempt of their job.
        seconds, waited: how long they ran, and had been due before, all together.
        durations, waits: how many ran, and had been due, for at most each of BOUNDS and more than
            the one before; the last: for longer. An attempt that another worker has closed is in
            neither, since it is not known how long it ran.
    """

    kind: str
    queue: str = ""
    task: str = ""
    outcome: str = ""
    jobs: int = 0
    firsts: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    durations: list[int] = msgspec.field(default_factory=lambda: [0] * BUCKETS)
    waits: list[int] = msgspec.field(default_factory=lambda: [0] * BUCKETS)


class Ended(msgspec.Struct, frozen=True):
    """Attempts of one queue, task and outcome that have ended.

    Attributes:
        at: a time for each row that was read, in seconds since 1970, in no order. The next five
            have a number for each of them.
        jobs: how many attempts.
        seconds, waited: how long they ran, and had been due before, all together.
        ran, due: for how many of them that is known.
        durations, waits: how many ran, and had been due, for how long, over all rows: as
            ``Counted`` counts them.
    """

    queue: str
    task: str
    outcome: str
    at: list[int]
    jobs: list[int]
    seconds: list[float]
    waited: list[float]
    ran: list[float]
    due: list[float]
    durations: list[int]
    waits: list[int]


class Minutes(msgspec.Struct, frozen=True, kw_only=True):
    """Recent counts.

    Attributes:
        now: the store's now, in seconds since 1970.
        oldest: the time of the oldest row that was read; None: there was none.
        is_cut: whether there may be more before ``oldest``, since MINUTES_MAX rows were read.
        ended: by queue, task and outcome, in no order.
    """

    now: float
    oldest: int | None
    is_cut: bool
    ended: list[Ended]


_DURATIONS = [f"d{number}" for number in range(1, BUCKETS + 1)]
_WAITS = [f"w{number}" for number in range(1, BUCKETS + 1)]


def columns_of(counted: Counted) -> dict[str, Any]:
    """Return the counts by the names of the columns in outlast_minutes."""
    columns = msgspec.structs.asdict(counted)
    durations, waits = columns.pop("durations"), columns.pop("waits")
    buckets = zip((*_DURATIONS, *_WAITS), (*durations, *waits), strict=True)
    return columns | dict(buckets)


def counted_of(row: Mapping[str, Any]) -> Counted:
    """Return the counts of a row."""
    plain = {name: row[name] for name in Counted.__struct_fields__ if name in row}
    plain |= {"seconds": float(row["seconds"]), "waited": float(row["waited"])}
    return Counted(
        **plain,
        durations=[row[name] for name in _DURATIONS],
        waits=[row[name] for name in _WAITS],
    )


_KEY = ("level", "worker_id", "batch", "kind", "queue", "task", "outcome")
_NUMBERS = ("jobs", "firsts", "seconds", "waited", *_DURATIONS, *_WAITS)


async def merge(rows: Rows, most: int) -> int:
    """Add up the counts of workers, and drop old ones, at most ``most`` rows of each level; return
    how many were removed. In one transaction, in which no other merge runs."""
    taken = await rows("minutes", "take", level="worker", seconds=WORKER_SECONDS, most=most)
    sums: dict[tuple[Any, ...], Row] = {}
    for row in taken:
        minute = row["at"] - row["at"] % 60
        _add(sums, row | {"level": "minute", "worker_id": 0, "batch": minute, "at": minute})
        _add(sums, row | {"level": "total", "worker_id": 0, "batch": 0})
    if sums:
        for row in await rows("minutes", "take_sums", rows=list(sums.values())):
            _add(sums, row)
        await rows("minutes", "note", rows=list(sums.values()))
    for level, seconds in (("minute", MINUTE_SECONDS), ("total", TOTAL_SECONDS)):
        taken += await rows("minutes", "take", level=level, seconds=seconds, most=most)
    return len(taken)


def _add(sums: dict[tuple[Any, ...], Row], row: Row) -> None:
    key = tuple(row[name] for name in _KEY)
    if (mine := sums.get(key)) is not None:
        row = row | {name: min(NUMBER_MAX, mine[name] + row[name]) for name in _NUMBERS}
        row["at"] = max(mine["at"], row["at"])
    sums[key] = row
