"""Lists of jobs: found by what is asked for, page after page, in looks of a bounded size."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from outlast.insight import queries
from outlast.insight.queries import SearchBounds, find_jobs, list_jobs, read_whole
from outlast.model.job import State
from outlast.model.lifecycle import OutcomeKind
from outlast.store.listing import find
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter, Part, StoredJob, WorkerStatus
from outlast.store.values import Upstream
from tests.conformance.kit import TASK, Hands, crashed, ended, enqueued, job
from tests.conformance.limits_kit import limited, need

LOOK = 3


@pytest.fixture
def small_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.store.listing.LOOK_ROWS", LOOK)


async def some_of_each(store: Store, hands: Hands) -> list[StoredJob]:
    """Return jobs in every state and part, in two queues, of two tasks, newest first."""
    kinds = itertools.product(("a", "b"), (TASK, "else"), (None, "acme"))
    jobs = [job(queue=queue, task=task, tenant=tenant) for queue, task, tenant in kinds]
    await enqueued(store, *[msgspec.structs.replace(one, delay=99.0) for one in jobs])
    await enqueued(store, *jobs)
    for end in ("suspect", OutcomeKind.COMPLETED, OutcomeKind.DEAD, OutcomeKind.CANCELLED, None):
        await enqueued(store, *jobs)
        claimed = await hands.claim(8, tasks=[TASK, "else"])
        if end == "suspect":
            await hands.hand_in(
                *[msgspec.structs.replace(crashed(one), solo=1, incident=1) for one in claimed]
            )
        elif end is not None:
            await hands.hand_in(*[ended(one, OutcomeKind(end)) for one in claimed])
    first = await enqueued(store, job(delay=99.0))
    waits = [msgspec.structs.replace(one, after=(Upstream(first[0]),)) for one in jobs]
    await enqueued(store, *waits)
    return await store.inspector.jobs(JobFilter(limit=1_000))


def passes(row: StoredJob, which: JobFilter) -> bool:
    return (
        which.state in {None, row.state}
        and which.queue in {None, row.queue}
        and which.task in {None, row.task}
        and which.tenant in {None, row.tenant}
    )


@pytest.mark.slow_on("postgres")
async def test_every_filter_finds_what_passes_it_page_after_page(
    store: Store, hands: Hands, small_looks: None
) -> None:
    rows = await some_of_each(store, hands)
    assert {row.state for row in rows} == set(State)
    assert any(row.solo for row in rows)
    filters = itertools.product((None, *State), (None, "a", "no"), (None, TASK), (None, "acme"))
    for state, queue, task, tenant in filters:
        which = JobFilter(state=state, queue=queue, task=task, tenant=tenant, limit=2)
        wanted = [row.id for row in rows if passes(row, which)]
        found: list[int] = []
        looks, before = 0, None
        while True:
            seen = await store.inspector.job_ids(msgspec.structs.replace(which, before_id=before))
            found += seen.ids
            looks, before = looks + 1, seen.before
            if before is None:
                break
        assert found == wanted, which
        assert looks <= 2 + len(rows) // LOOK + len(wanted) // 2, which
        assert [row.id for row in await store.inspector.jobs(which)] == wanted[:2], which


async def test_parts_of_the_queue_are_told_apart(store: Store, hands: Hands) -> None:
    rows = [row for row in await some_of_each(store, hands) if row.state is State.QUEUED]
    parts = {
        part: set(
            (await store.inspector.job_ids(JobFilter(state=State.QUEUED, part=part, limit=100))).ids
        )
        for part in Part
    }
    assert parts[Part.SUSPECTS] == {row.id for row in rows if row.solo}
    assert parts[Part.TIMED] == {row.id for row in rows if row.waiting and not row.solo}
    assert parts[Part.LINE] == {row.id for row in rows if not row.waiting and not row.solo}
    (in_stream,) = await enqueued(store, limited(need("a")))
    which = JobFilter(state=State.QUEUED, part=Part.STREAMS, limit=100)
    assert (await store.inspector.job_ids(which)).ids == [in_stream]


async def test_scheduled_jobs_are_found_behind_any_number_of_newer_ones(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PAGE", 2)
    (scheduled,) = await enqueued(store, job(delay=60.0))
    await enqueued(store, *[job() for _ in range(10)])
    few = SearchBounds(judged=4)
    found = await list_jobs(store, JobFilter(state=State.QUEUED), "scheduled", few)
    assert ([row.id for row in found.rows], found.before) == ([scheduled], None)


async def test_scheduled_jobs_are_found_where_they_are_too_many_to_be_read_by_index(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PAGE", 2)
    scheduled = await enqueued(store, *[job(delay=60.0) for _ in range(9)])
    line = await enqueued(store, *[job() for _ in range(10)])
    which = JobFilter(state=State.QUEUED, look_rows=8, limit=3)
    found = await list_jobs(store, which, "scheduled", SearchBounds(judged=4, rows=8))
    assert [row.id for row in found.rows] == scheduled[:-4:-1]
    for part, ids in ((Part.LINE, line), (Part.TIMED, scheduled), (Part.SUSPECTS, [])):
        all_of_it = msgspec.structs.replace(which, part=part, limit=100)
        seen = await find(store.inspector.job_ids, all_of_it)
        assert seen.ids == ids[::-1], part


async def test_a_search_for_a_phase_ends_after_a_bounded_number_of_jobs_and_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PAGE", 2)
    few = SearchBounds(judged=4)
    ids = await enqueued(store, *[job(delay=60.0) for _ in range(9)])
    found = await list_jobs(store, JobFilter(state=State.QUEUED), "retrying", few)
    assert (found.rows, found.before) == ([], ids[-4])
    found = await list_jobs(store, JobFilter(state=State.QUEUED, limit=3), "scheduled", few)
    assert ([row.id for row in found.rows], found.before) == (ids[:-4:-1], ids[-3])


async def test_a_search_ends_after_a_bounded_number_of_looks_and_says_how_far_it_came(
    store: Store,
) -> None:
    few = SearchBounds(looks=2, rows=LOOK)
    ids = await enqueued(store, job(task="rare"), *[job() for _ in range(8)])
    rare = JobFilter(task="rare", look_rows=LOOK)
    found = await list_jobs(store, rare, None, few)
    assert (found.rows, found.before) == ([], ids[-2 * LOOK])
    assert await find_jobs(store, rare, 2) == await store.inspector.job_ids(
        JobFilter(task="rare", before_id=ids[-LOOK], look_rows=LOOK)
    )
    rest = msgspec.structs.replace(rare, before_id=found.before)
    found = await list_jobs(store, rest, None, few)
    assert ([row.id for row in found.rows], found.before) == (ids[:1], None)


async def test_a_long_queue_is_walked_and_a_short_one_found_behind_all_that_has_ended(
    store: Store, hands: Hands
) -> None:
    """Where a look may read few rows: a long queue is not read whole, a short one is."""
    few = SearchBounds(looks=1, rows=LOOK)
    (waits,) = await enqueued(store, job(task="rare"))
    await enqueued(store, *[job() for _ in range(3 * LOOK)])
    await hands.hand_in(*[ended(one) for one in await hands.claim(3 * LOOK)])
    queued = JobFilter(state=State.QUEUED)
    found = await list_jobs(store, queued, None, few)
    assert ([row.id for row in found.rows], found.before) == ([waits], None)
    ids = await enqueued(store, *[job() for _ in range(LOOK)])
    found = await list_jobs(store, queued, None, few)
    assert ([row.id for row in found.rows], found.before) == (ids[::-1], ids[0])
    later = await enqueued(store, *[job(delay=60.0) for _ in range(LOOK)])
    found = await list_jobs(store, queued, "scheduled", few)
    assert [row.id for row in found.rows] == later[::-1]


async def test_a_full_list_says_what_follows_it(store: Store) -> None:
    ids = await enqueued(store, *[job() for _ in range(5)])
    found = await list_jobs(store, JobFilter(limit=2), None)
    assert ([row.id for row in found.rows], found.before) == (ids[:2:-1], ids[3])
    phase = await list_jobs(store, JobFilter(state=State.QUEUED, limit=2), "unservable")
    assert ([row.id for row in phase.rows], phase.before) == (ids[:2:-1], ids[3])


async def test_a_list_holds_no_long_payloads_and_whole_jobs_come_a_few_at_a_time(
    store: Store, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = f'"{"é" * 10_000}"'
    ids = await enqueued(store, *[job(args=long) for _ in range(5)])
    claimed = await hands.claim(5)
    await hands.hand_in(*[ended(one, OutcomeKind.COMPLETED, result=long) for one in claimed])
    for row in (await list_jobs(store, JobFilter(), None)).rows:
        assert (row.args, row.result) == (long[: queries.SHOWN_MAX], None)
    (row,) = (await list_jobs(store, JobFilter(limit=1), None, SearchBounds(text_max=9))).rows
    assert row.args == long[:9]
    one = await store.inspector.job(ids[0], 7)
    assert one is not None
    assert (one.args, one.result, one.checkpoint) == (long[:7], long[:7], None)
    for row, _ in await store.inspector.last_attempts(ids, 7):
        assert (row.args, row.result) == (long[:7], None)
    monkeypatch.setattr(queries, "PAGE_WHOLE", 2)
    whole = [row async for row in read_whole(store, ids[::-1])]
    assert [(row.id, row.args, row.result) for row in whole] == [
        (job_id, long, long) for job_id in ids[::-1]
    ]


async def test_workers_are_all_that_are_there_and_those_that_have_gone_last(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where workers crash again and again, each command would read all of a week."""
    monkeypatch.setattr("outlast.store.inspector.GONE_MAX", 2)
    hands = [await Hands.on(store, f"w{n}") for n in range(6)]
    for gone in (hands[4], hands[3], hands[0], hands[1]):
        await store.set_status(gone.me, WorkerStatus.STOPPED)
    rows = await store.inspector.workers()
    assert [row.name for row in rows] == ["w0", "w1", "w2", "w5"]
