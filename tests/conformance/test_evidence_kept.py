"""Which attempts are kept of a job that runs again and again uncharged, on both stores."""

from __future__ import annotations

import pytest

from outlast.insight.verify import verify
from outlast.model.crash import CrashKind
from outlast.model.job import Policy
from outlast.model.lifecycle import (
    UNDECODABLE_PAUSE_MAX_SECONDS,
    UNDECODABLE_PAUSE_SECONDS,
    OutcomeKind,
)
from outlast.store.protocol import ATTEMPTS_KEPT_FIRST, ATTEMPTS_KEPT_LAST, Store
from outlast.store.rows import AttemptRow
from outlast.store.values import Answer
from tests.conformance.kit import Hands, crashed, ended, enqueued, job, row_of

KEPT = ATTEMPTS_KEPT_FIRST + ATTEMPTS_KEPT_LAST


async def snooze(hands: Hands, times: int) -> None:
    for _ in range(times):
        claimed = await hands.claim_one()
        assert await hands.hand_in(ended(claimed, OutcomeKind.SNOOZED, delay=0.0)) == ["accepted"]


async def kept(store: Store, job_id: int) -> list[AttemptRow]:
    return await store.inspector.attempts(job_id)


async def test_a_job_that_snoozes_for_ever_keeps_its_first_and_last_attempts(
    store: Store, hands: Hands
) -> None:
    (job_id,) = await enqueued(store)
    await snooze(hands, KEPT + 15)
    rows = await kept(store, job_id)
    last = KEPT + 15
    first_numbers = list(range(1, ATTEMPTS_KEPT_FIRST + 1))
    last_numbers = list(range(last - ATTEMPTS_KEPT_LAST + 1, last + 1))
    assert [row.number for row in rows] == first_numbers + last_numbers
    assert rows[-1].dropped == 15
    assert [row.repeats for row in rows][-2:] == [last - 1, last]
    await hands.hand_in(ended(await hands.claim_one()))
    verified = await verify(store.inspector)
    assert verified.findings == []
    assert verified.attempts == KEPT


async def test_nothing_is_dropped_below_the_bound(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store)
    await snooze(hands, KEPT)
    rows = await kept(store, job_id)
    assert [row.number for row in rows] == list(range(1, KEPT + 1))
    assert {row.dropped for row in rows} == {0}


async def test_charged_attempts_are_never_dropped(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job(policy=Policy(retries=100, backoff_first=0.0)))
    await snooze(hands, ATTEMPTS_KEPT_FIRST + 2)
    await hands.hand_in(crashed(await hands.claim_one(), CrashKind.ERROR, delay=0.0))
    failed = ATTEMPTS_KEPT_FIRST + 3
    await snooze(hands, KEPT)
    rows = await kept(store, job_id)
    assert [row.number for row in rows if row.charge == "failure"] == [failed]
    assert rows[-1].dropped == failed + KEPT - len(rows)
    assert (await verify(store.inspector)).findings == []


async def test_the_count_goes_on_over_charged_ends(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job(policy=Policy(retries=100, backoff_first=0.0)))
    await snooze(hands, KEPT)
    await hands.hand_in(crashed(await hands.claim_one(), CrashKind.ERROR, delay=0.0))
    rows = await kept(store, job_id)
    assert (rows[-1].dropped, rows[-1].repeats) == (1, 1)
    await snooze(hands, 1)
    rows = await kept(store, job_id)
    assert (rows[-1].dropped, rows[-1].repeats) == (2, 1)
    assert len(rows) == KEPT
    assert (await verify(store.inspector)).findings == []


async def test_many_jobs_that_end_in_one_batch_are_counted_each_for_itself(
    store: Store, hands: Hands
) -> None:
    ids = await enqueued(store, job(), job(), job())
    for _ in range(KEPT + 2):
        batch = await hands.claim(3)
        await hands.hand_in(*(ended(one, OutcomeKind.RELEASED, delay=0.0) for one in batch))
    for job_id in ids:
        rows = await kept(store, job_id)
        assert (len(rows), rows[-1].dropped) == (KEPT, 2)
    assert (await verify(store.inspector)).findings == []


async def test_a_repeated_end_drops_no_further_attempts(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store)
    await snooze(hands, KEPT + 4)
    end = ended(await hands.claim_one(), OutcomeKind.SNOOZED, delay=0.0)
    assert await hands.hand_in(end) == [Answer.ACCEPTED]
    assert await hands.hand_in(end) == [Answer.ALREADY]
    rows = await kept(store, job_id)
    assert (len(rows), rows[-1].dropped) == (KEPT, 5)


async def test_the_pause_of_an_undecodable_job_doubles_up_to_its_maximum(
    store: Store, hands: Hands
) -> None:
    (job_id,) = await enqueued(store)
    pauses = [await undecodable_pause(store, hands, job_id) for _ in range(9)]
    wanted = [
        min(UNDECODABLE_PAUSE_MAX_SECONDS, UNDECODABLE_PAUSE_SECONDS * 2**n) for n in range(9)
    ]
    assert pauses == [pytest.approx(pause, abs=0.01) for pause in wanted]
    await revive(store, job_id)
    await hands.hand_in(ended(await hands.claim_one(), OutcomeKind.RELEASED, delay=0.0))
    assert await undecodable_pause(store, hands, job_id) == pytest.approx(10.0, abs=0.01)


async def undecodable_pause(store: Store, hands: Hands, job_id: int) -> float:
    """End an attempt so; return how many seconds the job then waits."""
    await revive(store, job_id)
    await hands.hand_in(crashed(await hands.claim_one(), CrashKind.UNDECODABLE))
    row = await row_of(store, job_id)
    assert row.waiting
    return row.run_at - (await kept(store, job_id))[-1].ended_at


async def revive(store: Store, job_id: int) -> None:
    """Let a job that waits out its pause be due now, as an operator can."""
    await store.cancel([job_id])
    await store.requeue([job_id])
