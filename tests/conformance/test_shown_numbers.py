"""What only shows: each place that counts jobs counts those that are there, and the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from outlast.insight.acting import ACTS, By, Verb
from outlast.insight.bulk import BulkFilter, begin, go_on, preview
from outlast.insight.filters import PHASES
from outlast.insight.history import Series
from outlast.insight.queries import JobList, SearchBounds, list_jobs
from outlast.insight.queues import list_queues
from outlast.insight.stats import COUNTS, read_overview, stats_document
from outlast.metrics.collector import QUEUES_MAX, STATES, TASKS_MAX, LookCollector, Names, read_look
from outlast.metrics.exporter import render
from outlast.model.crash import CrashKind
from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind, Transition
from outlast.model.pause import PauseKind, Pauses
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter, StoredJob
from outlast.store.values import Claimed, NewEvent, NewJob, NewPause
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import Hands, crashed, ended, enqueued, job
from tests.conformance.limits_kit import declare, limited, need
from tests.conformance.test_dependencies import after
from tests.metrics.kit import samples

LEASE = 3_600.0
COUNT_OF = {
    "scheduled": "scheduled", "waiting": "scheduled", "retrying": "scheduled", "limited": "due",
    "throttled": "due", "queued": "due", "unservable": "due", "paused": "due",
    "orphaned": "running", "silent": "running",
}  # fmt: skip
ENDS: dict[str, Callable[[Claimed], Transition]] = {
    "completed": ended,
    "dead": lambda one: ended(one, OutcomeKind.DEAD),
    "retried": lambda one: crashed(one, delay=600.0),
    "suspect": lambda one: crashed(one, CrashKind.BYSTANDER, incident=1),
    "snoozed": lambda one: ended(one, OutcomeKind.SNOOZED, delay=600.0),
    "awaits": lambda one: ended(one, OutcomeKind.SNOOZED, delay=600.0, event="e"),
    "awaited": lambda one: ended(one, OutcomeKind.SNOOZED, delay=600.0, event="sent"),
}
WAITING: dict[str, list[NewJob]] = {
    "due": [job()] * 2,
    "key": [job(key="k")],
    "delayed": [job(delay=600.0)],
    "overdue": [job(run_at=1_000.0), job(run_at=2_000.0), job(delay=600.0)],
    "expired": [job(expires_at=1_000.0)],
    "paused": [job(), job(delay=900.0), job(delay=100.0)],
    "task": [job(task="held"), job(task="held", delay=100.0), job()],
    "tenant": [job(tenant="held"), job(tenant="t")],
    "unknown": [job(task="unknown"), job(task="unknown", delay=100.0), job()],
    "turns": [limited(fair=f"t{n}", tenant=f"t{n}", queue="turns") for n in range(9)],
}
LIMITS: dict[str, Any] = {
    "full": {"running": 1},
    "rate": {"spacing": 600.0, "burst": 1.0},
    "shut": {"running": 0},
}


async def fill(store: Store, url: str) -> None:
    """Make a job in each state, and held by each mechanism, in a queue of that name."""
    gone, hands = await Hands.on(store, "w0"), await Hands.on(store, lease=LEASE)
    await enqueued(store, job(queue="lost"))
    assert await gone.claim(1, queues=["lost"])
    await gone.vanish()
    for name, end in ENDS.items():
        await enqueued(store, *[job(queue=name)] * 2)
        await hands.hand_in(*map(end, await hands.claim(9, queues=[name])))
    for name, spec in LIMITS.items():
        await declare(store, name, **spec)
        await enqueued(store, *[limited(need(name), queue=name)] * 3)
        await hands.claim(9, queues=[name])
    for kind in (PauseKind.TASK, PauseKind.TENANT):
        await store.pause(NewPause(kind=kind, name="held"))
    await store.pause(NewPause(kind=PauseKind.QUEUE, name="paused"))
    (asked, ended_so) = await enqueued(store, job(queue="asked"), job(queue="cancelled"))
    await hands.claim(1, queues=["asked"])
    await store.cancel([asked, ended_so])
    await enqueued(store, after(asked, queue="blocked"))
    for name, jobs in WAITING.items():
        await enqueued(store, *[msgspec.structs.replace(one, queue=name) for one in jobs])
    await store.send_event(NewEvent("sent", "[1]"))
    async with raw(url) as file:
        await file.run("UPDATE outlast_jobs SET run_at = run_at - 500 WHERE queue <> 'delayed'")
        await file.run("UPDATE outlast_jobs SET run_at = run_at - 60 * id WHERE queue = 'turns'")


async def phases(store: Store) -> JobList:
    return await list_jobs(store, JobFilter(limit=1_000), None)


def counted(rows: list[StoredJob], found: JobList) -> Counter[tuple[str, str]]:
    """The counts by queue and word, from the jobs themselves."""
    pauses = Pauses(one for one in found.pauses.listed if one.kind is not PauseKind.TENANT)
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        phase = found.phase_of(row)
        word = "suspects" if row.solo else COUNT_OF.get(phase, phase)
        is_paused = word == "due" and pauses.find(row.queue, row.task, None) is not None
        counts[row.queue, "paused" if is_paused else word] += 1
    return counts


async def test_each_place_counts_the_same(store: Store, store_url: str) -> None:
    await fill(store, store_url)
    found = await phases(store)
    expected = counted(found.rows, found)
    assert {word for _, word in expected} == {*COUNTS}
    seen = await read_overview(store)
    queues = {one["queue"]: one for one in seen.stats["queues"]}
    assert expected == +Counter({(q, w): queues[q][w] for q in queues for w in COUNTS})
    page = render(LookCollector(await read_look(store), Names(QUEUES_MAX), Names(TASKS_MAX)), 0.0)
    shown = samples(page.decode())
    on_page = {
        (queue, STATES[state]): number
        for ((_, queue), (_, state)), number in shown["outlast_jobs"].items()
        if number
    }
    assert on_page == {key: n for key, n in expected.items() if key[1] in STATES.values()}
    for row in found.rows:  # the oldest is the oldest
        due = [
            seen.statistics.now - one.run_at
            for one in found.rows
            if one.queue == row.queue and counted([one], found)[one.queue, "due"]
        ]
        oldest = queues[row.queue]["oldest_due_seconds"]
        assert oldest == (pytest.approx(max(due)) if due else None), row.queue
    untaken = Counter(
        (row.queue, row.task) for row in found.rows if found.phase_of(row) == "unservable"
    )
    assert untaken == {("unknown", "unknown"): 2}
    assert {(u["queue"], u["task"]): u["due"] for u in seen.stats["unservable"]} == untaken
    assert sum(shown["outlast_unservable_jobs"].values()) == 2
    views = {one.name: one for one in list_queues(seen, {})}
    assert {name: sum(one.due for one in view.lanes) for name, view in views.items()} == {
        name: sum(expected[name, word] for word in ("due", "paused")) for name in views
    }


async def test_a_phase_lists_the_jobs_that_a_list_of_all_shows_in_it(
    store: Store, store_url: str
) -> None:
    await fill(store, store_url)
    found = await phases(store)
    for phase, state in PHASES.items():
        for queue in (None, "overdue"):
            which = JobFilter(state=state, queue=queue, limit=1_000)
            listed = await list_jobs(store, which, phase)
            assert [row.id for row in listed.rows] == [
                row.id
                for row in found.rows
                if found.phase_of(row) == phase and queue in {None, row.queue}
            ]


@pytest.mark.parametrize("limit", [1, 3])
async def test_pages_leave_nothing_out_and_show_nothing_twice(
    store: Store, store_url: str, limit: int
) -> None:
    """Also where a page has read as many candidates as it may, and jobs come meanwhile."""
    await fill(store, store_url)
    whole = await phases(store)
    for phase in (None, *State, *PHASES):
        shown: list[int] = []
        before: int | None = None
        while True:
            state = PHASES.get(phase) if phase in PHASES else phase
            which = JobFilter(state=state, limit=limit, before_id=before)
            page = await list_jobs(store, which, phase, SearchBounds(rows=4, judged=2))
            shown += [row.id for row in page.rows]
            if not shown[limit:]:
                await enqueued(store, job(queue="later"))
            if page.before is None:
                break
            assert before is None or page.before < before
            before = page.before
        ids = [row.id for row in whole.rows if is_in(phase, row, whole)]
        assert [one for one in shown if one <= whole.rows[0].id] == ids, phase


def is_in(phase: str | None, row: StoredJob, found: JobList) -> bool:
    """Whether a list of this state or phase shows a job."""
    return phase in {None, row.state} or found.phase_of(row) == phase


@pytest.mark.parametrize(
    ("verb", "state"), [(verb, state) for verb in Verb for state in ACTS[verb].states]
)
async def test_an_act_is_done_to_as_many_as_its_preview_counts(
    store: Store, store_url: str, verb: Verb, state: State
) -> None:
    await fill(store, store_url)
    for which in (BulkFilter(state=state, task="held"), BulkFilter(state=state)):
        seen = await preview(store, verb, which)
        done = [row async for row in go_on(store, await begin(store, seen, By("ada")))][-1]
        assert (sum(done.counts.values()), seen.at_least) == (seen.count, False)
        assert (await preview(store, verb, which)).count == (
            seen.count if state is State.RUNNING else 0
        )


@pytest.mark.parametrize(
    "trouble", ["heartbeat_at = 1", "failing = 'exchange: no'", "status = 'draining'"]
)
async def test_a_worker_that_takes_nothing_serves_nothing(
    store: Store, store_url: str, trouble: str
) -> None:
    await Hands.on(store)
    await enqueued(store)
    async with raw(store_url) as file:
        await file.run(f"UPDATE outlast_workers SET {trouble}")
    found = await phases(store)
    assert [found.phase_of(row) for row in found.rows] == ["unservable"]
    assert [one["due"] for one in (await read_overview(store)).stats["unservable"]] == [1]


async def test_what_lasts_longest_hides_no_later_end_unsaid(
    store: Store, store_url: str, hands: Hands
) -> None:
    for keep in (9e6, 1e3):
        await enqueued(store, *[job(policy=Policy(keep=keep))] * 3)
        await hands.hand_in(*map(ended, await hands.claim()))
        async with raw(store_url) as file:
            await file.run("UPDATE outlast_jobs SET ended_at = ended_at - 7200 WHERE keep > 1e6")
    for most, numbers, at_least in ((3, 0, ["minute", "hour"]), (7, 3, [])):
        document = stats_document(await store.inspector.statistics(most), [])
        expected = {"minute": numbers, "hour": numbers, "at_least": at_least}
        assert document["completed"] == expected


async def test_the_rate_of_a_queue_is_that_of_its_workers_counts(store: Store) -> None:
    """Jobs that are kept for no time leave no row, and of many only the last ones are counted."""
    nothing: dict[str, Any] = {
        "failed": [],
        "attempts": [],
        "seconds": [],
        "waited": [],
        "durations": [],
        "waits": [],
    }
    seen = await read_overview(store)
    for done, rate in (([60] * 50 + [0] * 11, 50.0), ([0] * 55 + [9, 9, 9, 9, 9, 1], 9.0)):
        (view,) = list_queues(seen, {"q": Series(name="q", completed=done, **nothing)})
        assert view.per_minute == rate
