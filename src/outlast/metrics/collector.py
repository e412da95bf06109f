"""Read a store, and turn that into metric families: the names in docs/metrics.md, and no others.

No label ever holds a worker, a host, a tenant, an id, a key or a message: their number has no
bound. The read is bounded, and touches no payload.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from outlast.base.text import line
from outlast.insight.availability import health, sleeps
from outlast.insight.queries import read_workers
from outlast.insight.stats import stats_document
from outlast.model.lease import DeathCause
from outlast.model.pause import Pause
from outlast.store.minutes import BOUNDS, BUCKETS, OTHER, Counted, CountKind
from outlast.store.protocol import Store
from outlast.store.rows import WorkerRow
from outlast.store.statistics import Statistics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

STATES = {
    "due": "due",
    "scheduled": "scheduled",
    "suspect": "suspects",
    "paused": "paused",
    "blocked": "blocked",
    "running": "running",
    "dead": "dead",
}
QUEUES_MAX, TASKS_MAX, LIMITS_MAX = 200, 500, 200
NAME_MAX = 200  # characters of a name


"""State in a label -> the name of the count in the statistics."""
STATUSES = ("active", "draining", "failing", "silent", "dead", "asleep")
VERBS = ("end", "checkpoint")
Labels = tuple[str, ...]


class LookCollector:
    """The values of one read, to be collected once. ``queues``, ``tasks``: names with labels."""

    def __init__(self, look: Look, queues: Names, tasks: Names) -> None:
        self._look = look
        self._queues, self._tasks = queues, tasks
        numbers = look.statistics
        self._stats = stats_document(numbers, look.workers, look.pauses)

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        yield from self._jobs()
        yield from self._limits()
        yield from self._workers()
        yield from self._totals()

    def _jobs(self) -> Iterator[Metric]:
        jobs: Counter[Labels] = Counter()
        at_least: dict[Labels, int] = {}
        oldest: dict[Labels, float] = {}
        for row in self._stats["queues"]:
            queue = self._queues.label(row["queue"])
            for state, name in STATES.items():
                jobs[queue, state] += row[name]
                is_bounded = name in row["at_least"] or bool(at_least.get((queue, state)))
                at_least[queue, state] = int(is_bounded)
            seconds = row["oldest_due_seconds"] or 0.0
            oldest[queue,] = max(oldest.get((queue,), 0.0), seconds)
        yield _gauge("outlast_jobs", "Jobs by queue and state.", ("queue", "state"), jobs)
        yield _gauge(
            "outlast_jobs_at_least",
            "1 where outlast_jobs stopped counting at its bound: there may be more.",
            ("queue", "state"),
            at_least,
        )
        yield _gauge(
            "outlast_queue_oldest_due_seconds",
            "How long the oldest due job has been due; 0 if no job is due.",
            ("queue",),
            oldest,
        )
        yield self._unservable()

    def _unservable(self) -> Metric:
        unservable: Counter[Labels] = Counter()
        for row in self._stats["unservable"]:
            labels = (self._queues.label(row["queue"]), self._tasks.label(row["task"]))
            unservable[*labels, row["reason"]] += row["due"]
        words = "Due jobs that no worker takes, and why: a position of `outlast why`."
        return _gauge("outlast_unservable_jobs", words, ("queue", "task", "reason"), unservable)

    def _limits(self) -> Iterator[Metric]:
        names = Names(LIMITS_MAX)
        running: Counter[Labels] = Counter()
        waiting: Counter[Labels] = Counter()
        at_least: Counter[Labels] = Counter()
        caps: dict[Labels, int] = {}
        for row in self._look.statistics.limits:
            label = (names.label(row.name),)
            running[label] += row.used
            waiting[label] += row.waiting
            at_least[label] |= "waiting" in row.at_least
            if row.running is not None and label != (OTHER,):
                caps[label] = row.running
        words = "Attempts that run under a limit, of all its keys."
        yield _gauge("outlast_limit_running", words, ("limit",), running)
        words = "How many attempts may run at once under a limit: of each key, where it has keys."
        yield _gauge("outlast_limit_cap", words, ("limit",), caps)
        words = "Due jobs that wait for a limit."
        yield _gauge("outlast_limit_waiting", words, ("limit",), waiting)
        words = "1 where outlast_limit_waiting stopped counting at its bound: there may be more."
        yield _gauge("outlast_limit_waiting_at_least", words, ("limit",), at_least)

    def _workers(self) -> Iterator[Metric]:
        now = self._look.statistics.now
        statuses = Counter(dict.fromkeys([(status,) for status in STATUSES], 0))
        for one in self._look.workers:
            standing = health(one)
            if standing != "gone":
                statuses[one.status.value if standing == "well" else standing,] += 1
        statuses["asleep",] = len({one.name for one in self._look.workers if sleeps(one, now)})
        words = "Workers with a live row in the store, by what is known of them."
        yield _gauge("outlast_workers", words, ("status",), statuses)
        lost = {(kind,): row["lost"] for kind, row in self._stats["wakeups"].items()}
        words = "Live workers that are not woken and have to poll, by the kind of wake-up."
        yield _gauge("outlast_wakeups_lost", words, ("kind",), lost)

    def _totals(self) -> Iterator[Metric]:
        found = self._look.totals
        attempts = [each for each in found if each.kind == CountKind.ATTEMPT]
        yield from self._attempts(attempts)
        yield from self._histograms(attempts)
        deaths = _by_outcome(found, CountKind.DEATH, [each.value for each in DeathCause])
        words = "Workers that another worker found gone, by the evidence."
        yield _counter("outlast_worker_deaths", words, ("cause",), deaths)
        refusals = _by_outcome(found, CountKind.REFUSAL, VERBS)
        words = "Writes of workers that the store refused, since another attempt had taken over."
        yield _counter("outlast_refusals", words, ("verb",), refusals)

    def _lane(self, counted: Counted) -> Labels:
        return self._queues.label(counted.queue), self._tasks.label(counted.task)

    def _attempts(self, attempts: Iterable[Counted]) -> Iterator[Metric]:
        enqueued: Counter[Labels] = Counter()
        ended: Counter[Labels] = Counter()
        for each in attempts:
            lane = self._lane(each)
            enqueued[lane] += each.firsts
            ended[*lane, each.outcome] += each.jobs
        words = "Enqueued jobs; one is counted when its first attempt has ended."
        yield _counter("outlast_jobs_enqueued", words, ("queue", "task"), enqueued)
        words = "Attempts that have ended, by outcome."
        yield _counter("outlast_attempts", words, ("queue", "task", "outcome"), ended)

    def _histograms(self, attempts: Sequence[Counted]) -> Iterator[Metric]:
        for name, words, sums, buckets in (
            ("outlast_attempt_duration_seconds", "How long attempts ran.", "seconds", "durations"),
            ("outlast_job_wait_seconds", "How long jobs had been due.", "waited", "waits"),
        ):
            family = HistogramMetricFamily(name, words, labels=("queue", "task"))
            counts: dict[Labels, list[int]] = {}
            totals: Counter[Any] = Counter()
            for each in attempts:
                lane = self._lane(each)
                mine = counts.setdefault(lane, [0] * BUCKETS)
                counts[lane] = [a + b for a, b in zip(mine, getattr(each, buckets), strict=True)]
                totals[lane] += getattr(each, sums)
            for lane, numbers in counts.items():
                family.add_metric(lane, _cumulate(numbers), totals[lane])
            yield family


def _cumulate(numbers: Sequence[int]) -> list[tuple[str, float]]:
    bounds = [*map(floatToGoString, BOUNDS), "+Inf"]
    return list(zip(bounds, accumulate(map(float, numbers)), strict=True))


def _by_outcome(
    found: Iterable[Counted], kind: CountKind, known: Iterable[str]
) -> dict[Labels, float]:
    """Return the numbers of a kind, 0 for a known outcome: a rate then sees its first count."""
    counts: Counter[Labels] = Counter(dict.fromkeys([(each,) for each in known], 0))
    for each in found:
        if each.kind == kind:
            counts[each.outcome,] += each.jobs
    return dict(counts)


def _gauge(name: str, words: str, labels: Labels, values: Mapping[Any, Any]) -> Metric:
    return _fill(GaugeMetricFamily(name, words, labels=labels), values)


def _counter(name: str, words: str, labels: Labels, values: Mapping[Any, Any]) -> Metric:
    return _fill(CounterMetricFamily(name, words, labels=labels), values)


def _fill(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[Any, Any]) -> Metric:
    for key, value in values.items():
        family.add_metric(key, value)
    return family


class Names:
    """The names with a label of their own, since each is a series: the first that were seen, as
    long as the program runs, so that no counter falls because another name came first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def label(self, name: str) -> str:
        """Return the label of a name: itself, made safe, or ``_other``."""
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= self._most:
                return OTHER
            known = self._known[name] = line(name, NAME_MAX)
        return known


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one read; ``totals``: the workers' counts since the store was made."""

    statistics: Statistics
    workers: list[WorkerRow]
    pauses: list[Pause]
    totals: list[Counted]


async def read_look(store: Store) -> Look:
    """Read the store. Raises StoreError if it cannot be read."""
    inspector = store.inspector
    return Look(
        statistics=await inspector.statistics(),
        workers=await read_workers(store),
        pauses=await inspector.pauses(),
        totals=await inspector.totals(),
    )
