"""Calls that their callers cancel, as a deadline does: what they have begun is for the next one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from harness.proxy import Proxy, proxied
from outlast.store.postgres import pool
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import NewJob, OnKey, Upstream, Wants
from tests.conformance.kit import enqueued, job
from tests.postgres.kit import until

CALLS_MAX = 30  # more than a new session has round trips to its first job


class Deadline:
    """Cancels a call at the first message after a number of answers."""

    def __init__(self, proxy: Proxy) -> None:
        proxy.on_asked = self._count
        self._call: asyncio.Task[Any] | None = None
        self.messages = 0
        self._most = 0

    def _count(self) -> None:
        self.messages += 1
        if self.messages > self._most and self._call is not None:
            self._call.cancel()

    async def allows(self, store: PostgresStore, jobs: list[NewJob], answers: int) -> bool:
        """Whether this store has stored these jobs by then."""
        self.messages, self._most = 0, answers
        self._call = asyncio.create_task(store.enqueue(jobs))
        await asyncio.wait([self._call])
        done, self._call = not self._call.cancelled(), None
        return done


@pytest.fixture
async def through(
    pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Deadline, str]]:
    monkeypatch.setattr(pool, "HUNG_SECONDS", 60.0)  # a busy machine needs more than two
    async with proxied(pg_url) as (proxy, url):
        yield Deadline(proxy), url


async def is_calm(store: PostgresStore) -> None:
    """Return once nothing is left to be done of calls that were cancelled."""
    while left := store._connections.loop_pool().left:
        await asyncio.wait(left)


async def count_sessions(session: Any) -> int:
    """Return how many sessions this database has besides the one that asks."""
    return int(
        await session.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
    )


JOBS: dict[str, list[NewJob]] = {
    "one": [job()],
    "with a key": [job(key="k")],
    "that replaces another": [job(key="k", on_key=OnKey(replaces=True))],
    "after another": [job(after=(Upstream(1, Wants.COMPLETED),))],
}


@pytest.mark.parametrize("connections", [1, 4])
@pytest.mark.parametrize("kind", JOBS)
async def test_a_deadline_that_suffices_in_a_used_session_suffices_after_a_few_calls(
    session: Any, store: PostgresStore, through: tuple[Deadline, str], kind: str, connections: int
) -> None:
    deadline, url = through
    await enqueued(store)
    await store.close()
    used = PostgresStore(url)
    for _ in range(4):
        assert await deadline.allows(used, JOBS[kind], CALLS_MAX)
    answers = deadline.messages
    await used.close()
    new = PostgresStore(url, connections=connections)
    for _ in range(CALLS_MAX):
        if await deadline.allows(new, JOBS[kind], answers):
            break
        await is_calm(new)
    else:
        pytest.fail(f"no call came through with {answers} answers")
    assert await count_sessions(session) <= connections
    await new.close()


async def test_a_call_that_is_cancelled_leaves_one_session_or_none(
    session: Any, store: PostgresStore, through: tuple[Deadline, str]
) -> None:
    """At each of its messages."""
    deadline, url = through
    await store.close()

    async def none_is_left() -> bool:
        return await count_sessions(session) == 0

    for then_closes in (False, True):
        for answers in range(CALLS_MAX):
            own = PostgresStore(url)
            has_ended = await deadline.allows(own, JOBS["one"], answers)
            if not then_closes:
                await own.enqueue([job()])
                assert await count_sessions(session) == 1
            await own.close()
            assert not own._connections.loop_pool().left
            await until(none_is_left)
            if has_ended:
                break
        assert answers > 5


async def test_a_session_that_does_not_answer_is_left_to_no_call(
    pg_url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call opens another one: the host may be frozen, and another one in its place."""
    monkeypatch.setattr(pool, "HUNG_SECONDS", 0.2)
    async with proxied(pg_url) as (proxy, url):
        own = PostgresStore(url)
        for is_new in (True, False):
            if not is_new:
                await own.enqueue([job()])
            proxy.on_asked = proxy.hold
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await own.enqueue([job()])
            async with asyncio.timeout(25):
                await is_calm(own)
            proxy.on_asked = lambda: None
            proxy.release()
        await own.enqueue([job()])
        await own.close()


async def test_no_session_collects_statements_of_calls_that_were_cancelled_as_it_prepared_them(
    through: tuple[Deadline, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "CANCELLED_MAX", 3)
    deadline, url = through
    own = PostgresStore(url)
    await own.migrations()
    for _ in range(4):
        (session,) = own._connections.loop_pool().idle[False]
        assert not await deadline.allows(own, JOBS["one"], 0)
        await is_calm(own)
    assert session.is_closed()
    await own.close()
