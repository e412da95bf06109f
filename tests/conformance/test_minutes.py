"""What workers have counted: noted once, added up, and never lost by a merge or a prune."""

from __future__ import annotations

import asyncio

import pytest

from outlast.errors import BadData
from outlast.insight.history import history_document, read_history
from outlast.store.minutes import (
    BUCKETS,
    MINUTE_SECONDS,
    TOTAL_SECONDS,
    WORKER_SECONDS,
    Counted,
    CountKind,
)
from outlast.store.protocol import Store
from tests.conformance.hostile_kit import raw, works_on
from tests.conformance.kit import Hands, ended, enqueued

MINUTES = [
    "level", "worker_id", "batch", "at", "kind", "queue", "task", "outcome", "jobs", "firsts",
    "seconds", "waited",
    *[f"d{number}" for number in range(1, BUCKETS + 1)],
    *[f"w{number}" for number in range(1, BUCKETS + 1)],
]  # fmt: skip


def counted(jobs: int = 1, **fields: object) -> Counted:
    buckets = [jobs, *[0] * (BUCKETS - 2), jobs]
    values: dict[str, object] = {"kind": CountKind.ATTEMPT, "queue": "q", "task": "t"}
    values |= {"outcome": "completed", "firsts": jobs, "seconds": 2.5 * jobs, "waited": 0.5 * jobs}
    values |= {"durations": buckets, "waits": buckets[::-1]}
    return Counted(jobs=jobs, **{**values, **fields})  # type: ignore[arg-type]


async def age(store_url: str, seconds: float, level: str) -> None:
    """Let the rows of a level be that much older."""
    async with raw(store_url) as file:
        await file.run(
            f"UPDATE outlast_minutes SET at = at - {seconds:.0f} WHERE level = '{level}'"
        )


async def levels(store_url: str) -> dict[str, int]:
    async with raw(store_url) as file:
        rows = await file.rows("SELECT level, sum(jobs) FROM outlast_minutes GROUP BY level")
    return {level: int(jobs) for level, jobs in rows}


async def test_nothing_was_counted(store: Store) -> None:
    assert await store.inspector.totals() == []
    found = await store.inspector.minutes(3_600.0)
    assert (found.ended, found.oldest, found.is_cut) == ([], None, False)
    assert (await read_history(store)).series == []


async def test_what_is_noted_comes_back_as_it_was(store: Store) -> None:
    await store.note_minute(1, 1, [counted(3), counted(2, outcome="error")])
    await store.note_minute(2, 1, [counted(4), counted(kind=CountKind.DEATH, queue="", task="")])
    assert await store.inspector.totals() == [
        counted(7),
        counted(2, outcome="error"),
        counted(kind=CountKind.DEATH, queue="", task=""),
    ]
    found = await store.inspector.minutes(3_600.0)
    assert [each.jobs for each in found.ended if each.outcome == "error"] == [[2]]
    assert sum(sum(each.jobs) for each in found.ended) == 9  # deaths are no attempts


async def test_the_same_batch_again_changes_nothing(store: Store) -> None:
    for number in (5, 5, 6, 5):
        await store.note_minute(1, number, [counted(3)])
    assert await store.inspector.totals() == [counted(6)]


async def test_minutes_are_kept_for_a_day_and_totals_stay(store: Store, store_url: str) -> None:
    await store.note_minute(1, 1, [counted(3)])
    await store.note_minute(2, 1, [counted(4), counted(1, task="u")])
    await store.merge_minutes()
    assert await levels(store_url) == {"worker": 8}  # too young
    before = await store.inspector.totals()
    await age(store_url, WORKER_SECONDS + 120, "worker")
    assert await store.merge_minutes() == 3
    assert await levels(store_url) == {"minute": 8, "total": 8}
    await age(store_url, MINUTE_SECONDS, "minute")
    await store.note_minute(1, 2, [counted(5)])
    await store.merge_minutes()
    assert await levels(store_url) == {"worker": 5, "total": 8}
    after = await store.inspector.totals()
    assert [each.jobs for each in before] == [7, 1]
    assert after == [counted(12), counted(1, task="u")]


async def test_minutes_are_added_to_what_is_there(store: Store, store_url: str) -> None:
    for number in range(1, 4):
        await store.note_minute(1, number, [counted(number)])
        await age(store_url, WORKER_SECONDS + 120, "worker")
        await store.merge_minutes()
    assert await store.inspector.totals() == [counted(6)]
    history = await read_history(store)
    assert [sum(each.completed) for each in history.series] == [6]


async def test_a_merge_is_bounded_and_the_next_goes_on(store: Store, store_url: str) -> None:
    await store.note_minute(1, 1, [counted(1, task=f"t{number}") for number in range(10)])
    await age(store_url, WORKER_SECONDS + 120, "worker")
    assert [await store.merge_minutes(4) for _ in range(4)] == [4, 4, 2, 0]
    assert len(await store.inspector.totals()) == 10


async def test_merges_side_by_side_count_each_row_once(
    store: Store, other_store: Store, store_url: str
) -> None:
    for number in range(40):
        lanes = [counted(1, task=f"t{lane}") for lane in range(5)]
        await store.note_minute(number % 4 + 1, number, lanes)
    await age(store_url, WORKER_SECONDS + 120, "worker")
    async with asyncio.timeout(60):
        await asyncio.gather(*[each.merge_minutes(30) for each in (store, other_store) * 10])
    while await store.merge_minutes(30):  # of two at once, one may leave all to the other
        pass
    assert await levels(store_url) == {"minute": 200, "total": 200}


async def test_idle_totals_go(store: Store, store_url: str) -> None:
    await store.note_minute(1, 1, [counted(3)])
    await age(store_url, WORKER_SECONDS + 120, "worker")
    await store.merge_minutes()
    await age(store_url, TOTAL_SECONDS, "total")
    await store.merge_minutes()
    assert await levels(store_url) == {"minute": 3}


async def test_a_history_outlasts_its_jobs(store: Store) -> None:
    hands = await Hands.on(store)
    await enqueued(store)
    await hands.hand_in(ended(await hands.claim_one()))
    await store.note_minute(hands.me.worker_id, 1, [counted(1)])
    await store.prune(jobs_older_than=-1, workers_older_than=-1)
    assert (await store.inspector.history()).jobs == []
    assert await store.inspector.totals() == [counted(1)]


async def test_a_look_reads_the_newest_and_says_where_it_was_cut(
    store: Store, store_url: str
) -> None:
    await store.note_minute(1, 1, [counted(1, task=f"t{number}") for number in range(5)])
    await age(store_url, 180, "worker")
    await store.note_minute(1, 2, [counted(2, task=f"t{number}") for number in range(5)])
    found = await store.inspector.minutes(3_600.0, 7)
    assert found.is_cut
    assert sum(sum(each.jobs) for each in found.ended) == 12


@pytest.mark.parametrize(("seconds", "step", "steps"), [(3_600, 60, 61), (86_400, 1_440, 61)])
async def test_a_history_has_a_point_for_each_step(
    store: Store, seconds: float, step: int, steps: int
) -> None:
    await store.note_minute(1, 1, [counted(3), counted(1, queue="r", outcome="error")])
    await store.note_minute(1, 2, [counted(1, outcome="released")])
    history = await read_history(store, seconds=seconds)
    assert (history.step, len(history.times)) == (step, steps)
    mail, other = history.series
    assert mail.durations == mail.waits == [4, *[0] * (BUCKETS - 2), 4]
    assert (mail.name, other.name) == ("q", "r")
    assert [sum(numbers) for numbers in (mail.attempts, mail.completed, mail.failed)] == [4, 3, 0]
    assert [sum(numbers) for numbers in (other.completed, other.failed)] == [0, 1]
    assert [each for each in mail.seconds if each is not None] == [pytest.approx(10 / 8)]
    document = history_document(history)
    assert [each["name"] for each in document["series"]] == ["q", "r"]


async def test_a_history_may_be_of_one_task_or_by_outcome(store: Store) -> None:
    await store.note_minute(1, 1, [counted(3), counted(1, task="u"), counted(2, outcome="error")])
    of_one = await read_history(store, by="outcome", task="t")
    assert {each.name: sum(each.attempts) for each in of_one.series} == {"completed": 3, "error": 2}
    whole = await read_history(store, by="all", queue="q")
    assert [sum(each.attempts) for each in whole.series] == [6]
    assert (await read_history(store, queue="none")).series == []


@pytest.mark.parametrize("name", ["</script>", "ключ", "a'b\"c\\", "x" * 200])
async def test_any_name_of_a_queue_comes_back(store: Store, name: str, store_url: str) -> None:
    await store.note_minute(1, 1, [counted(3, queue=name, task=name)])
    await age(store_url, WORKER_SECONDS + 120, "worker")
    await store.merge_minutes()
    assert await store.inspector.totals() == [counted(3, queue=name, task=name)]


async def test_numbers_that_no_worker_counts_are_refused(store: Store) -> None:
    with pytest.raises(BadData):
        await store.note_minute(1, 1, [counted(-1)])
    assert await store.inspector.totals() == []


async def test_each_column_is_among_those_below(store_url: str, store: Store) -> None:
    async with raw(store_url) as file:
        assert await file.columns("outlast_minutes") == set(MINUTES)


@pytest.mark.parametrize("level", ["worker", "minute", "total"])
@pytest.mark.slow_on("postgres")
async def test_no_value_in_a_row_stops_a_merge_or_a_look(
    store_url: str, store: Store, level: str
) -> None:
    async with raw(store_url) as file:
        for number, column in enumerate(MINUTES):
            for place, value in enumerate(file.values):
                await store.note_minute(place, number, [counted(1, queue=f"{column} {place}")])
                row = f"queue = '{column} {place}'"
                old = f"at = at - {MINUTE_SECONDS + 7_200}, level = '{level}'"
                await file.run(f"UPDATE outlast_minutes SET {old} WHERE {row}")
                await file.run(f"UPDATE outlast_minutes SET {column} = {value} WHERE {row}")
    await store.inspector.totals()
    await read_history(store, seconds=MINUTE_SECONDS)
    while await store.merge_minutes():
        pass
    await store.inspector.totals()
    await works_on(store)
