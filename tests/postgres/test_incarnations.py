"""A worker that stays up while its database becomes another one."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.errors import StoreUnavailable
from outlast.model.job import State
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import Answer, Save
from tests.conformance.kit import Hands, ended, enqueued, job, row_of


@pytest.fixture
def store_url(pg_url: str) -> str:
    """Only PostgreSQL."""
    return pg_url


async def become_another(session: Any) -> None:
    """Do what a recovery does, and what the first worker does that comes back after it: a restore
    to an earlier moment leaves the rows of the other workers at their epochs."""
    await session.execute("DELETE FROM outlast_incarnation")
    await session.execute("SELECT outlast_begin_incarnation_v1()")


async def test_a_claim_from_another_incarnation_counts_as_lost(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    first, second = await enqueued(store, job(), job())
    done = await hands.claim_one()
    await become_another(session)
    with pytest.raises(StoreUnavailable):
        await hands.exchange(ended(done), limit=1)
    assert (await row_of(store, second)).state is State.RUNNING

    again = await store.reconnect(hands.me, done.token)
    assert again is not None
    released = await store.reconcile(again, [done.token])
    assert [job_id for job_id, _ in released] == [second]
    back = Hands(store, again)
    reply = await back.exchange(ended(done), limit=1)
    assert reply.answers == [Answer.ALREADY]
    assert (await row_of(store, first)).state is State.COMPLETED
    (claimed,) = reply.claimed
    assert (claimed.job_id, claimed.failures, claimed.losses) == (second, 0, 0)
    assert [each.charge for each in await store.inspector.attempts(second)] == ["none"]


async def test_an_epoch_belongs_to_the_incarnation_in_which_it_was_given(
    store: PostgresStore, session: Any
) -> None:
    """A worker may not claim for long after it has registered or reconnected."""
    await enqueued(store, job())
    hands = await Hands.on(store)
    for _ in range(2):
        await become_another(session)
        with pytest.raises(StoreUnavailable):
            await hands.exchange(limit=1)
        again = await store.reconnect(hands.me, 0)
        assert again is not None
        assert await store.reconcile(again, [])
        hands = Hands(store, again)
    assert len((await hands.exchange(limit=1)).claimed) == 1, "no second reconnect is needed"


async def test_what_an_attempt_writes_outlives_the_incarnation(
    store: PostgresStore, hands: Hands, session: Any
) -> None:
    """Its token is the one on the row: the attempt began before the moment of the restore."""
    await enqueued(store, job())
    claimed = await hands.claim_one()
    await become_another(session)
    assert (await store.heartbeat(hands.me)).renewed
    save = Save(claimed.job_id, claimed.token, 1, "{}", 0)
    assert await store.checkpoint([save]) == [Answer.ACCEPTED]
    assert (await hands.exchange(ended(claimed))).answers == [Answer.ACCEPTED]
