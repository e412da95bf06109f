"""``/``: show what needs attention, then the queues. If all is well, one sentence says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from starlette.responses import Response

from outlast.base.text import count_of
from outlast.insight.deaths import DeathGroup, read_largest_groups
from outlast.insight.doctor.facts import Facts, Locks
from outlast.insight.doctor.findings import SCHEDULES, WORKERS
from outlast.insight.history import Series, read_last_hour
from outlast.insight.queries import read_workers
from outlast.insight.stats import Overview, read_overview
from outlast.store.finding import Finding, Level, judge
from outlast.store.protocol import Store
from outlast.web.endpoint import Endpoints
from outlast.web.tasks import describe_quantile
from outlast.web.visit import Visit

ENDPOINTS = Endpoints()
SCHEDULES_MAX = 500  # by name
DEATHS_SHOWN = 3  # groups of dead jobs
SLOW_SECONDS = 30.0  # for which data that changes once a minute is kept
SERIOUS = (Level.PROBLEM, Level.WARNING)


@ENDPOINTS.at("/", by_tenant=True)
async def show_overview(visit: Visit) -> Response:
    """Show the first page, which is about all tenants; to users of one tenant, show their jobs."""
    if visit.access.tenant is not None:
        return visit.go("/jobs")
    seen = await visit.ask("overview", read_overview)
    of_schedules = await visit.ask(
        "schedules judged", lambda store: _judge_schedules(store, visit.now), SLOW_SECONDS
    )
    findings = group_findings(
        one for one in [*find_troubles(seen, visit.now), *of_schedules] if one.level in SERIOUS
    )
    hour, lately = await read_lately(visit)
    deaths: list[DeathGroup] = []
    if any(one.name == "dead_jobs" for one in findings):
        deaths = await visit.ask(
            "largest deaths", lambda store: read_largest_groups(store, DEATHS_SHOWN), SLOW_SECONDS
        )
    return visit.show(
        "overview.html",
        findings=findings,
        deaths=deaths,
        queues=seen.stats["queues"],
        hour=hour,
        quantile=describe_quantile,
        lately=lately,
        workers=seen.stats["workers"],
        more_lanes=seen.stats["more_lanes"],
    )


async def read_lately(visit: Visit) -> tuple[Series | None, dict[str, Series]]:
    """Return the attempts of the last hour, all together and by queue."""
    together, by_queue = await visit.ask("last hour", read_last_hour, SLOW_SECONDS)
    return together, {each.name: each for each in by_queue.series}


async def _judge_schedules(store: Store, now: float) -> list[Finding]:
    """Return the doctor's findings on schedules: it examines the ticks of a whole year."""
    rows, workers = await store.inspector.schedules(SCHEDULES_MAX), await read_workers(store)
    facts = Facts(place="", now=now, locks=Locks(path=""), schedules=rows, workers=workers)
    return [*judge(SCHEDULES, facts)]


def find_troubles(seen: Overview, now: float) -> Iterator[Finding]:
    """Yield the doctor's findings on workers and jobs, and a finding on jobs that have died."""
    facts = Facts(
        place="",
        now=now,
        locks=Locks(path=""),
        workers=list(seen.workers),
        pauses=list(seen.pauses),
        statistics=seen.statistics,
    )
    yield from judge(WORKERS, facts)
    died = sum(one.number for one in seen.statistics.dead)
    if died:
        yield Finding(
            level=Level.WARNING,
            name="dead_jobs",
            sentence=f"{count_of(died, 'job')} {'is' if died == 1 else 'are'} dead.",
            fix="See why they died; then requeue or discard them.",
        )


ORDER = [Level.PROBLEM, Level.WARNING, Level.HINT, Level.OK]
PAGES: dict[str, tuple[str, str]] = {
    "dead_jobs": ("/dead", "Dead jobs"),
    "dead_workers": ("/workers", "Workers"),
    "draining": ("/workers", "Workers"),
    "failing": ("/workers", "Workers"),
    "failing_duty": ("/workers", "Workers"),
    "lacks_tags": ("/queues", "Queues"),
    "late_schedules": ("/schedules", "Schedules"),
    "limit_closed": ("/limits", "Limits"),
    "limit_held": ("/limits", "Limits"),
    "limit_recounted": ("/limits", "Limits"),
    "limit_unknown": ("/limits", "Limits"),
    "long_paused": ("/queues", "Queues"),
    "lost_workers": ("/workers", "Workers"),
    "malformed_jobs": ("/dead", "Dead jobs"),
    "queue_not_served": ("/queues", "Queues"),
    "schedules": ("/schedules", "Schedules"),
    "silent_workers": ("/workers", "Workers"),
    "slots_held": ("/jobs?state=running", "Running jobs"),
    "undecodable": ("/tasks", "Tasks"),
    "unservable": ("/queues", "Queues"),
}
"""Name of a finding -> the page that shows more of it, and what it is called."""


class FindingKind(msgspec.Struct, frozen=True):
    """Findings of one name with the same remedy; ``path`` and ``title``: their page."""

    name: str
    level: Level
    fix: str
    sentences: list[str]
    path: str = ""
    title: str = ""


def group_findings(findings: Iterable[Finding]) -> list[FindingKind]:
    """Return the findings by kind, the worst first."""
    kinds: dict[tuple[Level, str, str], FindingKind] = {}
    for one in sorted(findings, key=lambda each: ORDER.index(each.level)):
        made = FindingKind(one.name, one.level, one.fix or "", [], *PAGES.get(one.name, ()))
        kinds.setdefault((one.level, one.name, made.fix), made).sentences.append(one.sentence)
    return list(kinds.values())
