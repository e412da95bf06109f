"""Events: the first value of a name is kept, and no job that waits for it is missed."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.model.job import Policy
from outlast.model.lifecycle import OutcomeKind, Transition
from outlast.store.protocol import Store
from outlast.store.values import Answer, Cancelled, Claimed, NamedStep, NewEvent
from tests.app.in_process_kit import run_sql, transaction
from tests.conformance.kit import Hands, crashed, ended, enqueued, job
from tests.conformance.test_dependencies import states

NAME = "approve:17"


async def send(store: Store, value: str = "[1]", name: str = NAME) -> bool:
    return await store.send_event(NewEvent(name, value))


def waits(claimed: Claimed, name: str = NAME, delay: float = 3600, **fields: Any) -> Transition:
    """The end of an attempt that waits for an event."""
    return ended(claimed, OutcomeKind.SNOOZED, delay=delay, event=name, **fields)


@pytest.fixture
async def claimed(store: Store, hands: Hands) -> Claimed:
    await enqueued(store, job())
    return await hands.claim_one()


async def test_the_first_value_of_a_name_is_kept(store: Store) -> None:
    assert await store.find_event(NAME) is None
    assert await send(store)
    assert not await send(store, "[2]")
    assert await send(store, "[3]", "other")
    assert [await store.find_event(name) for name in (NAME, "other")] == ["[1]", "[3]"]


@pytest.mark.parametrize("when", ["before", "with the end", "after", "after a look"])
async def test_no_event_is_missed(store: Store, hands: Hands, claimed: Claimed, when: str) -> None:
    """Sent before the end of the attempt that waits, though that has not found it; or later."""
    if when == "before":
        await send(store)
        assert await hands.claim() == []  # its notice is done before the end
    if when == "with the end":
        await send(store)
    assert await hands.hand_in(waits(claimed)) == [Answer.ACCEPTED]
    if when.startswith("after"):
        assert when == "after" or await hands.claim() == []
        await send(store)
    again = await hands.claim_one()
    assert (again.job_id, again.number, again.failures) == (claimed.job_id, 2, 0)
    assert await hands.claim() == []


async def test_all_that_wait_for_it_are_woken_and_no_others(store: Store, hands: Hands) -> None:
    await enqueued(store, *[job()] * 4)
    one, two, other, retried = await hands.claim()
    await hands.hand_in(waits(one), waits(two), waits(other, "approve:18"), waits(retried))
    await store.cancel([two.job_id])
    await send(store)
    await hands.settle()
    claimed = await hands.claim()
    assert sorted(each.job_id for each in claimed) == [one.job_id, retried.job_id]
    assert await states(store, [other.job_id]) == ["queued"]


async def test_an_end_of_another_kind_does_not_wait_any_longer(
    store: Store, hands: Hands, claimed: Claimed
) -> None:
    """The back-off of a failure is not cut short by an event that an earlier attempt waited for."""
    await hands.hand_in(waits(claimed, delay=0))
    second = await hands.claim_one()
    await hands.hand_in(crashed(second, delay=3600))
    await send(store)
    assert await hands.claim() == []


async def test_a_job_waits_for_one_event_after_the_other(
    store: Store, hands: Hands, claimed: Claimed
) -> None:
    for name in ("first", "second"):
        await hands.hand_in(waits(claimed, name))
        assert await hands.claim() == []
        await send(store, name=name)
        claimed = await hands.claim_one()


async def test_a_late_end_waits_for_nothing_and_a_cancel_beats_the_wait(
    store: Store, hands: Hands, claimed: Claimed
) -> None:
    assert await store.cancel([claimed.job_id]) == {claimed.job_id: Cancelled.REQUESTED}
    assert await hands.hand_in(waits(claimed)) == [Answer.ACCEPTED]
    assert await hands.hand_in(waits(claimed)) == [Answer.ALREADY]
    await send(store)
    assert await hands.claim() == []
    assert await states(store, [claimed.job_id]) == ["cancelled"]


async def test_an_event_is_kept_while_a_job_that_waited_for_it_is_unfinished(
    store: Store, hands: Hands, claimed: Claimed
) -> None:
    async def prune() -> None:
        await store.prune(jobs_older_than=1e9, workers_older_than=1e9, events_older_than=-1.0)

    await send(store, name="lonely")
    await hands.hand_in(waits(claimed))
    await send(store)
    again = await hands.claim_one()
    await prune()
    assert await store.find_event("lonely") is None
    assert await store.find_event(NAME) == "[1]"
    await hands.hand_in(ended(again))
    await prune()
    assert await store.find_event(NAME) is None


@pytest.mark.parametrize("scratched", [False, True])
async def test_a_wait_goes_with_its_job_and_when_that_begins_from_scratch(
    store: Store, hands: Hands, store_url: str, scratched: bool
) -> None:
    await enqueued(store, job(policy=Policy(keep=None if scratched else 0)))
    (claimed,) = await hands.claim()
    step = NamedStep(claimed.job_id, claimed.token, f"end {NAME}", "1")  # as the client keeps it
    assert await store.keep_steps([step]) == [Answer.ACCEPTED]
    await hands.hand_in(waits(claimed))
    assert len(await _waits(store_url)) == 1
    await store.cancel([claimed.job_id])
    if scratched:
        await store.requeue([claimed.job_id], from_scratch=True)
    assert await _waits(store_url) == []


async def _waits(url: str) -> list[tuple[Any, ...]]:
    async with transaction(url) as connection:
        return await run_sql(connection, "SELECT job_id FROM outlast_waits")


async def test_many_wait_for_one_event(store: Store, hands: Hands) -> None:
    await enqueued(store, *[job()] * 1_200)
    waiting = [one for _ in range(12) for one in await hands.claim(100)]
    await hands.hand_in(*map(waits, waiting))
    assert await hands.claim() == []  # the notices of these ends are done
    await send(store)
    woken = 0
    while claimed := await hands.claim(100):
        woken += len(claimed)
    assert woken == 1_200
