"""What ended badly, as people read it: groups of dead jobs, ended attempts, causes, suspects."""

from __future__ import annotations

import json

import msgspec
import pytest

from outlast.insight.acting import By, Verb
from outlast.insight.bulk import BulkFilter, begin, go_on, preview
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind
from outlast.store.protocol import Store
from outlast.store.rows import AttemptFilter, JobFilter
from tests.conformance.kit import TASK, Hands, crashed, ended, enqueued, job

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
        msgspec.structs.replace(
            crashed(one), solo=1, incident=claimed[at // 4 * 4].token, cohort=at
        )
        for at, one in enumerate(claimed)
    ]
    await hands.hand_in(*ends)
    found = await store.inspector.suspects()
    assert [one.incident for one in found] == sorted((one.incident for one in found), reverse=True)
    assert {one.cohort for one in found} == set(range(6))
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
