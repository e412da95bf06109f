"""A trigger of the user's refuses a change of one job: the others go on, and it is named."""

from __future__ import annotations

from typing import NoReturn

import pytest

from outlast.errors import BadData
from outlast.model.crash import CrashKind
from outlast.model.job import State
from outlast.model.lifecycle import Transition
from outlast.store.protocol import Store
from outlast.store.values import Answer, ClaimRequest
from outlast.worker.claims.counters import Counters
from outlast.worker.claims.dead_jobs import reclaim_and_tell
from outlast.worker.claims.exchange import exchange_bisecting
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import TASK, Hands, crashed, ended, enqueued, job, lost_worker, row_of

GUARDED = "app.guarded"
TRIGGER = "CREATE TRIGGER of_user BEFORE UPDATE OF state ON outlast_jobs"


async def refuse(url: str, when: str) -> None:
    """Let a trigger refuse each change of a job's state that fits."""
    async with raw(url) as other:
        if url.startswith("sqlite"):
            body = "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
            assert await other.run(f"{TRIGGER} WHEN {when} {body}")
            return
        body = "BEGIN RAISE 'not this one'; END"
        function = f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $${body}$$"
        assert await other.run(function)
        assert await other.run(f"{TRIGGER} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION refuse()")


def not_called(*_: object) -> NoReturn:
    raise AssertionError("no end was refused")


async def test_a_task_whose_job_may_not_start_leaves_the_other_tasks_alone(
    store: Store, hands: Hands
) -> None:
    await refuse(store.url, f"new.state = 'running' AND new.task = '{GUARDED}'")
    guarded, *others = await enqueued(store, job(task=GUARDED), *[job() for _ in range(4)])
    asked = [ClaimRequest([GUARDED, TASK], 2)]
    held = (await exchange_bisecting(store, hands.me, [], asked, not_called)).claimed
    ends = [ended(each) for each in held]
    held += (await exchange_bisecting(store, hands.me, ends, asked, not_called)).claimed
    assert sorted(each.job_id for each in held) == others
    with pytest.raises(BadData, match=f"no job of {GUARDED} .*not this one") as told:
        await exchange_bisecting(store, hands.me, [], asked, not_called)
    assert ("function refuse()" in str(told.value)) is not store.url.startswith("sqlite")
    assert (await row_of(store, guarded)).state is State.QUEUED


async def test_an_attempt_that_may_not_end_is_busy_and_the_others_end(
    store: Store, hands: Hands
) -> None:
    ids = await enqueued(store, job(), job(), job())
    await refuse(store.url, f"old.state = 'running' AND old.id = {ids[1]}")
    held = await hands.claim(3)
    ends = [ended(each) for each in held]

    def reject(end: Transition, _: str) -> Transition:
        assert end.job_id == ids[1]
        return crashed(held[1], CrashKind.REJECTED_RESULT)

    reply = await exchange_bisecting(store, hands.me, ends, [], reject)
    assert reply.answers == [Answer.ACCEPTED, Answer.BUSY, Answer.ACCEPTED]


async def test_an_orphan_that_may_not_leave_its_worker_keeps_back_no_other(
    store: Store, hands: Hands
) -> None:
    ids = await enqueued(store, job(), job(), job())
    await refuse(store.url, f"old.state = 'running' AND old.id = {ids[1]}")
    await hands.claim(3)
    await hands.vanish()
    closed, refused = await reclaim_and_tell(store, lost_worker, Counters())
    assert sorted(each.job_id for each in closed) == [ids[0], ids[2]]
    assert f"job {ids[1]} cannot" in str(refused)
    assert "not this one" in str(refused)
