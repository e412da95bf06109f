"""Where a running job is: asked on its worker's row, heard with a beat, kept on the job's row."""

from __future__ import annotations

import asyncio
import json

import pytest

from outlast.errors import JobNotFound
from outlast.insight import stacks as asking
from outlast.insight.acting import By, NewerAttempt, Refused
from outlast.insight.documents import job_document
from outlast.insight.stacks import ask_for_stack, find_unanswered, wait_for_stack
from outlast.model.lifecycle import OutcomeKind
from outlast.store.protocol import Store
from outlast.store.rows import WorkerStatus
from outlast.store.stacks import REQUESTS_MAX, Stack, StackRequest, format_requests, read_requests
from outlast.store.values import Claimed
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import Hands, ended, enqueued, job, row_of

ADA = By("ada")
HOUR = 3_600.0


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let requests count for an hour: no pause of the machine makes one old."""
    monkeypatch.setattr("outlast.store.stacks.REQUEST_SECONDS", HOUR)


async def asks(hands: Hands) -> list[StackRequest]:
    """Return what the worker hears with its next beat."""
    return (await hands.store.heartbeat(hands.me)).stacks


def answer(ask: StackRequest, text: str = "a stack", line: str | None = None) -> Stack:
    return Stack(token=ask.token, asked=ask.number, text=text, line=line)


async def held(store: Store, hands: Hands, count: int = 1) -> list[Claimed]:
    await enqueued(store, *[job()] * count)
    return await hands.claim(count)


async def test_the_worker_hears_it_with_a_beat_and_its_answer_is_on_the_job(
    store: Store, hands: Hands
) -> None:
    (claimed,) = await held(store, hands)
    assert await asks(hands) == []
    asked = await ask_for_stack(store, claimed.job_id, ADA, token=claimed.token)
    assert (asked.is_new, asked.ask.token) == (True, claimed.token)
    assert await asks(hands) == await asks(hands) == [asked.ask]
    assert await store.keep_stack(claimed.job_id, answer(asked.ask, 'ö "☃"\x1b\n', "line 1"))
    row = await wait_for_stack(store, asked, 0.0)
    assert row.stack == answer(asked.ask, 'ö "☃"\x1b\n', "line 1")
    assert row.stack_at is not None
    told = json.loads(json.dumps(job_document(row, [])))["stack"]
    assert (told["token"], told["asked"], told["line"]) == (*asked.ask[::-1], "line 1")
    (listed,) = await store.inspector.jobs_of([claimed.job_id])
    assert (listed.stack, listed.stack_at) == (None, row.stack_at)


async def test_only_its_own_worker_is_asked(store: Store, hands: Hands) -> None:
    other = await Hands.on(store, "w2")
    (claimed,) = await held(store, hands)
    await ask_for_stack(store, claimed.job_id, ADA)
    assert await asks(other) == []
    assert len(await asks(hands)) == 1


async def test_who_asks_twice_waits_for_the_same_answer_and_then_gets_a_new_one(
    store: Store, hands: Hands
) -> None:
    (claimed,) = await held(store, hands)
    first = await ask_for_stack(store, claimed.job_id, ADA)
    again = await ask_for_stack(store, claimed.job_id, By("bob"))
    assert (again.ask, again.is_new) == (first.ask, False)
    await store.keep_stack(claimed.job_id, answer(first.ask))
    later = await ask_for_stack(store, claimed.job_id, ADA)
    assert later.is_new
    assert later.ask.number > first.ask.number
    with pytest.raises(Refused, match="has not answered within 0 s"):
        await wait_for_stack(store, later, 0.0)
    assert [row.actor for row in await store.inspector.actions()] == ["ada", "ada"]
    assert {row.verb for row in await store.inspector.actions()} == {"stack"}


async def test_a_worker_is_asked_for_a_few_at_a_time(store: Store, hands: Hands) -> None:
    claims = await held(store, hands, REQUESTS_MAX + 3)
    done = await asyncio.gather(
        *(ask_for_stack(store, each.job_id, ADA) for each in claims), return_exceptions=True
    )
    refused = [each for each in done if isinstance(each, Refused)]
    assert len(refused) == 3
    assert f"was asked for {REQUESTS_MAX} stacks" in str(refused[0])
    heard = await asks(hands)
    assert len({each.number for each in heard}) == len(heard) == REQUESTS_MAX
    for ask, each in zip(heard, claims, strict=False):  # answered ones count all the same
        await store.keep_stack(each.job_id, answer(ask))
    with pytest.raises(Refused):
        await ask_for_stack(store, claims[-1].job_id, ADA)


async def test_old_requests_count_no_more(store: Store, store_url: str, hands: Hands) -> None:
    (claimed,) = await held(store, hands)
    now = await store.inspector.now()
    for age in (2 * HOUR, -2 * HOUR):  # its clock was set back meanwhile
        old = [
            StackRequest(int((now - age) * 1000) + n, claimed.token) for n in range(REQUESTS_MAX)
        ]
        async with raw(store_url) as file:
            await file.run(f"UPDATE outlast_workers SET stacks = '{format_requests(old)}'")
        asked = await ask_for_stack(store, claimed.job_id, ADA)
        assert asked.is_new
        assert asked.ask.number > max(old).number
        assert await asks(hands) == [asked.ask]


async def test_a_late_worker_changes_nothing(store: Store, hands: Hands) -> None:
    (late,) = await held(store, hands)
    asked = await ask_for_stack(store, late.job_id, ADA)
    await store.keep_stack(late.job_id, answer(asked.ask, "before"))
    await hands.hand_in(ended(late, OutcomeKind.RELEASED))
    assert not await store.keep_stack(late.job_id, answer(asked.ask, "too late"))
    now = await hands.claim_one()
    assert not await store.keep_stack(now.job_id, answer(asked.ask, "too late"))
    row = await row_of(store, now.job_id)
    assert row.stack == answer(asked.ask, "before")  # of an earlier attempt: its token says so
    assert await store.inspector.refusals() == []
    with pytest.raises(NewerAttempt, match="a newer attempt"):
        await ask_for_stack(store, now.job_id, ADA, token=late.token)
    assert not await store.ask_stack(now.job_id, late.token, seen="", then="1:1")


async def test_what_cannot_be_asked_is_told_and_not_recorded(store: Store, hands: Hands) -> None:
    (queued,) = await enqueued(store, job())
    with pytest.raises(Refused, match="is queued, not running"):
        await ask_for_stack(store, queued, ADA)
    with pytest.raises(JobNotFound):
        await ask_for_stack(store, 999, ADA)
    claimed = await hands.claim_one()
    await store.set_status(hands.me, WorkerStatus.STOPPED)
    with pytest.raises(Refused, match="that worker is stopped"):
        await ask_for_stack(store, claimed.job_id, ADA)
    assert not await store.ask_stack(claimed.job_id, claimed.token, seen="", then="1:1")
    assert await store.inspector.actions() == []


async def test_an_attempt_that_ends_meanwhile_is_waited_for_no_longer(
    store: Store, hands: Hands
) -> None:
    (claimed,) = await held(store, hands)
    asked = await ask_for_stack(store, claimed.job_id, ADA)
    await hands.hand_in(ended(claimed))
    with pytest.raises(Refused, match="is completed: its attempt has ended"):
        await wait_for_stack(store, asked, 1e9)
    (claimed,) = await held(store, hands)
    asked = await ask_for_stack(store, claimed.job_id, ADA)
    await hands.vanish()
    with pytest.raises(Refused, match="that worker is lost"):
        await wait_for_stack(store, asked, 0.0)


async def test_one_of_two_that_ask_at_once_reads_again(
    store: Store, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = await held(store, hands, 2)
    seen = ""
    assert await store.ask_stack(one.job_id, one.token, seen=seen, then=f"5:{one.token}")
    assert not await store.ask_stack(other.job_id, other.token, seen=seen, then=f"6:{other.token}")
    assert [ask.token for ask in await asks(hands)] == [one.token]
    monkeypatch.setattr(asking, "TRIES", 0)
    with pytest.raises(Refused, match="ask again"):
        await ask_for_stack(store, one.job_id, ADA)


async def test_what_another_program_wrote_asks_for_nothing(
    store: Store, store_url: str, hands: Hands
) -> None:
    (claimed,) = await held(store, hands)
    odd = ["x", "1:2:3", "-1:2", "9" * 30 + ":1", "1:2 " * 10_000, "٣:٤"]
    async with raw(store_url) as file:
        for text in odd:
            await file.run(f"UPDATE outlast_workers SET stacks = '{text}'")
            assert await asks(hands) == []
        asked = await ask_for_stack(store, claimed.job_id, ADA)
        assert await asks(hands) == [asked.ask]
        for text in ("no JSON", "[]", '{"token":1}', "x" * 200_000):
            await file.run(f"UPDATE outlast_jobs SET stack = '{text}'")
            row = await row_of(store, claimed.job_id)
            assert (row.stack, row.malformed) == (None, "stack")
            assert find_unanswered(row, asked.worker) is None
    assert read_requests(None) == read_requests("") == []
