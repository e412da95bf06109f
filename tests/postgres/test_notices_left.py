"""A worker that leaves once nothing is left to claim stays while what it has just noted, or what
another session holds, may still make a job run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outlast.store.protocol import Store
from outlast.store.values import ClaimRequest
from outlast.worker.claims.until_empty import UntilEmpty
from tests.conformance.kit import TASK, Hands, ended, enqueued, job, on
from tests.conformance.test_events import send, waits
from tests.postgres.test_dependencies import HAND_IN, after

HOLD = "SELECT FROM outlast_jobs WHERE id = $1 FOR UPDATE"


async def leaves(hands: Hands, *ends: Any) -> bool:
    """Whether a worker leaves that hands in these ends and runs nothing else."""
    asked: list[bool] = []
    until = UntilEmpty(lambda: asked.append(True))
    reply = await hands.exchange(*ends, limit=1)
    assert reply.claimed == []
    until.take_reply([ClaimRequest([TASK], 1)], reply, is_idle=True)
    return asked != []


async def an_event_that_came_before_the_end(store: Store, hands: Hands, session: Any) -> None:
    await enqueued(store)
    mine = await hands.claim_one()
    await send(store)
    assert await leaves(hands)  # the notice of the event is done
    assert not await leaves(hands, waits(mine))


async def a_held_job_whose_event_came(store: Store, hands: Hands, session: Any) -> None:
    await enqueued(store)
    mine = await hands.claim_one()
    await hands.hand_in(waits(mine))
    async with session.transaction():
        await session.fetch(HOLD, mine.job_id)
        await send(store)
        assert not await leaves(hands)


async def the_last_two_ends_at_once(store: Store, hands: Hands, session: Any) -> None:
    ids = await enqueued(store, job(), job())
    one, other = await hands.claim(2)
    await enqueued(store, after(*ids))
    assert await leaves(hands)
    async with session.transaction():
        await session.fetch(HAND_IN, other.job_id, other.token)
        assert not await leaves(hands, ended(one))


async def a_held_upstream_job(store: Store, hands: Hands, session: Any) -> None:
    (first,) = await enqueued(store)
    mine = await hands.claim_one()
    async with session.transaction():
        assert await on(session).complete(first, mine.token, "7")
        await enqueued(store, after(first))
        assert not await leaves(hands)


@pytest.mark.parametrize(
    "play",
    [
        an_event_that_came_before_the_end,
        a_held_job_whose_event_came,
        the_last_two_ends_at_once,
        a_held_upstream_job,
    ],
)
async def test_a_worker_stays_for_what_is_noted(
    store: Store, hands: Hands, session: Any, play: Callable[..., Any]
) -> None:
    await play(store, hands, session)
    assert len(await hands.claim()) == 1
