"""What a look becomes on the page."""

from __future__ import annotations

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from outlast.insight.availability import ASLEEP
from outlast.metrics.collector import LIMITS_MAX, Names
from outlast.model.pause import Pause, PauseKind
from outlast.store.limits import LimitRow
from outlast.store.rows import WorkerStatus
from outlast.store.statistics import DueJobs, QueueCount
from tests.cases import each_case
from tests.metrics.kit import NOW, counted, full_look, page_of, samples, statistics, value, worker


def replaced(**fields):
    return msgspec.structs.replace(full_look(), **fields)


def test_jobs_are_shown_by_queue_and_state() -> None:
    page = page_of(full_look())
    states = {
        "due": 3,
        "scheduled": 2,
        "suspect": 4,
        "paused": 0,
        "blocked": 6,
        "running": 1,
        "dead": 5,
    }
    for state, number in states.items():
        assert value(page, "outlast_jobs", queue="q", state=state) == number
        assert value(page, "outlast_jobs_at_least", queue="q", state=state) == 0
    assert value(page, "outlast_queue_oldest_due_seconds", queue="q") == 30
    assert value(page, "outlast_unservable_jobs", queue="q", task="t", reason="unservable") == 3


def test_a_count_at_its_bound_says_so() -> None:
    numbers = statistics(
        lanes=[DueJobs(queue="q", task="t", number=100, oldest=NOW)],
        dead=[QueueCount("q", 99)],
        most=100,
    )
    page = page_of(replaced(statistics=numbers))
    assert value(page, "outlast_jobs_at_least", queue="q", state="due") == 1
    assert value(page, "outlast_jobs_at_least", queue="q", state="dead") == 0


def test_what_is_paused_is_not_due() -> None:
    pause = Pause(id=1, kind=PauseKind.QUEUE, name="q", paused_at=NOW)
    page = page_of(replaced(pauses=[pause]))
    assert value(page, "outlast_jobs", queue="q", state="due") == 0
    assert value(page, "outlast_jobs", queue="q", state="paused") == 3
    assert value(page, "outlast_queue_oldest_due_seconds", queue="q") == 0


def test_limits_are_shown_by_name_alone() -> None:
    page = page_of(full_look())
    for limit, numbers in {"api": (3, 7, 0), "gone": (0, 2, 1), "rate": (1, 0, 0)}.items():
        names = ("running", "waiting", "waiting_at_least")
        assert numbers == tuple(value(page, f"outlast_limit_{n}", limit=limit) for n in names)
    assert list(samples(page)["outlast_limit_cap"].values()) == [20, 0]
    rows = [LimitRow(name=f"{n:03}", running=1, used=1, waiting=1) for n in range(LIMITS_MAX + 2)]
    page = page_of(replaced(statistics=statistics(limits=rows)))
    assert len(samples(page)["outlast_limit_running"]) == LIMITS_MAX + 1
    assert value(page, "outlast_limit_waiting", limit="_other") == 2
    assert len(samples(page)["outlast_limit_cap"]) == LIMITS_MAX


def test_workers_are_shown_by_what_is_known_of_them() -> None:
    workers = [
        worker(1),
        worker(2, status=WorkerStatus.DRAINING),
        worker(3, unheard=61.0),
        worker(4, lock_free=True),
        worker(5, failing="exchange: broken"),
        worker(6, status=WorkerStatus.LOST),
        worker(7, status=WorkerStatus.STOPPED),
        worker(8, status=WorkerStatus.STOPPED, cause=ASLEEP, lease_expires_at=NOW + 1),
        worker(9, status=WorkerStatus.STOPPED, cause=ASLEEP, lease_expires_at=NOW - 1),
    ]
    page = page_of(replaced(workers=workers))
    for status in ("active", "draining", "silent", "dead", "failing", "asleep"):
        assert value(page, "outlast_workers", status=status) == 1
    assert len(samples(page)["outlast_workers"]) == 6


def test_a_store_without_workers_says_zero() -> None:
    page = page_of(replaced(workers=[], totals=[]))
    assert value(page, "outlast_workers", status="active") == 0
    assert value(page, "outlast_worker_deaths_total", cause="silence") == 0
    assert value(page, "outlast_refusals_total", verb="end") == 0


def test_workers_that_are_not_woken_are_shown_by_kind() -> None:
    page = page_of(full_look())
    assert value(page, "outlast_wakeups_lost", kind="nats") == 1
    assert value(page, "outlast_wakeups_lost", kind="notify") == 0


def test_counters_add_up_outcomes_and_histograms_their_buckets() -> None:
    page = page_of(full_look())
    lane = {"queue": "q", "task": "t"}
    assert value(page, "outlast_jobs_enqueued_total", **lane) == 5
    assert value(page, "outlast_attempts_total", **lane, outcome="completed") == 3
    assert value(page, "outlast_attempts_total", **lane, outcome="error") == 2
    assert value(page, "outlast_attempt_duration_seconds_sum", **lane) == 1.0
    assert value(page, "outlast_job_wait_seconds_sum", **lane) == 0.5
    for name in ("outlast_attempt_duration_seconds", "outlast_job_wait_seconds"):
        assert value(page, f"{name}_count", **lane) == 5
        assert value(page, f"{name}_bucket", **lane, le="0.01") == 5
        assert value(page, f"{name}_bucket", **lane, le="+Inf") == 5
    assert value(page, "outlast_worker_deaths_total", cause="silence") == 1
    assert value(page, "outlast_refusals_total", verb="end") == 1


def test_a_bucket_has_the_sum_of_those_before_it() -> None:
    durations = list(range(1, 12))
    page = page_of(replaced(totals=[counted(66, durations=durations)]))
    series = samples(page)["outlast_attempt_duration_seconds_bucket"]
    assert list(series.values()) == [sum(durations[: end + 1]) for end in range(11)]


def test_names_above_the_bound_are_added_up_as_others() -> None:
    queues, tasks = Names(2), Names(1)
    totals = [counted(1, queue=f"q{number}", task=f"t{number}") for number in range(5)]
    lanes = [DueJobs(queue=f"q{number}", task="t0", number=1, oldest=NOW) for number in range(5)]
    look = replaced(totals=totals, statistics=statistics(lanes=lanes))
    page = page_of(look, queues, tasks)
    attempts = samples(page)["outlast_attempts_total"]
    assert len(attempts) == 3
    assert sum(attempts.values()) == 5
    other = {"queue": "_other", "task": "_other"}
    assert value(page, "outlast_attempts_total", **other, outcome="completed") == 3
    assert value(page, "outlast_jobs", queue="_other", state="due") == 3
    later = replaced(totals=[counted(9, queue="a"), *totals], statistics=statistics(lanes=lanes))
    again = samples(page_of(later, queues, tasks))["outlast_attempts_total"]
    assert all(again[series] >= number for series, number in attempts.items())  # none falls


HOSTILE = ['a"b', "a\\b", "a\nb", "a\x00b", "\ud800", "{}", "x" * 10_000, "ключ", "", " "]


@each_case("name", HOSTILE)
def test_any_name_makes_a_page_that_can_be_read(name: str) -> None:
    totals = [counted(1, queue=name, task=name), counted(1, queue=f"{name} ", task=name)]
    lanes = [DueJobs(queue=name, task=name, number=1, oldest=NOW)]
    page = page_of(replaced(totals=totals, statistics=statistics(lanes=lanes)))
    page.encode()
    assert sum(samples(page)["outlast_attempts_total"].values()) == 2
    assert all(len(line) < 1_000 for line in page.splitlines())


def test_no_label_is_of_a_kind_without_a_bound() -> None:
    bounded = {"queue", "task", "state", "reason", "status", "kind", "outcome", "cause", "verb"}
    families = text_string_to_metric_families(page_of(full_look()))
    labels = {name for each in families for one in each.samples for name in one.labels}
    assert labels == bounded | {"limit", "le", "version"}


def test_a_store_that_is_away_shows_that_and_nothing_old() -> None:
    page = page_of(None)
    assert value(page, "outlast_store_up") == 0
    assert value(page, "outlast_last_look_timestamp_seconds") == NOW
    assert set(samples(page)) == {
        "outlast_store_up", "outlast_last_look_timestamp_seconds", "outlast_build_info",
    }  # fmt: skip
