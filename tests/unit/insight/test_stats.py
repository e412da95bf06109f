"""The document of ``outlast stats``: stable names, and numbers that say when they are cut."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from outlast.insight.stats import stats_document
from outlast.model.pause import Pause, PauseKind
from outlast.store.rows import WorkerStatus
from outlast.store.statistics import (
    STATISTICS_MAX,
    DueJobs,
    EndedJobs,
    QueueCount,
    ScheduledJobs,
    Statistics,
)
from tests.unit.insight.rows_kit import NOW, worker

EMPTY = Statistics(
    now=NOW, lanes=[], scheduled=[], running=[], suspects=[], blocked=[], dead=[], ended=[]
)


def statistics(**changes: Any) -> Statistics:
    return msgspec.structs.replace(EMPTY, **changes)


def lane(queue: str = "a", task: str = "render", number: int = 1, age: float = 5.0) -> DueJobs:
    return DueJobs(queue=queue, task=task, number=number, oldest=NOW - age)


def ended(queue: str, state: str, number: int, minute: int = 0, hour: int = 0) -> EndedJobs:
    return EndedJobs(queue=queue, state=state, number=number, minute=minute, hour=hour)


def test_an_empty_store_is_a_document_too() -> None:
    document = stats_document(EMPTY, [])
    assert document == {
        "schema": 1,
        "queues": [],
        "more_lanes": False,
        "unservable": [],
        "limits": [],
        "pauses": [],
        "workers": {"active": 0, "draining": 0, "stopped": 0, "lost": 0},
        "ill": {"dead": 0, "silent": 0, "failing": 0, "running": 0},
        "wakeups": {},
        "deactivations": {"hour": 0, "day": 0},
        "refusals": {"day": 0},
        "completed": {"minute": 0, "hour": 0, "at_least": []},
    }
    json.dumps(document)


def test_a_queue_is_the_sum_of_its_lanes_and_of_what_waits() -> None:
    found = statistics(
        lanes=[lane(number=4, age=60.0), lane(task="mail", number=2, age=9.0), lane("b")],
        scheduled=[ScheduledJobs("a", 4), ScheduledJobs("c", 1)],
        running=[QueueCount("a", 7)],
        suspects=[QueueCount("a", 2)],
        blocked=[QueueCount("a", 8)],
        dead=[QueueCount("b", 5)],
        ended=[ended("a", "completed", 9, 1, 6), ended("a", "cancelled", 3, 3, 3)],
    )
    document = stats_document(found, [])
    a, b, c = document["queues"]
    assert a == {
        "queue": "a",
        "queued": 12,
        "due": 6,
        "paused": 0,
        "scheduled": 4,
        "suspects": 2,
        "blocked": 8,
        "running": 7,
        "completed": 9,
        "cancelled": 3,
        "dead": 0,
        "oldest_due_seconds": 60.0,
        "at_least": [],
    }
    assert (b["due"], b["dead"], b["oldest_due_seconds"]) == (1, 5, 5.0)
    assert (c["queued"], c["oldest_due_seconds"]) == (1, None)
    assert document["completed"] == {"minute": 1, "hour": 6, "at_least": []}


def test_numbers_that_stopped_at_their_bound_say_so() -> None:
    full = STATISTICS_MAX
    found = statistics(
        lanes=[lane(number=full), lane("b")],
        running=[QueueCount("a", full - 1), QueueCount("b", 1)],
        ended=[ended("b", "completed", full, 10, full)],
    )
    document = stats_document(found, [])
    a, b = document["queues"]
    assert a["at_least"] == ["cancelled", "completed", "due", "queued", "running"]
    assert b["at_least"] == ["cancelled", "completed", "running"]
    assert document["completed"]["at_least"] == ["hour"]
    assert document["unservable"][0]["at_least"] is True


def test_lanes_that_no_live_worker_takes_are_named_with_why() -> None:
    found = statistics(lanes=[lane(), lane(task="mail"), lane("b"), lane("b", "gpu", 4)])
    workers = [worker(queues=["a"], lacks={"gpu": ["gpu"]})]
    document = stats_document(found, workers)
    assert [(one["queue"], one["task"], one["reason"]) for one in document["unservable"]] == [
        ("a", "mail", "unservable"),
        ("b", "render", "queue_not_served"),
        ("b", "gpu", "lacks_tags"),
    ]
    assert set(document["unservable"][0]) == {"queue", "task", "due", "at_least", "reason"}
    gone = stats_document(found, [worker(unheard=100.0)])
    assert {one["reason"] for one in gone["unservable"]} == {"no_workers"}


def test_a_worker_whose_wakeups_come_late_has_wakeups() -> None:
    words = ["file", "file; looks often: why", "file: broken; gone", "notify", None]
    workers = [worker(n, wakeup=each) for n, each in enumerate(words)]
    assert stats_document(EMPTY, workers)["wakeups"] == {
        "file": {"ready": 2, "lost": 1},
        "notify": {"ready": 1, "lost": 0},
    }


def test_lost_workers_are_counted_by_when() -> None:
    lost = {"status": WorkerStatus.LOST}
    workers = [
        worker(1),
        worker(2, **lost, stopped_at=NOW - 60),
        worker(3, **lost, stopped_at=NOW - 7_000),
        worker(4, **lost, stopped_at=NOW - 90_000),
        worker(5, status=WorkerStatus.STOPPED, stopped_at=NOW - 60),
    ]
    document = stats_document(EMPTY, workers)
    assert document["workers"] == {"active": 1, "draining": 0, "stopped": 1, "lost": 3}
    assert document["deactivations"] == {"hour": 1, "day": 2}


def test_what_is_due_in_a_paused_lane_counts_as_paused() -> None:
    paused = Pause(id=1, kind=PauseKind.TASK, name="mail", paused_at=NOW, reason="it burns")
    found = statistics(lanes=[lane(number=3), lane(task="mail", number=2, age=9.0)])
    document = stats_document(found, [], [paused])
    (a,) = document["queues"]
    assert (a["due"], a["paused"], a["queued"], a["oldest_due_seconds"]) == (3, 2, 5, 5.0)
    (shown,) = document["pauses"]
    assert (shown["kind"], shown["name"], shown["reason"]) == ("task", "mail", "it burns")
