"""What people ask of a store and do to many jobs at once: the functions under the commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from outlast.insight import actions
from outlast.insight.actions import CannotDrain, DeadJobs, ask_to_drain, follow_drain
from outlast.insight.queries import list_jobs, list_workers, read_dossier, read_situation
from outlast.model.job import State
from outlast.model.lifecycle import OutcomeKind
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter, WorkerStatus
from outlast.store.values import NewJob, Requeued
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import Hands, crashed, ended, enqueued, job


class Counting:
    """A store, or its inspector, that notes which verbs are called."""

    def __init__(self, real: Any, calls: list[str]) -> None:
        self._real = real
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        if name == "inspector":
            return Counting(self._real.inspector, self._calls)
        self._calls.append(name)
        return getattr(self._real, name)


async def calls_of(action: Any, store: Store, *arguments: Any) -> list[str]:
    """Return the verbs that an action calls; each is one statement."""
    calls: list[str] = []
    await action(Counting(store, calls), *arguments)
    return calls


async def dead(store: Store, hands: Hands, *jobs: NewJob) -> Sequence[int]:
    """Return the ids of jobs that have died after an attempt that was handed back."""
    ids = await enqueued(store, *jobs)
    for end in (OutcomeKind.RELEASED, OutcomeKind.DEAD):
        claimed = await hands.claim()
        await hands.hand_in(*[ended(one, end, message=f"no {one.job_id}") for one in claimed])
    return ids


async def test_dead_jobs_are_listed_in_few_statements_however_many_they_are(
    store: Store, hands: Hands
) -> None:
    ids = await dead(store, hands, *[job() for _ in range(12)])
    assert await calls_of(actions.find_dead, store, DeadJobs(), 100) == ["job_ids"]
    named = (await actions.find_dead(store, DeadJobs(), 100)).ids
    calls: list[str] = []
    found = [each async for each in actions.read_dead(Counting(store, calls), named)]
    assert calls == ["last_attempts"]
    assert [row.id for row, _ in found] == ids[::-1]
    assert [last and last.message for _, last in found] == [f"no {one}" for one in ids[::-1]]


async def test_tokens_are_raised_in_two_statements_however_many_jobs_there_are(
    store: Store, hands: Hands
) -> None:
    await enqueued(store, *[job() for _ in range(1_500)])
    last = (await hands.claim(3))[-1].token
    calls = await calls_of(actions.raise_tokens, store, 0.0)
    assert calls == ["last_token", "raise_tokens"]
    assert (await hands.claim_one()).token > last + actions.TOKEN_STEP
    raised = await actions.raise_tokens(store, 1e10)
    assert raised.above == int(1e16)
    assert (await hands.claim_one()).token > raised.above


async def test_a_token_that_was_never_issued_lifts_no_others_to_the_end(
    store_url: str, store: Store, hands: Hands
) -> None:
    """After a restore they go on above those that were issued: beside the highest number there is,
    none could be drawn any more."""
    (forged, _) = await enqueued(store, job(), job(delay=60))
    async with raw(store_url) as rows:
        assert await rows.run(
            "UPDATE outlast_jobs SET state = 'dead', ended_at = run_at, position = NULL,"
            f" token = {2**63 - 1} WHERE id = {forged}"
        )
    raised = await actions.raise_tokens(store, 1e9)
    assert 10**15 <= raised.above < 10**17
    await enqueued(store)
    assert (await hands.claim_one()).token > raised.above


async def test_dead_jobs_are_revived_by_filter_in_batches(
    store: Store, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "BATCH", 2)
    ids = await dead(store, hands, *[job(tenant="a") for _ in range(5)], job(tenant="b"))
    done = [each async for each in actions.requeue_dead(store, DeadJobs(tenant="a"))]
    assert [len(each.batch.ids) for each in done] == [2, 2, 1]
    assert {one for each in done for one in each.answers} == set(ids[:5])
    assert (await store.inspector.counts())["default", State.DEAD] == 1


async def test_many_jobs_are_cancelled_and_revived_in_batches_each_a_transaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "BATCH", 2)
    ids = [*await enqueued(store, *[job() for _ in range(5)]), 999]
    calls: list[str] = []
    for do in (actions.cancel_jobs, actions.requeue_jobs):
        done = [each async for each in do(Counting(store, calls), ids)]
        assert [one for each in done for one in each.batch.ids] == ids
        answers = {one: answer for each in done for one, answer in each.answers.items()}
        assert set(answers) == {*ids[:5]}
    assert calls == ["cancel"] * 3 + ["requeue"] * 3
    assert await store.inspector.counts() == {("default", State.QUEUED): 5}


async def test_only_the_dead_ones_of_named_jobs_are_changed(store: Store, hands: Hands) -> None:
    (first, second) = await dead(store, hands, job(), job())
    (queued,) = await enqueued(store)
    named = DeadJobs([first, queued, 999])
    (done,) = [each async for each in actions.requeue_dead(store, named)]
    assert done.answers == {first: Requeued.REQUEUED}
    assert done.batch.others == {queued: State.QUEUED, 999: None}
    (gone,) = [each async for each in actions.discard_dead(store, DeadJobs([queued, second]))]
    assert (gone.count, gone.batch.others) == (1, {queued: State.QUEUED})
    assert await store.inspector.job(second) is None


async def test_an_empty_list_of_ids_means_no_jobs(store: Store, hands: Hands) -> None:
    (job_id,) = await dead(store, hands, job())
    assert [each async for each in actions.discard_dead(store, DeadJobs([]))] == []
    assert [each async for each in actions.requeue_dead(store, DeadJobs([]))] == []
    found = await store.inspector.job(job_id)
    assert found is not None
    assert found.state is State.DEAD


async def test_reading_a_job_returns_all_that_a_page_needs(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store)
    await hands.hand_in(crashed(await hands.claim_one(), delay=60.0))
    dossier = await read_dossier(store, job_id, 1.0)
    situation = await read_situation(store, job_id, 1.0)
    assert dossier is not None
    assert situation is not None
    assert dossier.phase == "retrying"
    assert [one.outcome for one in dossier.attempts] == ["error"]
    assert (situation.row, situation.attempts) == (dossier.row, dossier.attempts)
    assert await read_dossier(store, 999, 1.0) is None
    assert await read_situation(store, 999, 1.0) is None


async def test_jobs_are_listed_by_phase(store: Store) -> None:
    _, scheduled, unservable = await enqueued(store, job(), job(delay=60.0), job(task="old"))
    await Hands.on(store)
    for phase, job_id in (("scheduled", scheduled), ("unservable", unservable)):
        found = await list_jobs(store, JobFilter(state=State.QUEUED), phase, 1.0)
        assert ([row.id for row in found.rows], found.before) == ([job_id], None)


async def test_workers_are_asked_to_drain_by_name_or_id(store: Store) -> None:
    one, two = await Hands.on(store, "w1"), await Hands.on(store, "w2")
    again = await Hands.on(store, "w2")
    for name in ("w2", "w3"):
        with pytest.raises(CannotDrain):
            await ask_to_drain(store, ["w1", name])
    assert not any(row.drain_requested for row in (await list_workers(store)).rows)
    request = await ask_to_drain(store, ["w1", str(two.me.worker_id)])
    assert request.asked == {one.me.worker_id, two.me.worker_id}
    await store.set_status(one.me, WorkerStatus.STOPPED)
    with pytest.raises(CannotDrain, match="is gone already: it is stopped"):
        await ask_to_drain(store, ["w1"])
    everybody = await ask_to_drain(store, None)
    assert {row.id for row in everybody.chosen} == {two.me.worker_id, again.me.worker_id}


async def test_a_drain_is_followed_until_the_last_worker_has_left(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "LOOK_SECONDS", 0.0)
    one, two = await Hands.on(store, "w1"), await Hands.on(store, "w2")
    await store.set_status(one.me, WorkerStatus.STOPPED)
    seen = []
    async for row in follow_drain(store, [one.me.worker_id, two.me.worker_id]):
        seen.append((row.name, row.status.value))
        if seen[-1] == ("w2", "active"):
            await store.set_status(two.me, WorkerStatus.DRAINING)
        elif seen[-1] == ("w2", "draining"):
            await two.vanish()
    assert seen == [("w1", "stopped"), ("w2", "active"), ("w2", "draining"), ("w2", "lost")]
