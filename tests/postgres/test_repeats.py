"""Replacements of a waiting job, overlapped with its claim, its end and other enqueues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlast.store.limits import DeclaredTask
from outlast.store.protocol import Store
from outlast.store.values import NewJob, OnKey
from tests.conformance.kit import TASK, Hands, ended, enqueued, job, on, row_of
from tests.postgres.kit import blocked

BEGIN = """UPDATE outlast_jobs SET state = 'running', token = nextval('outlast_token_seq'),
           attempt_count = 1, worker_id = $2, started_at = 0, position = NULL WHERE id = $1"""


def keyed(args: str) -> NewJob:
    return job(args=args, key="k", on_key=OnKey(replaces=True, until_start=True))


async def test_a_replacement_waits_for_a_claim_that_is_not_committed_yet(
    store: Store, hands: Hands, session: Any
) -> None:
    """Else it would change the arguments under the attempt, and no attempt would run them."""
    (first,) = await enqueued(store, keyed('{"n":1}'))
    async with session.transaction():
        await session.execute(BEGIN, first, hands.me.worker_id)
        late = asyncio.create_task(store.enqueue([keyed('{"n":2}')]))
        await blocked(session)
    (second,) = await late
    assert second.created
    assert (await row_of(store, first)).args == '{"n":1}'
    assert [each.args for each in await hands.claim(9)] == ['{"n":2}']


async def test_the_end_of_a_job_that_lets_go_of_its_key_comes_after_the_commit(
    store: Store, hands: Hands, session: Any
) -> None:
    (first,) = await enqueued(store, keyed('{"n":1}'))
    mine = await hands.claim_one()
    async with session.transaction():
        (second,) = await on(session).enqueue([keyed('{"n":2}')])
        assert second.created
        (busy,) = await hands.hand_in(ended(mine))
        assert busy.value == "busy"
    (answer,) = await hands.hand_in(ended(mine))
    assert answer.value == "accepted"
    assert (await hands.claim_one()).job_id == second.job_id
    assert first != second.job_id


@pytest.mark.parametrize("by_sql", [True, False])
@pytest.mark.parametrize("commits", [True, False])
async def test_an_enqueue_in_a_window_waits_for_one_that_is_not_committed_yet(
    store: Any, session: Any, commits: bool, by_sql: bool
) -> None:
    """Also where the other's job has ended by then, so that its key holds up no one."""
    once = job(key="k", on_key=OnKey(window=1e9))
    assert await store.declare_limits([], [DeclaredTask(TASK)])

    async def enqueue() -> int:
        if by_sql:
            called = f"SELECT outlast_enqueue_v1('{TASK}', key => 'k', once_per => 1e9)"
            return int((await store._fetch(called))[0][0])
        return (await enqueued(store, once))[0]

    transaction = session.transaction()
    await transaction.start()
    (first,) = await on(session).enqueue([once])
    await session.execute(
        "UPDATE outlast_jobs SET state = 'cancelled', ended_at = 0, position = NULL WHERE id = $1",
        first.job_id,
    )
    late = asyncio.create_task(enqueue())
    await blocked(session)
    await (transaction.commit() if commits else transaction.rollback())
    assert (await late == first.job_id) == commits
