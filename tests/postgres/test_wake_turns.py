"""What a worker that was woken tells the others, and how few trips one job sets off."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

import outlast
from outlast.model.lifecycle import OutcomeKind
from outlast.store.postgres import exchange
from outlast.store.postgres.exchange import ClaimFloors, PostgresExchange
from outlast.store.postgres.store import PostgresStore
from outlast.store.protocol import EXPIRE_MAX, Store
from outlast.store.rows import WorkerStatus
from outlast.store.values import FollowedWakeups, NewJob
from outlast.worker.claims import pacing
from outlast.worker.claims.pacing import PeerCount
from outlast.worker.in_process import embedded
from outlast.worker.maintenance.reaper import Reaper
from tests.conformance.kit import TASK, Hands, ended, enqueued, job
from tests.postgres import wakeup_kit
from tests.postgres.wakeup_kit import Heard

heard = wakeup_kit.heard

WORKERS, JOBS = 20, 5
DEADLINE = 60.0  # seconds until the test fails because something did not happen
LAST = NewJob(task=TASK, queue="last")


async def told(store: Store, heard: Heard) -> list[str]:
    """What was said of wake-ups that were followed, as claimed, kind and followed."""
    await store.enqueue([LAST])
    await heard.hears("jobs:1:last")
    return [word[6:].rpartition(":")[0] for word in heard.words if word.startswith("taken:")]


async def positions(session: Any) -> list[int]:
    """The positions of the line, in its order."""
    rows = await session.fetch(
        "SELECT position FROM outlast_jobs WHERE position IS NOT NULL ORDER BY position"
    )
    return [row[0] for row in rows]


def following(*numbers: int, kind: str | None = "k") -> FollowedWakeups:
    return FollowedWakeups(kind, list(numbers))


async def test_a_look_that_finds_the_end_of_the_line_says_so(
    store: Store, hands: Hands, heard: Heard, session: Any
) -> None:
    await enqueued(store, job(), job())
    first, _ = await positions(session)
    await hands.exchange(limit=10, followed=following(first, 7_000))
    assert await told(store, heard) == [f"{first}:k:{first},7000"], "the second was not asked for"


async def test_a_look_that_found_no_end_tells_only_what_it_took(
    store: Store, hands: Hands, heard: Heard, session: Any
) -> None:
    await enqueued(store, job(), job(), job())
    first, second, _ = await positions(session)
    await hands.exchange(limit=1, followed=following(first, second))
    assert await told(store, heard) == [f"{first}::"]


async def test_a_look_that_met_what_has_expired_does_not_speak_for_its_kind(
    store: Store, hands: Hands, heard: Heard, session: Any
) -> None:
    """That has taken the place of a job behind it, for which others are to look."""
    await enqueued(store, *[job(expires_at=1e9) for _ in range(EXPIRE_MAX + 1)], job())
    *_, last = await positions(session)
    reply = await hands.exchange(limit=1, followed=following(last))
    assert (reply.claimed, reply.next_due) == ([], 0.0)
    assert await told(store, heard) == ["::"]


@pytest.mark.parametrize("is_part", [True, False])
async def test_a_look_at_a_part_of_the_line_does_not_speak_for_its_kind(
    store: Store,
    hands: Hands,
    heard: Heard,
    session: Any,
    monkeypatch: pytest.MonkeyPatch,
    is_part: bool,
) -> None:
    """What it has left out is below the floors of others, too, and nothing announces it again."""
    ask = ClaimFloors.ask
    monkeypatch.setattr(ClaimFloors, "ask", lambda *of: (ask(*of)[0], (0, 2**40)))
    monkeypatch.setattr(ClaimFloors, "is_part", lambda floors, look: is_part)
    await enqueued(store, job())
    (first,) = await positions(session)
    await hands.exchange(limit=10, followed=following(first))
    assert await told(store, heard) == [f"{first}::" if is_part else f"{first}:k:{first}"]


async def test_a_look_for_some_of_its_tasks_does_not_speak_for_its_kind(
    store: Store, hands: Hands, heard: Heard, session: Any
) -> None:
    await enqueued(store, job())
    (first,) = await positions(session)
    await hands.exchange(limit=10, followed=following(first, kind=None))
    assert await told(store, heard) == [f"{first}::"]


async def test_a_look_from_floors_that_finds_nothing_says_nothing(
    store: Store, hands: Hands, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job may be below the floors: its transaction was open while later ones were claimed."""
    monkeypatch.setattr(exchange, "LAG_SECONDS", 0.0)
    await hands.exchange(limit=10, followed=following(1))
    assert await told(store, heard) == [":k:1"], "it knows no floors: it has read all"
    (claimed, *_) = await hands.claim()
    await hands.exchange(ended(claimed, OutcomeKind.COMPLETED))
    heard.words.clear()
    await hands.exchange(limit=10, followed=following(2))
    assert await told(store, heard) == ["::"]


@pytest.mark.parametrize("below", [True, False])
async def test_a_look_from_floors_says_nothing_of_a_wake_up_below_them_that_it_did_not_claim(
    store: Store,
    hands: Hands,
    heard: Heard,
    session: Any,
    monkeypatch: pytest.MonkeyPatch,
    below: bool,
) -> None:
    """A transaction that drew its position long ago has committed just now."""
    ask = ClaimFloors.ask
    await enqueued(store, job())
    await hands.claim()
    await enqueued(store, job())
    (floor,) = await positions(session)
    floors = {"lane_floors": f"{{{floor}}}"}
    monkeypatch.setattr(ClaimFloors, "ask", lambda *of: (ask(*of)[0] | floors, None))
    other = floor - 1 if below else floor + 1
    await hands.exchange(limit=10, followed=following(other, floor))
    end = "::" if below else f":k:{other},{floor}"
    assert (await told(store, heard))[-1] == f"{floor}{end}"


async def test_who_may_not_claim_keeps_no_other_from_looking(
    store: Store, hands: Hands, heard: Heard, session: Any
) -> None:
    await enqueued(store, job())
    (first,) = await positions(session)
    await store.set_status(hands.me, WorkerStatus.DRAINING)
    await hands.exchange(limit=10, followed=following(first))
    assert await told(store, heard) == []


async def test_peers_are_those_who_serve_the_same(store: PostgresStore, hands: Hands) -> None:
    others = [
        await Hands.on(store, "alike"),
        await Hands.on(store, "other queue", queues=["q"]),
        await Hands.on(store, "other task", tasks=["other"]),
        await Hands.on(store, "draining"),
    ]
    await store.set_status(others[-1].me, WorkerStatus.DRAINING)
    counts = [await store.count_peers(each.me) for each in (hands, *others)]
    assert counts == [(2, 0), (2, 1), (1, 0), (1, 0), (2, 2)]


class Trips:
    """Counts exchanges without ends, and how often each worker's reaper has run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trips = 0
        self.looked = Counter[Any]()
        real_exchange, real_run_once = PostgresExchange.exchange, Reaper.run_once

        async def exchange(each: Any, me: Any, ends: Any, requests: Any) -> Any:
            self.trips += not ends
            return await real_exchange(each, me, ends, requests)

        async def run_once(each: Reaper) -> float:
            pause = await real_run_once(each)
            self.looked[each] += 1
            return pause

        monkeypatch.setattr(PostgresExchange, "exchange", exchange)
        monkeypatch.setattr(Reaper, "run_once", run_once)

    async def looks_of_all(self) -> None:
        """Return once each worker has looked twice from now on."""
        self.looked.clear()
        async with asyncio.timeout(DEADLINE):
            while len(self.looked) < WORKERS or min(self.looked.values()) < 2:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def idle_workers(app: outlast.App) -> AsyncIterator[None]:
    """Run many workers that hear wake-ups and have counted each other."""
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(embedded(app, presence=False, poll=60.0))
            for _ in range(WORKERS)
        ]
        async with asyncio.timeout(DEADLINE):
            while not all(
                each._wakeup is not None and each._wakeup.health.good for each in workers
            ):
                await asyncio.sleep(0.01)
        for each in workers:
            store: Any = each._store
            await PeerCount(store, each.registration, each._turns).run_once()
            assert each._turns.peers == WORKERS
        yield


@pytest.mark.slow
async def test_one_job_sets_off_few_trips_of_many_idle_workers(
    pg_url: str, store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Also once each of them has looked at the store. Their steps are far longer than a claim takes
    on a machine under load, where otherwise all look before the first one is heard of."""
    monkeypatch.setenv("OUTLAST_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(pacing, "STEP_SECONDS_MIN", 2.0)
    monkeypatch.setattr(pacing, "STEP_SECONDS_MAX", 2.0)
    counts = Trips(monkeypatch)
    app = outlast.App(pg_url)
    done = asyncio.Semaphore(0)

    @app.task
    async def work() -> None:
        done.release()

    async with idle_workers(app):
        await counts.looks_of_all()
        counts.trips = 0
        for _ in range(JOBS):
            await work.enqueue()
            async with asyncio.timeout(DEADLINE):
                await done.acquire()
        await counts.looks_of_all()
        assert 0 < counts.trips <= 5 * JOBS, "a trip with an end may take the next job"
    await app.close()
