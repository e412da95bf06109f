"""Events and ends of attempts that wait for them, overlapped at their worst moments."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from outlast.errors import BadData
from outlast.insight.verify import verify
from outlast.store.postgres.statements import ends_text
from outlast.store.protocol import Store
from outlast.store.values import Answer, NewEvent
from tests.conformance.kit import Hands, enqueued, job, lost_worker, on, row_of
from tests.conformance.test_events import NAME, send, waits


async def test_an_event_of_a_transaction_that_was_open_before_anyone_waited_wakes_the_job(
    store: Store, hands: Hands, session: Any
) -> None:
    """Neither of the two sees the other's rows."""
    await enqueued(store)
    mine = await hands.claim_one()
    async with session.transaction():
        assert await on(session).send_event(NewEvent(NAME, "[1]"))
        await hands.hand_in(waits(mine))
        assert await hands.claim() == []
    assert (await hands.claim_one()).job_id == mine.job_id


async def test_an_event_that_comes_between_an_exchanges_look_and_its_commit_wakes_the_job(
    store: Store, hands: Hands, session: Any
) -> None:
    """The exchange that has handed in the end does not look at the notice of that end itself:
    it would not see the event, and another has done the notice of the event by then."""
    await enqueued(store)
    mine = await hands.claim_one()
    async with session.transaction():
        await session.fetch("SELECT outlast_end_v1($1)", ends_text([waits(mine)]))
        await session.fetch("SELECT outlast_resolve_v1(500)")
        await send(store)
        assert await hands.claim() == []
    assert (await hands.claim_one()).job_id == mine.job_id


async def test_an_end_that_is_refused_waits_for_nothing(store: Store, hands: Hands) -> None:
    """A reaper has given the job back: an event must not cut the pause before its next attempt."""
    await enqueued(store)
    late = await hands.claim_one()
    await hands.vanish()
    assert await store.reclaim(lambda orphan: replace(lost_worker(orphan), delay=3_600.0))
    assert await hands.hand_in(waits(late)) == [Answer.REFUSED]
    assert (await row_of(store, late.job_id)).event is None
    await send(store)
    assert await (await Hands.on(store, "w2")).claim() == []


async def test_a_session_that_holds_a_job_that_waits_delays_no_other(
    store: Store, hands: Hands, session: Any
) -> None:
    held, free = await enqueued(store, job(), job())
    await hands.hand_in(*map(waits, await hands.claim()))
    async with session.transaction():
        await session.fetch("SELECT FROM outlast_jobs WHERE id = $1 FOR UPDATE", held)
        await send(store)
        assert [each.job_id for each in await hands.claim()] == [free]
    assert (await hands.claim_one()).job_id == held


async def test_the_first_sender_to_commit_is_the_one_whose_value_is_kept(
    store: Store, session: Any
) -> None:
    transaction = session.transaction()
    await transaction.start()
    assert await on(session).send_event(NewEvent(NAME, "[1]"))
    await transaction.rollback()
    assert await send(store, "[2]")
    assert not await on(session).send_event(NewEvent(NAME, "[3]"))
    assert await store.find_event(NAME) == "[2]"


@pytest.mark.parametrize("value", ["null", "no JSON", '{"a":1}', "2"])
async def test_what_no_attempt_could_read_is_kept_for_none(store: Store, value: Any) -> None:
    with pytest.raises(BadData, match=r"json|JSON"):
        await send(store, value)
    assert await store.find_event(NAME) is None


async def test_an_event_of_any_size_is_not_kept(store: Store) -> None:
    with pytest.raises(BadData, match="has 26000004 bytes"):
        await send(store, f'["{"x" * 26_000_000}"]')
    assert await send(store)


async def test_an_event_that_nothing_would_tell_is_found_by_verify(
    store: Store, hands: Hands, session: Any
) -> None:
    await enqueued(store)
    mine = await hands.claim_one()
    await hands.hand_in(waits(mine))
    await send(store)
    assert await store.inspector.unresolved() == []
    await session.fetch("DELETE FROM outlast_upstream_notices")
    (found,) = (await verify(store.inspector)).findings
    assert found.job_id == mine.job_id
    assert found.sentence == "it waits for the event 'approve:17', but nothing would wake it"
