"""What attempts print: kept while they run, fenced, bounded, and gone with their job."""

from __future__ import annotations

import pytest

from outlast.model.job import Policy
from outlast.model.lifecycle import OutcomeKind
from outlast.store.logs import LOGS_KEPT, JobLog, LogLine
from outlast.store.protocol import Store
from outlast.store.values import Claimed
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import Hands, ended, enqueued, job


def log(claimed: Claimed, *texts: str, dropped: int = 0) -> JobLog:
    lines = [LogLine(float(n), text) for n, text in enumerate(texts)]
    return JobLog(claimed.job_id, claimed.token, claimed.number, lines, dropped)


async def texts(store: Store, job_id: int) -> list[list[str]]:
    return [[line.text for line in each.lines] for each in await store.inspector.logs(job_id)]


async def test_the_lines_of_a_running_attempt_are_replaced(store: Store, hands: Hands) -> None:
    first, second = await enqueued(store, job(), job())
    one, two = await hands.claim(2)
    assert await store.keep_logs([log(one, "a"), log(two, "b")]) == {one.token, two.token}
    assert await store.keep_logs([log(one, "a", 'ö "☃"\x1b', dropped=7)]) == {one.token}
    (kept,) = await store.inspector.logs(first)
    assert (kept.token, kept.number, kept.dropped) == (one.token, 1, 7)
    assert kept.lines == [LogLine(0.0, "a"), LogLine(1.0, 'ö "☃"\x1b')]
    assert await texts(store, second) == [["b"]]
    assert await store.keep_logs([]) == set()


async def test_a_completed_job_is_named_by_the_token_of_what_it_has_printed(
    store: Store, hands: Hands
) -> None:
    (silent, printing) = await enqueued(store, job(), job())
    claims = {one.job_id: one for one in await hands.claim(2)}
    await store.keep_logs([log(claims[printing], "a")])
    await hands.hand_in(*map(ended, claims.values()))
    assert await store.inspector.named(claims[printing].token, None) == [printing]
    assert await store.inspector.named(claims[silent].token, None) == []  # no index knows it


async def test_a_late_worker_changes_nothing(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job())
    late = await hands.claim_one()
    await store.keep_logs([log(late, "before")])
    await hands.hand_in(ended(late, OutcomeKind.RELEASED))
    assert await store.keep_logs([log(late, "too late")]) == set()
    now = await hands.claim_one()
    assert await store.keep_logs([log(late, "too late"), log(now, "now")]) == {now.token}
    assert await texts(store, job_id) == [["before"], ["now"]]
    assert await store.inspector.refusals() == []


async def test_a_write_that_arrives_late_replaces_no_newer_one(store: Store, hands: Hands) -> None:
    """Its connection broke, and the server carries it out after the worker's next one."""
    (job_id,) = await enqueued(store, job())
    held = await hands.claim_one()
    await store.keep_logs([log(held, "b", "c", dropped=1)])
    assert await store.keep_logs([log(held, "a", "b")]) == set()
    assert await texts(store, job_id) == [["b", "c"]]
    assert await store.keep_logs([log(held, "c", "d", dropped=2)]) == {held.token}
    assert await texts(store, job_id) == [["c", "d"]]


async def test_of_many_attempts_the_newest_keep_their_lines(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job())
    for n in range(LOGS_KEPT + 3):
        claimed = await hands.claim_one()
        await store.keep_logs([log(claimed, f"attempt {n}")])
        await hands.hand_in(ended(claimed, OutcomeKind.RELEASED))
    kept = [lines[0] for lines in await texts(store, job_id)]
    assert kept == [f"attempt {n}" for n in range(3, LOGS_KEPT + 3)]


@pytest.mark.parametrize("how", ["discard", "prune", "prune_dead", "keep", "kept"])
async def test_the_lines_go_with_their_job(
    store: Store, store_url: str, hands: Hands, how: str
) -> None:
    policy = Policy(keep={"keep": 0.0, "kept": 1e-6}.get(how))
    gone, stays = await enqueued(store, job(policy=policy), job())
    one, other = await hands.claim(2)
    await store.keep_logs([log(one, "gone"), log(other, "stays")])
    is_dead = how in {"discard", "prune_dead"}
    await hands.hand_in(ended(one, OutcomeKind.DEAD if is_dead else OutcomeKind.COMPLETED))
    if how == "discard":
        assert await store.discard([gone]) == {gone}
    elif how != "keep":
        age = 1e9 if how == "kept" else -1.0
        await store.prune(jobs_older_than=age, workers_older_than=1e9, dead_older_than=age)
    assert await store.inspector.job(gone) is None
    assert await texts(store, gone) == []
    assert await texts(store, stays) == [["stays"]]
    async with raw(store_url) as file:
        assert await file.run(f"DELETE FROM outlast_logs WHERE job_id = {stays}")


async def test_a_row_of_another_program_is_shown_as_it_is(
    store: Store, store_url: str, hands: Hands
) -> None:
    (job_id,) = await enqueued(store, job())
    await store.keep_logs([log(await hands.claim_one(), "a")])
    async with raw(store_url) as file:
        for text in ("no JSON", '{"a": 1}', "[[1]]"):
            await file.run(f"UPDATE outlast_logs SET lines = '{text}' WHERE job_id = {job_id}")
            assert await texts(store, job_id) == [[text]]
