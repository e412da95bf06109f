"""Make one document of a store's statistics: queues, jobs that no worker takes, workers, speed.
``read_overview`` reads it for the first page, with the workers and pauses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from outlast.insight.availability import health, list_alive, list_untaken
from outlast.insight.queries import read_workers
from outlast.insight.resource import SCHEMA, Document, Resource, document_type
from outlast.model.pause import Pause, Pauses
from outlast.store.inspector import ReadableStore
from outlast.store.limits import LimitRow
from outlast.store.rows import WorkerRow, WorkerStatus
from outlast.store.statistics import EndedJobs, QueueCount, Statistics

HOUR, DAY = 3_600.0, 86_400.0
COUNTS = (
    "due",
    "paused",
    "scheduled",
    "suspects",
    "blocked",
    "running",
    "completed",
    "cancelled",
    "dead",
)
_QUEUED = {"due", "paused", "scheduled", "suspects"}


SHORT_PAUSE = Resource(
    "ShortPause",
    Pause,
    "kind name reason paused_at paused_by",
    name=(str | None, lambda pause: pause.name or None),
)
STATS = {
    "queues": [
        document_type(
            "QueueCounts",
            {
                **dict.fromkeys(("queued", *COUNTS), int),
                "queue": str,
                "oldest_due_seconds": float | None,
                "at_least": list[str],
            },
        )
    ],
    "more_lanes": bool,
    "unservable": [
        document_type(
            "Unservable",
            {"queue": str, "task": str, "due": int, "at_least": bool, "reason": str},
        )
    ],
    "limits": [document_type("Waited", {"limit": str, "waiting": int, "at_least": bool})],
    "pauses": [SHORT_PAUSE],
    **dict.fromkeys(("workers", "ill", "deactivations", "refusals"), dict[str, int]),
    "wakeups": dict[str, dict[str, int]],
    "completed": document_type("Completed", {"minute": int, "hour": int, "at_least": list[str]}),
}
"""The types in the document of ``outlast stats``."""


def stats_document(
    statistics: Statistics, workers: Sequence[WorkerRow], pauses: Sequence[Pause] = ()
) -> Document:
    """Return the statistics as one JSON document. Due jobs of a paused queue or task count as
    ``paused``; jobs of a paused tenant are not distinguished. ``limits``: the limits that due jobs
    wait for. ``more_lanes``: there are more lanes, perhaps of other queues, than were read."""
    return {
        "schema": SCHEMA,
        "queues": _queues(statistics, Pauses(pauses)),
        "more_lanes": statistics.more_lanes,
        "unservable": _unservable(statistics, workers, Pauses(pauses)),
        "limits": [_limit(row) for row in statistics.limits if row.waiting],
        "pauses": [SHORT_PAUSE.document(each) for each in pauses],
        "workers": {
            status.value: sum(one.status is status for one in workers) for status in WorkerStatus
        },
        "ill": _ill(workers),
        "wakeups": _wakeups(workers),
        "deactivations": {
            "hour": _lost(workers, statistics.now - HOUR),
            "day": _lost(workers, statistics.now - DAY),
        },
        "refusals": {"day": statistics.refused},
        "completed": _completed(statistics),
    }


def _ill(workers: Sequence[WorkerRow]) -> Document:
    """Return how many workers are not well though their rows mark them alive, and how many jobs are
    marked as running on workers that are dead or silent."""
    judged = [(one, health(one)) for one in workers]
    counts: Document = {
        word: sum(standing == word for _, standing in judged)
        for word in ("dead", "silent", "failing")
    }
    gone = sum(one.running for one, standing in judged if standing not in {"well", "failing"})
    return counts | {"running": gone}


def _wakeups(workers: Sequence[WorkerRow]) -> Document:
    """Return how many live workers are woken, and how many have to poll, by the kind of wake-up."""
    live = list_alive(workers)
    told = [one.wakeup.partition(";")[0] for one in live if one.wakeup is not None]  # without notes
    kinds = sorted({words.partition(":")[0] for words in told})
    return {
        kind: {"ready": told.count(kind), "lost": sum(w.startswith(f"{kind}:") for w in told)}
        for kind in kinds
    }


def _completed(statistics: Statistics) -> Document:
    """Return how many jobs completed lately; ``at_least`` as in ``_queues``."""
    spans = ("minute", "hour")
    done = [one for one in statistics.ended if one.state == "completed"]
    numbers: Document = {span: sum(getattr(one, span) for one in done) for span in spans}
    kept = sum(one.kept for one in statistics.ended)  # if these are cut, later ones may be missing
    whole = {span: sum(getattr(one, span) for one in statistics.ended) for span in spans}
    full = [span for span in spans if max(kept, whole[span]) >= statistics.most]
    return numbers | {"at_least": full}


def _limit(row: LimitRow) -> Document:
    return {"limit": row.name, "waiting": row.waiting, "at_least": "waiting" in row.at_least}


def _queues(statistics: Statistics, pauses: Pauses) -> list[Document]:
    """Return one entry per queue. ``at_least`` names the counts that stopped at their bound."""
    counts: dict[str, dict[str, int]] = {}
    bounded: dict[str, set[str]] = {}
    oldest: dict[str, float] = {}

    def add(queue: str, name: str, number: int, *, at_least: bool = False) -> None:
        mine = counts.setdefault(queue, dict.fromkeys(COUNTS, 0))
        mine[name] += number
        if at_least or number >= statistics.most:
            bounded.setdefault(queue, set()).add(name)

    for lane in statistics.lanes:
        if pauses.find(lane.queue, lane.task, None) is not None:
            add(lane.queue, "paused", lane.number, at_least=lane.at_least)
            continue
        add(lane.queue, "due", lane.number, at_least=lane.at_least)
        oldest[lane.queue] = min(lane.oldest, oldest.get(lane.queue, lane.oldest))
    for wait in statistics.scheduled:
        add(wait.queue, "scheduled", wait.number, at_least=wait.at_least)
    for name in ("running", "suspects", "blocked", "dead"):
        for one in getattr(statistics, name):
            add(one.queue, name, one.number)
    for end in statistics.ended:
        add(end.queue, end.state, end.number)
    shared, found = _scanned(statistics), []
    for queue in sorted(counts):
        mine, since = counts[queue], oldest.get(queue)
        full = bounded.get(queue, set()) | shared
        found.append(
            {
                "queue": queue,
                "queued": sum(mine[name] for name in _QUEUED),
                **mine,
                "oldest_due_seconds": None if since is None else max(0.0, statistics.now - since),
                "at_least": sorted(full | ({"queued"} if full & _QUEUED else set())),
            }
        )
    return found


def _scanned(statistics: Statistics) -> set[str]:
    """Return the counts that stopped at the bound that all queues share."""

    def is_full(numbers: Iterable[QueueCount | EndedJobs]) -> bool:
        return sum(one.number for one in numbers) >= statistics.most

    full = {
        n for n in ("running", "suspects", "blocked", "dead") if is_full(getattr(statistics, n))
    }
    return full | ({"completed", "cancelled"} if is_full(statistics.ended) else set())


def _unservable(
    statistics: Statistics, workers: Sequence[WorkerRow], pauses: Pauses
) -> list[Document]:
    """Return the lanes that no live worker takes jobs from, and why (a position of ``why``)."""
    live = list_alive(workers)
    return [
        {
            "queue": lane.queue,
            "task": lane.task,
            "due": lane.number,
            "at_least": lane.at_least or lane.number >= statistics.most,
            "reason": reason,
        }
        for lane, reason in list_untaken(statistics.lanes, live, pauses)
    ]


def _lost(workers: Iterable[WorkerRow], since: float) -> int:
    return sum(
        one.status is WorkerStatus.LOST and one.stopped_at is not None and one.stopped_at > since
        for one in workers
    )


class Overview(msgspec.Struct, frozen=True):
    """The contents of a store and its workers. ``stats`` is the document of ``outlast stats``."""

    stats: Document
    statistics: Statistics
    workers: Sequence[WorkerRow]
    pauses: Sequence[Pause]


async def read_overview(store: ReadableStore) -> Overview:
    """Read the overview: each number by an index, and bounded."""
    statistics = await store.inspector.statistics()
    workers, pauses = await read_workers(store), await store.inspector.pauses()
    return Overview(stats_document(statistics, workers, pauses), statistics, workers, pauses)
