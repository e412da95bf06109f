"""A row that changes after an exchange saw it and before it locks it is found in its new state."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from outlast.model.job import Policy, State
from outlast.store.postgres.exchange import PostgresExchange
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import Answer, Upstream
from tests.conformance.kit import TASK, Hands, ended, enqueued, job
from tests.postgres.kit import change_function

WAITING = """SELECT count(*) FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock'"""
PAUSED = "(SELECT pg_advisory_xact_lock_shared(42)::text OFFSET 0) p CROSS JOIN "
SEEN_BY = {
    "completion": ("outlast_hand_in_v1", "unnest(p_done_ids, p_done_tokens, p"),
    "completion alone": ("outlast_complete_v1", "unnest(p_ids, p_tokens, p_results)"),
    "claim": ("outlast_lock_lanes_v1", "(SELECT u.queue, u.task, u.rank, u.low"),
    "claim of merged lanes": ("outlast_lock_lanes_v1", "candidate c\n              JOIN"),
}


async def pause_between_snapshot_and_lock(session: Any, what: str) -> None:
    """Make the function as it is in the migration wait for lock 42 within the statement."""
    name, source = SEEN_BY[what]
    await session.execute(change_function(name, source, PAUSED + source))


@pytest.mark.parametrize("what", SEEN_BY)
async def test_a_row_that_changes_between_snapshot_and_lock_is_found_in_its_new_state(
    what: str, store: PostgresStore, hands: Hands, session: Any
) -> None:
    tasks = [TASK, "u"] if what == "claim of merged lanes" else [TASK]
    await enqueued(store, *[job(task=task) for task in tasks])
    ends = [ended(await hands.claim_one())] if what.startswith("completion") else []
    await pause_between_snapshot_and_lock(session, what)
    await session.execute("SELECT pg_advisory_lock(42)")
    limit = 0 if what == "completion alone" else len(tasks)
    exchange = asyncio.create_task(hands.exchange(*ends, limit=limit, tasks=tasks))
    async with asyncio.timeout(60):
        while await session.fetchval(WAITING) < 1:
            await asyncio.sleep(0.01)
    await session.execute("UPDATE outlast_jobs SET progress = 'other'")
    await session.execute("SELECT pg_advisory_unlock(42)")
    reply = await exchange
    assert reply.answers == [Answer.ACCEPTED for _ in ends]
    assert len(reply.claimed) == (0 if ends else len(tasks))
    state = State.COMPLETED if ends else State.RUNNING
    assert await session.fetch("SELECT DISTINCT state FROM outlast_jobs") == [(state.value,)]


async def test_completions_make_no_exchange_if_they_come_alone_and_nothing_else_follows(
    store: PostgresStore, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    ask = PostgresExchange._ask

    async def count(self: Any, me: Any, ends: list[Any], requests: Any) -> Any:
        asked.extend(end.job_id for end in ends)
        return await ask(self, me, ends, requests)

    plain, unkept, awaited, failed = await enqueued(
        store, job(), job(policy=Policy(keep=0.0)), job(), job()
    )
    await enqueued(store, job(after=[Upstream(awaited)]))
    ends = {each.job_id: ended(each) for each in await hands.claim()}
    ends[failed] = msgspec.structs.replace(ends[failed], token=ends[failed].token + 100)
    monkeypatch.setattr(PostgresExchange, "_ask", count)
    reply = await hands.exchange(*ends.values())
    answers = dict(zip(ends, reply.answers, strict=True))
    assert answers == {
        plain: Answer.ACCEPTED,
        unkept: Answer.ACCEPTED,
        awaited: Answer.ACCEPTED,
        failed: Answer.REFUSED,
    }
    assert asked == [unkept, awaited, failed]
    assert len(await hands.claim()) == 1, "what waited for one of them"
