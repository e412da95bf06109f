"""What people ask of a store, and do to what they name: the functions under the commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from outlast.insight import acting
from outlast.insight.acting import By, Verb, follow_drain
from outlast.insight.queries import find_jobs, read_dead, read_states
from outlast.model.job import State
from outlast.model.lifecycle import OutcomeKind
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter, WorkerStatus
from outlast.store.values import Cancelled, NewJob, Requeued
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import Hands, ended, enqueued, job


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
    which = JobFilter(state=State.DEAD, limit=100)
    assert await calls_of(find_jobs, store, which) == ["job_ids"]
    named = (await find_jobs(store, which)).ids
    calls: list[str] = []
    found = [each async for each in read_dead(Counting(store, calls), named)]
    assert calls == ["last_attempts"]
    assert [row.id for row, _ in found] == ids[::-1]
    assert [last and last.message for _, last in found] == [f"no {one}" for one in ids[::-1]]


async def test_tokens_are_raised_in_two_statements_however_many_jobs_there_are(
    store: Store, hands: Hands
) -> None:
    await enqueued(store, *[job() for _ in range(1_500)])
    last = (await hands.claim(3))[-1].token
    calls = await calls_of(acting.raise_tokens, store, 0.0)
    assert calls == ["last_token", "raise_tokens"]
    assert (await hands.claim_one()).token > last + acting.TOKEN_STEP
    above = await acting.raise_tokens(store, 1e10)
    assert above == int(1e16)
    assert (await hands.claim_one()).token > above


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
    above = await acting.raise_tokens(store, 1e9)
    assert 10**15 <= above < 10**17
    await enqueued(store)
    assert (await hands.claim_one()).token > above


async def test_many_jobs_are_cancelled_and_revived_in_batches_each_a_transaction(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "BATCH", 2)
    ids = [*await enqueued(store, *[job() for _ in range(5)]), 999]
    calls: list[str] = []
    for verb, answer in (
        (Verb.CANCEL, Cancelled.CANCELLED),
        (Verb.REQUEUE, Requeued.REQUEUED),
    ):
        acts = acting.act_on_jobs(Counting(store, calls), verb, ids, By("ann"))
        done = [each async for each in acts]
        told = [each for answers in done for each in answers.items()]
        assert told == [*((one, answer) for one in ids[:5]), (999, None)]
    assert calls == ["cancel"] * 3 + ["requeue"] * 3
    assert await store.inspector.counts() == {("default", State.QUEUED): 5}
    records = await store.inspector.actions()
    pairs = [", ".join(map(str, ids[at : at + 2])) for at in (4, 2, 0)]
    assert [one.target for one in records] == [f"jobs {pair}" for pair in pairs] * 2


async def test_named_jobs_are_discarded_in_batches_if_they_are_dead(
    store: Store, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "BATCH", 2)
    (first, second) = await dead(store, hands, job(), job())
    (queued,) = await enqueued(store)
    named = [queued, first, 999, second]
    assert await read_states(store, named) == {
        queued: State.QUEUED, first: State.DEAD, second: State.DEAD,
    }  # fmt: skip
    calls: list[str] = []
    done = acting.act_on_jobs(Counting(store, calls), Verb.DISCARD, named, By("ann"))
    assert [batch async for batch in done] == [
        {queued: None, first: "discarded"}, {999: None, second: "discarded"},
    ]  # fmt: skip
    assert calls == ["discard"] * 2
    assert await read_states(store, named) == {queued: State.QUEUED}


async def test_a_drain_is_followed_until_the_last_worker_has_left(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "LOOK_SECONDS", 0.0)
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
