"""Hints: one sampler for all who look, none for those who do not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from outlast.store.logs import JobLog, LogLine
from outlast.store.stacks import Stack
from outlast.web import sampler
from outlast.web.reader import BYTES_MAX, RenderedPages, StoreReader
from outlast.web.sampler import CLIENTS_MAX, SLOW, SLOW_MAX, Sampler
from tests.conformance.kit import Hands, enqueued
from tests.manual_clock import ManualClock
from tests.web.kit import let_in, page_on

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from outlast.store.protocol import Store


class Looking:
    """A sampler on a clock that the test sets ahead."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.reader = StoreReader(url, self.clock)
        self.sampler = Sampler(self.reader, self.clock)

    async def settle(self) -> None:
        """Wait until the sampler has looked, and sleeps."""
        async with asyncio.timeout(60):
            while not self.clock.sleepers:
                await asyncio.sleep(0.005)

    async def look(self, times: int = SLOW) -> None:
        """Let it look so often again."""
        for _ in range(times):
            self.clock.advance(1.0)
            await self.settle()


@pytest.fixture
async def looking(store: Store) -> AsyncIterator[Looking]:
    made = Looking(store.url)
    yield made
    await made.reader.close()


@pytest.mark.on_both_stores
async def test_a_change_is_hinted_at_to_those_who_asked_about_it(
    store: Store, looking: Looking
) -> None:
    one, other = await enqueued(store), await enqueued(store)
    mine = looking.sampler.join(frozenset({f"job:{one[0]}"}))
    others = looking.sampler.join(frozenset({f"job:{other[0]}"}))
    everything = looking.sampler.join(frozenset({"stats", "workers"}))
    await looking.settle()
    await looking.look()
    assert not any(each.hinted.is_set() for each in (mine, others, everything))
    await store.cancel(one)
    await looking.look()
    assert [each.hinted.is_set() for each in (mine, others, everything)] == [True, False, True]
    everything.hinted.clear()
    await Hands.on(store)
    await looking.look()
    assert everything.hinted.is_set(), "a new worker"
    for each in (mine, others, everything):
        looking.sampler.leave(each)


async def test_pages_that_ask_about_many_jobs_take_no_places_of_others(
    store: Store, looking: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "JOBS_MAX", 8)
    (mine,) = await enqueued(store)
    greedy = [
        looking.sampler.join(frozenset(f"job:{10**17 + 10 * page + at}" for at in range(10)))
        for page in range(6)
    ]
    page = looking.sampler.join(frozenset({f"job:{mine}"}))
    await looking.settle()
    await looking.look()
    await store.cancel([mine])
    await looking.look()
    assert page.hinted.is_set()
    for each in (*greedy, page):
        looking.sampler.leave(each)


async def test_new_lines_of_a_running_job_are_hinted_at_to_those_who_asked_about_them(
    store: Store, looking: Looking
) -> None:
    (number,) = await enqueued(store)
    reader = looking.sampler.join(frozenset({f"job:{number}", f"logs:{number}"}))
    other = looking.sampler.join(frozenset({f"job:{number}"}))
    claimed = await (await Hands.on(store)).claim_one()
    await looking.settle()
    await looking.look()
    for each in (reader, other):
        each.hinted.clear()
    line = LogLine(1.0, "a line")
    await store.keep_logs([JobLog(number, claimed.token, claimed.number, [line])])
    await looking.look()
    assert [each.hinted.is_set() for each in (reader, other)] == [True, False]
    for each in (reader, other):
        looking.sampler.leave(each)


async def test_where_a_running_job_is_is_hinted_at_once_its_worker_has_said_so(
    store: Store, looking: Looking
) -> None:
    (number,) = await enqueued(store)
    claimed = await (await Hands.on(store)).claim_one()
    client = looking.sampler.join(frozenset({f"job:{number}"}))
    await looking.settle()
    await looking.look()
    assert not client.hinted.is_set()
    await store.keep_stack(number, Stack(token=claimed.token, asked=1, text="a stack"))
    await looking.look(1)
    assert client.hinted.is_set()
    looking.sampler.leave(client)


async def test_fifty_open_pages_cost_as_much_as_one_and_none_costs_nothing(
    store: Store, looking: Looking
) -> None:
    topics = frozenset({"stats", "workers", "job:1"})
    pages = [looking.sampler.join(topics) for _ in range(50)]
    await looking.settle()
    before = looking.reader.looks
    await looking.look()
    assert looking.reader.looks - before == 1 + SLOW, "all numbers once, the job each time"
    for page in pages:
        looking.sampler.leave(page)
    before = looking.reader.looks
    looking.clock.advance(60.0)
    await asyncio.sleep(0)
    assert looking.clock.sleepers == 0
    assert looking.reader.looks == before


async def test_a_page_is_put_together_once_for_all_tabs_until_the_store_is_looked_at_again(
    store: Store,
) -> None:
    clock = ManualClock()
    reader = StoreReader(store.url, clock)
    pages, made = RenderedPages(reader, clock), iter("abcdefg")

    def get(key: str = "/", since: int | None = None) -> str:
        begun = reader.forgotten if since is None else since
        return pages.get(key, lambda: next(made), begun).body.decode()

    assert [get(), get(), get("/jobs"), get()] == ["a", "a", "b", "a"]
    await reader.ask("now", lambda store: store.inspector.now())
    assert [get(), get()] == ["c", "c"]
    reader.forget("now")
    assert [get(), get()] == ["d", "d"]
    clock.advance(1.5)
    assert get() == "e"
    assert get(since=reader.forgotten - 1) == "f", "of looks before what others are hinted at"
    assert get() == "e"
    await reader.close()


async def test_pages_that_are_kept_together_are_bounded_in_bytes(store: Store) -> None:
    reader = StoreReader(store.url, ManualClock())
    pages = RenderedPages(reader, ManualClock())
    for number in range(9):
        pages.get(number, lambda: "x" * (BYTES_MAX // 4), reader.forgotten)
        assert sum(len(page.body) for _, page in pages._kept.values()) <= BYTES_MAX
    assert pages.get(8, lambda: "not made again", reader.forgotten).body[:1] == b"x"
    await reader.close()


async def test_a_page_that_is_hinted_at_a_change_is_not_shown_what_another_read_before_it(
    store: Store, looking: Looking
) -> None:
    async def count() -> int:
        return len(await looking.reader.ask("a list", lambda each: each.inspector.jobs_of([1], 0)))

    page = looking.sampler.join(frozenset({"stats"}))
    await looking.settle()
    await looking.look()
    await looking.look(SLOW - 1)
    assert await count() == 0
    await enqueued(store)
    assert await count() == 0, "read a moment ago"
    await looking.look(1)
    assert page.hinted.is_set()
    assert await count() == 1
    looking.sampler.leave(page)


async def test_looks_that_take_long_are_made_less_often(store: Store, looking: Looking) -> None:
    page = looking.sampler.join(frozenset({"stats"}))
    await looking.settle()
    pauses = []
    for seconds in (0.1, 60.0, 0.0, 0.0):
        looking.reader.spent += seconds  # as if pages had looked for so long
        pauses.append(0)
        before = looking.reader.looks
        while looking.reader.looks == before:
            await looking.look(1)
            pauses[-1] += 1
    assert pauses == [SLOW, 8, SLOW_MAX, SLOW]
    looking.sampler.leave(page)


async def test_what_a_new_page_asks_about_is_looked_at_soon(store: Store, looking: Looking) -> None:
    page = looking.sampler.join(frozenset({"stats"}))
    looking.reader.spent += 60.0
    await looking.settle()  # and rests for long
    other = looking.sampler.join(frozenset({"refusals"}))
    await looking.look(1)
    assert "refusals" in looking.sampler._seen, "what changes from now on is hinted at"
    for each in (page, other):
        looking.sampler.leave(each)


async def test_too_many_open_pages_are_refused(store: Store, looking: Looking) -> None:
    async with page_on(store.url) as page:
        sampler = page.site.sampler()
        pages = [sampler.join(frozenset({"stats"}), "ada") for _ in range(CLIENTS_MAX)]
        answer = await page.get("/events", params={"topics": "stats"})
        for one in pages:
            sampler.leave(one)
        looks = page.site.reader.looks
        head = await page.head("/events", params={"topics": "stats"})
        assert page.site.reader.looks == looks, "a HEAD looks at nothing"
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "500 pages are live" in answer.text
    assert (head.status_code, head.text) == (200, "")


async def test_a_newcomer_takes_the_place_of_the_user_with_most_open_pages(store: Store) -> None:
    async with page_on(store.url) as page:  # of ada
        sampler = page.site.sampler()
        held = [sampler.join(frozenset({"stats"}), "eve") for _ in range(CLIENTS_MAX)]
        assert not sampler.has_room("eve")
        page.site.stream_seconds = 0.0
        answer = await page.get("/events", params={"topics": "stats"})
        (cut,) = [one for one in held if one.ended]
        assert cut.hinted.is_set(), "its stream wakes up, and ends"
        for one in held:
            sampler.leave(one)
    assert answer.status_code == 200


async def test_a_stream_that_lost_its_place_ends(store: Store) -> None:
    async with page_on(store.url) as page:
        sampler = page.site.sampler()
        page.site.stream_seconds = 600.0
        asking = asyncio.ensure_future(page.get("/events", params={"topics": "stats"}))
        async with asyncio.timeout(60):
            while not sampler._clients:
                await asyncio.sleep(0.01)
        held = [sampler.join(frozenset({"stats"}), f"user {at}") for at in range(CLIENTS_MAX - 1)]
        more = [sampler.join(frozenset({"stats"}), "ada")]
        answer = await asyncio.wait_for(asking, 60)
        for one in [*held, *more]:
            sampler.leave(one)
    assert answer.text.endswith("data: \n\n")


async def test_what_is_watched_no_more_is_forgotten(store: Store, looking: Looking) -> None:
    for number in range(5):
        page = looking.sampler.join(frozenset({f"job:{number}", "stats"}))
        stays = looking.sampler.join(frozenset({"workers"}))
        await looking.settle()
        await looking.look()
        looking.sampler.leave(page)
        await looking.look()
        assert set(looking.sampler._seen) == {"workers"}
        looking.sampler.leave(stays)


async def test_a_user_of_one_tenant_is_hinted_at_its_jobs_alone(store: Store) -> None:
    async with page_on(store.url, let_in(tenant="acme")) as page:
        for topics in ("stats workers refusals", "job:1", "job:x", "odd", ""):
            answer = await page.get("/events", params={"topics": topics})
            assert answer.status_code == 404, topics
