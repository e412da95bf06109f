"""One round trip: hand in what ended, take what can run next."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from outlast.model.crash import CrashKind
from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind
from outlast.store.protocol import Store
from outlast.store.rows import WorkerStatus
from outlast.store.values import Answer, ClaimRequest, NewJob, Save
from tests.conformance.kit import TASK, Hands, crashed, ended, enqueued, eventually, job, row_of
from tests.conformance.limits_kit import limited


async def state_of(store: Store, job_id: int) -> State:
    row = await row_of(store, job_id)
    return row.state


async def test_a_claim_makes_a_running_job_with_a_token(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job(args="[1]", policy=Policy(timeout=60.0), tenant="acme"))
    claimed = await hands.claim_one()
    row = await store.inspector.job(job_id)
    assert (claimed.job_id, claimed.task, claimed.args, claimed.number) == (job_id, TASK, "[1]", 1)
    assert (claimed.policy, claimed.tenant, claimed.checkpoint) == (
        Policy(timeout=60.0),
        "acme",
        None,
    )
    assert row is not None
    assert (row.state, row.token, row.attempt_count) == (State.RUNNING, claimed.token, 1)
    assert (row.worker_id, row.worker, row.host) == (hands.me.worker_id, "w1", "h1")
    assert row.started_at is not None
    assert row.hard_deadline == pytest.approx(row.started_at + 60.0, abs=1.0)


async def test_racing_workers_share_the_line_without_overlap(
    store: Store, other_store: Store
) -> None:
    ids = await enqueued(store, *[job() for _ in range(200)])
    workers = [await Hands.on(store, "a"), await Hands.on(other_store, "b")]

    async def drain(worker: Hands) -> list[int]:
        done: list[int] = []
        claimed = await worker.claim(7)
        while claimed:
            done += [one.job_id for one in claimed]
            claimed = await worker.follow(*map(ended, claimed), limit=7)
        return done

    done = await asyncio.gather(*map(drain, workers))
    assert sorted(done[0] + done[1]) == ids
    assert await store.inspector.counts() == {("default", State.COMPLETED): 200}


async def test_larger_priority_goes_first_and_then_the_order_of_the_line(
    store: Store, hands: Hands
) -> None:
    low, high, low_too, high_too = await enqueued(
        store, job(priority=-1), job(priority=5), job(priority=-1), job(priority=5)
    )
    claimed = [one.job_id for one in await hands.claim()]
    assert claimed == [high, high_too, low, low_too]


async def test_one_task_may_have_most_of_the_next_jobs(store: Store, hands: Hands) -> None:
    jobs = [job(task=task) for _ in range(5) for task in "abc"]
    jobs += [job(task="d", priority=1 + n % 2) for n in range(60)]
    ids = await enqueued(store, *jobs)
    order = sorted(range(len(jobs)), key=lambda n: (-jobs[n].priority, n))
    claimed = await hands.claim(65, tasks=["a", "b", "c", "d"])
    assert [one.job_id for one in claimed] == [ids[n] for n in order[:65]]


async def test_long_payloads_come_whole_among_short_ones(store: Store, hands: Hands) -> None:
    texts = ['"kurz"', '"' + 'ä\\"' * 20_000 + '"', "{}", '"' + "\\u0000" * 9_000 + '"']
    await enqueued(store, *[job(args=text) for text in texts])
    claimed = await hands.claim()
    assert [one.args for one in claimed] == texts
    saves = [Save(one.job_id, one.token, 1, one.args) for one in claimed]
    assert set(await store.checkpoint(saves)) == {Answer.ACCEPTED}
    await hands.hand_in(*[ended(one, OutcomeKind.RELEASED) for one in claimed])
    again = await hands.claim()
    assert [(one.args, one.checkpoint) for one in again] == [(text, text) for text in texts]
    await hands.hand_in(*[ended(one, result=one.args) for one in again])
    rows = [await store.inspector.job(one.job_id) for one in again]
    assert [row and row.result for row in rows] == texts


async def test_a_request_takes_only_its_tasks_and_queues(store: Store, hands: Hands) -> None:
    mine, _, _ = await enqueued(
        store, job(queue="q1"), job(queue="q2"), job(queue="q1", task="unknown")
    )
    assert [one.job_id for one in await hands.claim(queues=["q1", "empty"])] == [mine]
    assert await hands.claim(tasks=[]) == []


async def test_jobs_of_unknown_tasks_are_skipped(store: Store, hands: Hands) -> None:
    await enqueued(store, *[job(task="unknown", priority=9) for _ in range(50)])
    (known,) = await enqueued(store, job())
    assert [one.job_id for one in await hands.claim(1)] == [known]


async def test_several_requests_are_each_filled_to_their_limit(store: Store, hands: Hands) -> None:
    await enqueued(store, *[job(task="a") for _ in range(5)], *[job(task="b") for _ in range(5)])
    requests = [
        ClaimRequest(tasks=["a"], limit=2),
        ClaimRequest(tasks=["b"], limit=3),
        ClaimRequest(tasks=["b"], limit=9),
    ]
    claimed = (await store.exchange(hands.me, [], requests)).claimed
    assert sorted(one.task for one in claimed) == ["a"] * 2 + ["b"] * 5


async def test_a_completion_stores_the_result_and_leaves_no_attempt_row(
    store: Store, hands: Hands
) -> None:
    (job_id,) = await enqueued(store)
    claimed = await hands.claim_one()
    assert await hands.hand_in(ended(claimed, result='{"lines":3}')) == [Answer.ACCEPTED]
    row = await row_of(store, job_id)
    assert (row.state, row.result, row.token) == (State.COMPLETED, '{"lines":3}', claimed.token)
    assert (row.worker, row.hard_deadline) == ("w1", None)
    assert row.ended_at is not None
    assert await store.inspector.attempts(job_id) == []


async def test_a_failure_leaves_evidence_and_waits_for_its_retry(
    store: Store, hands: Hands
) -> None:
    (job_id,) = await enqueued(store)
    claimed = await hands.claim_one()
    end = crashed(claimed, pid=99)
    assert await hands.hand_in(end) == [Answer.ACCEPTED]
    row = await store.inspector.job(job_id)
    (attempt,) = await store.inspector.attempts(job_id)
    assert row is not None
    assert (row.state, row.waiting, row.failures, row.worker_id) == (State.QUEUED, True, 1, None)
    assert end.delay > 0
    assert (attempt.token, attempt.number, attempt.outcome) == (claimed.token, 1, "error")
    assert (attempt.charge, attempt.worker, attempt.host, attempt.pid) == (
        "failure",
        "w1",
        "h1",
        99,
    )
    assert attempt.message == "it broke"
    assert attempt.crash == end.crash
    assert attempt.ended_at >= attempt.started_at


async def test_a_released_job_goes_to_the_end_of_the_line_uncharged(
    store: Store, hands: Hands
) -> None:
    first, second = await enqueued(store, job(), job())
    claimed = await hands.claim_one()
    await hands.hand_in(ended(claimed, OutcomeKind.RELEASED))
    again = await hands.claim()
    assert [one.job_id for one in again] == [second, first]
    assert (again[1].failures, again[1].losses, again[1].number) == (0, 0, 2)
    assert again[1].token > claimed.token


async def test_a_snoozed_job_comes_back_when_its_time_has_come(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store)
    await hands.hand_in(ended(await hands.claim_one(), OutcomeKind.SNOOZED, delay=0.1))
    (attempt,) = await store.inspector.attempts(job_id)
    assert (attempt.outcome, attempt.charge) == ("snoozed", "none")
    (claimed,) = await eventually(hands.claim)
    assert (claimed.job_id, claimed.failures) == (job_id, 0)


@pytest.mark.parametrize(
    ("kind", "state"),
    [(OutcomeKind.CANCELLED, State.CANCELLED), (OutcomeKind.DEAD, State.DEAD)],
)
async def test_a_task_can_end_its_job_for_good(
    store: Store, hands: Hands, kind: OutcomeKind, state: State
) -> None:
    (job_id,) = await enqueued(store)
    claimed = await hands.claim_one()
    assert await hands.hand_in(ended(claimed, kind, message="enough")) == [Answer.ACCEPTED]
    (attempt,) = await store.inspector.attempts(job_id)
    assert await state_of(store, job_id) is state
    assert (attempt.outcome, attempt.message) == (kind.value, "enough")
    assert await hands.claim() == []


async def test_a_spent_budget_ends_the_job_as_dead(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job(policy=Policy(retries=1)))
    await hands.hand_in(crashed(await hands.claim_one(), delay=0.0))
    second = await hands.claim_one()
    assert (second.failures, second.number) == (1, 2)
    await hands.hand_in(crashed(second))
    row = await row_of(store, job_id)
    assert (row.state, row.failures) == (State.DEAD, 2)
    assert [one.number for one in await store.inspector.attempts(job_id)] == [1, 2]


async def test_a_mixed_batch_is_answered_in_its_order(store: Store, hands: Hands) -> None:
    await enqueued(store, *[job() for _ in range(4)])
    one, two, three, four = await hands.claim()
    await hands.hand_in(ended(two))
    stale = ended(msgspec.structs.replace(three, token=three.token + 1_000))
    answers = await hands.hand_in(
        ended(four, OutcomeKind.SNOOZED, delay=9), ended(two), stale, ended(one), crashed(three)
    )
    assert answers == [
        Answer.ACCEPTED,
        Answer.ALREADY,
        Answer.REFUSED,
        Answer.ACCEPTED,
        Answer.ACCEPTED,
    ]


async def test_two_ends_of_one_job_in_a_batch_write_it_once(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store)
    claimed = await hands.claim_one()
    answers = await hands.hand_in(crashed(claimed), ended(claimed))
    assert answers.count(Answer.ACCEPTED) == 1
    assert answers[0] in {Answer.ACCEPTED, Answer.REFUSED}
    row = await store.inspector.job(job_id)
    attempts = await store.inspector.attempts(job_id)
    assert row is not None
    assert len(attempts) == (0 if row.state is State.COMPLETED else 1)


async def test_a_draining_worker_hands_in_but_takes_nothing(store: Store, hands: Hands) -> None:
    await enqueued(store, job(), job())
    claimed = await hands.claim_one()
    assert await store.set_status(hands.me, WorkerStatus.DRAINING)
    exchanged = await hands.exchange(ended(claimed), limit=5)
    assert exchanged.valid
    assert exchanged.answers == [Answer.ACCEPTED]
    assert exchanged.claimed == []


async def test_an_unknown_worker_takes_nothing(store: Store, hands: Hands) -> None:
    await enqueued(store)
    stranger = Hands(store, type(hands.me)(hands.me.worker_id + 1_000, 1))
    exchanged = await stranger.exchange(limit=5)
    assert not exchanged.valid
    assert exchanged.claimed == []


async def test_next_due_looks_only_at_the_queues_of_the_requests(
    store: Store, hands: Hands
) -> None:
    await enqueued(store, job(queue="far", delay=50.0), job(queue="near", delay=20.0))
    far = (await hands.exchange(limit=1, queues=["far"])).next_due
    everywhere = (await hands.exchange(limit=1)).next_due
    nowhere = (await hands.exchange(limit=1, queues=["none"])).next_due
    assert far == pytest.approx(50.0, abs=5.0)
    assert everywhere == pytest.approx(20.0, abs=5.0)
    assert nowhere is None


# -------------------------------------------------------------- how large one reply may be


def large(kilobytes: int, **fields: Any) -> NewJob:
    return job(args=f'{{"data":"{"x" * (1_000 * kilobytes - 11)}"}}', **fields)


async def test_a_reply_is_bounded_in_bytes_and_says_that_there_is_more(
    hands: Hands,
) -> None:
    ids = await enqueued(hands.store, *[large(10)] * 7)
    first = await hands.exchange(limit=100, bytes_max=35_000)
    assert ([each.job_id for each in first.claimed], first.cut) == (ids[:3], True)
    assert all(len(each.args) == 10_000 for each in first.claimed)
    exact = await hands.exchange(limit=100, bytes_max=30_000)
    assert ([each.job_id for each in exact.claimed], exact.cut) == (ids[3:6], True)
    last = await hands.exchange(limit=100, bytes_max=30_000)
    assert ([each.job_id for each in last.claimed], last.cut) == (ids[6:], False)


async def test_the_first_job_is_claimed_at_any_size(hands: Hands) -> None:
    first, second = await enqueued(hands.store, *[large(100)] * 2)
    replies = [await hands.exchange(limit=100, bytes_max=1) for _ in range(2)]
    (third,) = await enqueued(hands.store, limited(fair="x", args=large(100).args))
    replies.append(await hands.exchange(limit=100, bytes_max=1))
    seen = [([each.job_id for each in reply.claimed], reply.cut) for reply in replies]
    assert seen == [([first], True), ([second], False), ([third], False)]


async def test_bytes_count_over_lanes_and_queues_and_with_checkpoints(hands: Hands) -> None:
    (saved,) = await enqueued(hands.store)
    before = await hands.claim_one()
    save = Save(saved, before.token, 1, '"' + "ä" * 4_999 + '"')  # 10,000 bytes
    assert await hands.store.checkpoint([save]) == [Answer.ACCEPTED]
    await hands.hand_in(ended(before, OutcomeKind.RELEASED))
    lanes = [("q1", 0), ("q2", 0), ("q2", 1)]
    await enqueued(hands.store, *[large(10, queue=queue, priority=rank) for queue, rank in lanes])
    counts = []
    while claimed := (reply := await hands.exchange(limit=9, bytes_max=20_050)).claimed:
        counts.append(len(claimed))
    assert (counts, reply.cut) == ([2, 2], False)


async def test_suspects_are_claimed_up_to_the_bytes_of_one_reply(hands: Hands) -> None:
    ids = await enqueued(hands.store, *[large(10)] * 3)
    ends = [crashed(each, CrashKind.BYSTANDER, incident=1) for each in await hands.claim()]
    assert await hands.hand_in(*ends) == [Answer.ACCEPTED] * 3
    reply = await hands.exchange(limit=9, solo=1, bytes_max=25_000)
    assert ([each.job_id for each in reply.claimed], reply.cut) == (ids[:2], True)
