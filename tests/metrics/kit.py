"""Looks that no store has shown, and pages read back by a client's parser."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from outlast.metrics.collector import QUEUES_MAX, TASKS_MAX, Look, LookCollector, Names
from outlast.metrics.exporter import render
from outlast.store.limits import LimitRow
from outlast.store.minutes import BUCKETS, Counted, CountKind
from outlast.store.rows import WorkerRow, WorkerStatus
from outlast.store.statistics import DueJobs, QueueCount, ScheduledJobs, Statistics

NOW = 1_000.0


def statistics(**fields: Any) -> Statistics:
    """Numbers of a store; none, unless given."""
    names = ("lanes", "scheduled", "running", "suspects", "blocked", "dead", "ended")
    values: dict[str, Any] = {name: [] for name in names}
    return Statistics(**{"now": NOW, **values, **fields})


def worker(number: int = 1, **fields: Any) -> WorkerRow:
    """A worker that is well."""
    values: dict[str, Any] = {
        "id": number, "name": f"w{number}", "host": "h", "pid": 1, "status": WorkerStatus.ACTIVE,
        "epoch": 1, "beat": 1, "heartbeat": 1.0, "lease": 60.0, "queues": [], "tasks": ["t"],
        "running": 0, "started_at": 0.0, "heartbeat_at": NOW, "lease_expires_at": NOW + 60,
        "wakeup": "notify", "boot_id": "", "unheard": 0.0,
    }  # fmt: skip
    return WorkerRow(**{**values, **fields})


def counted(jobs: int = 1, **fields: Any) -> Counted:
    """Attempts that ran and had waited for 0.01 s at most."""
    buckets = [jobs, *[0] * (BUCKETS - 1)]
    values: dict[str, Any] = {"kind": CountKind.ATTEMPT, "queue": "q", "task": "t"}
    values |= {"outcome": "completed", "firsts": jobs, "seconds": 0.5, "waited": 0.25}
    values |= {"durations": buckets, "waits": buckets}
    return Counted(jobs=jobs, **{**values, **fields})


def full_look() -> Look:
    """A look with something of each kind."""
    return Look(
        statistics=statistics(
            lanes=[DueJobs(queue="q", task="t", number=3, oldest=NOW - 30.0)],
            scheduled=[ScheduledJobs("q", 2)],
            running=[QueueCount("q", 1)],
            suspects=[QueueCount("q", 4)],
            blocked=[QueueCount("q", 6)],
            dead=[QueueCount("q", 5)],
            limits=[
                LimitRow(name="api", running=20, used=3, waiting=7),
                LimitRow(name="gone", running=0, waiting=2, at_least=["waiting"]),
                LimitRow(name="rate", spacing=0.1, used=1),
            ],
        ),
        workers=[worker(tasks=["another"]), worker(2, tasks=[], wakeup="nats: no server")],
        pauses=[],
        totals=[
            counted(3),
            counted(2, outcome="error"),
            counted(kind=CountKind.DEATH, queue="", task="", outcome="silence"),
            counted(kind=CountKind.REFUSAL, queue="", task="", outcome="end"),
        ],
    )


def page_of(look: Look | None, queues: Names | None = None, tasks: Names | None = None) -> str:
    """The page of a look."""
    queues, tasks = queues or Names(QUEUES_MAX), tasks or Names(TASKS_MAX)
    collector = None if look is None else LookCollector(look, queues, tasks)
    return render(collector, NOW).decode()


def samples(page: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Values by name and labels. A series that comes twice is an error."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            series = found.setdefault(sample.name, {})
            labels = tuple(sorted(sample.labels.items()))
            assert labels not in series, (sample.name, labels)
            series[labels] = sample.value
    return found


def value(page: str, name: str, **labels: str) -> float:
    """One value."""
    return samples(page)[name][tuple(sorted(labels.items()))]
