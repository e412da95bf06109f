"""What a worker's row says of a duty that fails: for people, and only while the worker lives."""

from __future__ import annotations

from outlast.model.crash import Progress
from outlast.store.protocol import Store
from outlast.store.rows import Held, WorkerStatus
from outlast.store.values import Failing, Report
from tests.conformance.kit import Hands, enqueued, job

REFUSED = Failing("exchange", "NotPermitted: no", 90.0)


async def test_a_failing_duty_is_on_the_row_until_it_recovers(hands: Hands) -> None:
    assert (await hands.row()).failing is None
    await hands.store.tell_failing(hands.me, REFUSED)
    row = await hands.row()
    assert row.failing == "exchange: NotPermitted: no"
    assert row.failing_since is not None
    assert 85.0 < row.heartbeat_at - row.failing_since < 91.0
    await hands.store.tell_failing(hands.me, None)
    row = await hands.row()
    assert (row.failing, row.failing_since) == (None, None)


async def test_reporting_a_failure_changes_one_row_and_is_no_beat(
    hands: Hands, store: Store
) -> None:
    other = await Hands.on(store, "w2")
    before = await hands.row()
    await store.tell_failing(hands.me, REFUSED)
    after = await hands.row()
    assert (after.beat, after.heartbeat_at) == (before.beat, before.heartbeat_at)
    assert (await other.row()).failing is None


async def test_an_ended_row_keeps_its_last_failure(hands: Hands, store: Store) -> None:
    await store.tell_failing(hands.me, REFUSED)
    await store.set_status(hands.me, WorkerStatus.STOPPED)
    await store.tell_failing(hands.me, None)
    assert (await hands.row()).failing == "exchange: NotPermitted: no"


async def test_the_store_measures_how_long_a_worker_is_silent(hands: Hands) -> None:
    unheard = (await hands.row()).unheard
    assert unheard is not None
    assert 0.0 <= unheard < 60.0


async def test_running_jobs_and_what_they_wait_for_are_read(hands: Hands, store: Store) -> None:
    await enqueued(store, job(), job(), job())
    first, second = await hands.claim(2)
    assert await store.inspector.held() == [
        Held(first.job_id, hands.me.worker_id), Held(second.job_id, hands.me.worker_id)
    ]  # fmt: skip
    await store.progress([Report(first.job_id, first.token, Progress(0.5, waits_for=99))])
    held = await store.inspector.held()
    assert {one.job_id: one.waits_for for one in held} == {first.job_id: 99, second.job_id: None}
    assert len(await store.inspector.held(limit=1)) == 1
