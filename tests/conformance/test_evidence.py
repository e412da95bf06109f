"""What ended badly, as people read it: groups of dead jobs, ended attempts, causes, suspects."""

from __future__ import annotations

import json

import msgspec
import pytest

from outlast.insight.acting import By, Verb
from outlast.insight.bulk import BulkFilter, begin, go_on, preview
from outlast.insight.verify import verify
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import Policy, State
from outlast.model.lifecycle import (
    UNDECODABLE_PAUSE_MAX_SECONDS,
    UNDECODABLE_PAUSE_SECONDS,
    OutcomeKind,
)
from outlast.store.protocol import ATTEMPTS_KEPT_FIRST, ATTEMPTS_KEPT_LAST, Store
from outlast.store.rows import AttemptFilter, AttemptRow, JobFilter
from outlast.store.values import Answer
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import TASK, Hands, crashed, ended, enqueued, job, row_of

FINAL = Policy(retries=0)


async def die(
    store: Store, hands: Hands, exception: str, count: int = 1, **fields: str
) -> list[int]:
    """Let as many jobs die of the same; return their ids."""
    ids = await enqueued(store, *[job(policy=FINAL, **fields)] * count)
    claimed = await hands.claim(count, tasks=[fields.get("task", TASK)])
    crash = Crash(kind=CrashKind.ERROR, exception=exception, message=f"{exception}!")
    await hands.hand_in(*[ended(one, OutcomeKind.CRASHED, crash=crash) for one in claimed])
    return ids


@pytest.fixture
def small_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("inspector", "rows"):
        monkeypatch.setattr(f"outlast.store.{place}.ROWS_LOOKED_AT", 4)
    monkeypatch.setattr("outlast.store.inspector.DEAD_LOOKED_AT", 4)


async def test_dead_jobs_are_grouped_by_what_they_have_in_common(
    store: Store, hands: Hands
) -> None:
    assert await store.inspector.dead_groups(JobFilter()) == await store.inspector.dead_groups(
        JobFilter(task="no")
    )
    a = await die(store, hands, "A", 3)
    b = await die(store, hands, "B", 2)
    c = await die(store, hands, "A", 1, task="other")
    found = await store.inspector.dead_groups(JobFilter())
    assert [(one.number, one.newest) for one in found.groups] == [(1, c[0]), (2, b[-1]), (3, a[-1])]
    assert len({one.fingerprint for one in found.groups}) == 3
    assert all(len(one.fingerprint or "") == 16 for one in found.groups)
    assert all(one.first_at <= one.last_at for one in found.groups)
    assert (found.looked_at, found.full, found.more) == (6, False, False)


async def test_a_group_is_found_by_its_fingerprint_and_requeued_alone(
    store: Store, hands: Hands
) -> None:
    a, b = await die(store, hands, "A", 3), await die(store, hands, "B", 2)
    (of_b, of_a) = (await store.inspector.dead_groups(JobFilter())).groups
    which = JobFilter(state=State.DEAD, fingerprint=of_a.fingerprint)
    assert (await store.inspector.job_ids(which)).ids == a[::-1]
    seen = await preview(store, Verb.REQUEUE, BulkFilter(group=of_a.fingerprint))
    action_id = await begin(store, seen, By("ann"))
    *_, recorded = [row async for row in go_on(store, action_id)]
    assert recorded.counts == {"requeued": len(a)}
    assert json.loads(recorded.filter or "") == {"group": of_a.fingerprint}
    left = await store.inspector.dead_groups(JobFilter())
    assert [one.fingerprint for one in left.groups] == [of_b.fingerprint]
    assert b[-1] == left.groups[0].newest


async def test_a_job_that_dies_again_is_grouped_by_its_last_death(
    store: Store, hands: Hands
) -> None:
    (one,) = await die(store, hands, "A")
    (before,) = (await store.inspector.dead_groups(JobFilter())).groups
    await store.requeue([one])
    claimed = await hands.claim_one()
    crash = Crash(kind=CrashKind.ERROR, exception="B")
    await hands.hand_in(ended(claimed, OutcomeKind.CRASHED, crash=crash))
    (after,) = (await store.inspector.dead_groups(JobFilter())).groups
    assert (after.newest, after.number) == (one, 1)
    assert after.fingerprint != before.fingerprint


async def test_groups_of_a_queue_task_or_tenant(store: Store, hands: Hands) -> None:
    await die(store, hands, "A", 2)
    await die(store, hands, "A", 1, tenant="acme")
    await die(store, hands, "A", 1, queue="q")
    numbers = {
        which: sum(one.number for one in (await store.inspector.dead_groups(which)).groups)
        for which in (
            JobFilter(), JobFilter(tenant="acme"), JobFilter(queue="q"), JobFilter(task=TASK),
            JobFilter(task="no"), JobFilter(tenant="' OR 1=1 --"),
        )
    }  # fmt: skip
    assert list(numbers.values()) == [4, 1, 1, 4, 0, 0]


@pytest.mark.parametrize("which", [JobFilter(), JobFilter(task=TASK)])
async def test_a_look_at_dead_jobs_is_bounded_and_says_so(
    store: Store, hands: Hands, small_looks: None, which: JobFilter
) -> None:
    old = await die(store, hands, "old", 2)
    new = await die(store, hands, "new", 4)
    found = await store.inspector.dead_groups(which)
    assert [(one.number, one.newest) for one in found.groups] == [(4, new[-1])]
    assert (found.looked_at, found.full) == (4, True)
    assert old[-1] < new[0]


async def test_ended_attempts_are_listed_page_after_page(
    store: Store, hands: Hands, small_looks: None
) -> None:
    for outcome in ("A", "B"):
        await die(store, hands, outcome, 3)
    await enqueued(store, *[job()] * 4)
    await hands.hand_in(*[ended(one, OutcomeKind.RELEASED) for one in await hands.claim(4)])
    seen: list[int] = []
    tokens: list[int] = []
    before, looks = None, 0
    while True:
        which = AttemptFilter(outcomes=("error",), before=before, limit=2)
        found = await store.inspector.ended_attempts(which)
        seen += [row.job_id for row in found.rows]
        tokens += [row.token for row in found.rows]
        before, looks = found.before, looks + 1
        assert all(row.outcome == "error" and row.task == TASK for row in found.rows)
        assert found.before is None or found.back_to is not None
        if before is None:
            break
    assert len(seen) == len(set(seen)) == 6
    assert tokens == sorted(tokens, reverse=True)
    assert looks <= 6


async def test_ended_attempts_of_a_worker_and_of_a_tenant(store: Store, hands: Hands) -> None:
    other = await Hands.on(store, "w2")
    await die(store, hands, "A", 2)
    await die(store, other, "A", 1, tenant="acme")
    look = store.inspector.ended_attempts
    assert len((await look(AttemptFilter())).rows) == 3
    mine = (await look(AttemptFilter(worker_id=other.me.worker_id))).rows
    assert [(row.worker, row.tenant) for row in mine] == [("w2", "acme")]
    assert len((await look(AttemptFilter(tenant="acme"))).rows) == 1
    assert (await look(AttemptFilter(outcomes=()))).rows == []


async def test_the_last_end_of_each_job_is_read_without_its_crash_report(
    store: Store, hands: Hands
) -> None:
    ids = await enqueued(store, job(queue="a"), job(queue="b"), job(queue="a"))
    for end in (OutcomeKind.RELEASED, OutcomeKind.DEAD):
        claimed = await hands.claim(queues=["a"])
        await hands.hand_in(*[ended(one, end, message=f"no {one.job_id}") for one in claimed])
    found = {one.job_id: one for one in await store.inspector.last_ends([*ids, 10**9])}
    assert set(found) == {ids[0], ids[2]}, "one of them has not begun"
    assert {(one.outcome, one.message) for one in found.values()} == {
        ("dead", f"no {ids[0]}"),
        ("dead", f"no {ids[2]}"),
    }
    assert await store.inspector.last_ends([]) == []


async def test_causes_count_how_attempts_ended(store: Store, hands: Hands) -> None:
    assert await store.inspector.causes() == []
    await die(store, hands, "A", 2)
    await die(store, hands, "A", 1, tenant="acme")
    await enqueued(store)
    await hands.hand_in(ended(await hands.claim_one(), OutcomeKind.RELEASED))
    counted = {one.outcome: (one.number, one.hour) for one in await store.inspector.causes()}
    assert counted == {"error": (3, 3), "released": (1, 1)}
    of_acme = await store.inspector.causes("acme")
    assert [(one.outcome, one.number) for one in of_acme] == [("error", 1)]


async def test_suspects_are_listed_by_their_shared_death(store: Store, hands: Hands) -> None:
    await enqueued(store, *[job()] * 6)
    claimed = await hands.claim(6)
    ends = [
        msgspec.structs.replace(crashed(one), solo=1, incident=claimed[at // 4 * 4].token)
        for at, one in enumerate(claimed)
    ]
    await hands.hand_in(*ends)
    found = await store.inspector.suspects()
    assert [one.incident for one in found] == sorted((one.incident for one in found), reverse=True)
    assert {one.job_id for one in found} == {one.job_id for one in claimed}
    assert {(one.state, one.solo, one.task) for one in found} == {("queued", 1, TASK)}


async def test_running_jobs_of_one_worker(store: Store, hands: Hands) -> None:
    other = await Hands.on(store, "w2")
    ids = await enqueued(store, *[job()] * 3)
    await hands.claim(2)
    await other.claim(1)
    of = {
        who.me.worker_id: (
            await store.inspector.job_ids(
                JobFilter(state=State.RUNNING, worker_id=who.me.worker_id)
            )
        ).ids
        for who in (hands, other)
    }
    assert sorted(one for each in of.values() for one in each) == ids
    assert len(of[other.me.worker_id]) == 1


# ----------------------------------------------------------- the history that the checker reads


async def test_a_history_of_every_kind_of_end_is_without_findings(
    store: Store, hands: Hands
) -> None:
    ids = await enqueued(store, *(job() for _ in range(6)))
    for round_ in range(5):
        for claimed in await hands.claim(10):
            kind = [CrashKind.ERROR, CrashKind.BYSTANDER, CrashKind.TIMEOUT][round_ % 3]
            await hands.hand_in(
                crashed(claimed, kind, delay=0.0) if claimed.job_id % 2 else ended(claimed)
            )
    await store.cancel(ids)
    await store.requeue(ids)
    await hands.claim(10)
    verified = await verify(store.inspector)
    assert verified.findings == []
    assert verified.jobs == 6
    assert verified.attempts >= 6


async def test_pages_join_without_a_gap_and_without_a_repeat(store: Store, hands: Hands) -> None:
    ids = await enqueued(store, *(job() for _ in range(5)))
    for claimed in await hands.claim(5):
        await hands.hand_in(crashed(claimed, CrashKind.ERROR, delay=0.0))
    first = await store.inspector.history(0, 2)
    second = await store.inspector.history(first.next_after or 0, 2)
    third = await store.inspector.history(second.next_after or 0, 2)
    assert third.next_after is None
    pages = [*first.jobs, *second.jobs, *third.jobs]
    assert [past.id for past in pages] == ids
    assert [len(past.attempts) for past in pages] == [1] * 5
    assert first.strays + second.strays + third.strays == []
    assert first.token_last >= max(past.token or 0 for past in pages)


# ----------------------------------------------------------------------- attempts that are kept


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


async def test_two_unfinished_jobs_of_one_key_are_a_violation(
    store: Store, hands: Hands, store_url: str
) -> None:
    """As an index leaves them whose order is wrong, or that was damaged."""
    ids = await enqueued(store, *[job(key=f"k{n}") for n in range(4)])
    assert (await verify(store.inspector)).findings == []
    async with raw(store_url) as file:
        assert await file.run("DROP INDEX outlast_jobs_key")
        assert await file.run(
            f"UPDATE outlast_jobs SET key = 'k0' WHERE id IN ({ids[2]}, {ids[3]})"
        )
    (found,) = (await verify(store.inspector)).violations
    assert (found.rule, found.job_id) == ("one_job_for_a_key", ids[3])
    assert f"job {ids[0]}" in found.sentence
