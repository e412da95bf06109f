"""An end that comes without a claim changes the same as one with a claim, also after other changes.

On PostgreSQL most of them are handed in by a statement of their own (``outlast_complete_v1``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from outlast.errors import UsageError
from outlast.insight.verify import verify
from outlast.model.job import TICKS_KEY, Policy
from outlast.model.limits import LimitSpec
from outlast.store.limits import DeclaredTask, Hold, NewLimit, SetLimit
from outlast.store.protocol import Store
from outlast.store.values import Claimed, NewJob, Upstream
from tests.conformance.kit import Hands, ended, enqueued, job
from tests.conformance.limits_kit import declare, held, limited, need
from tests.conformance.verbs_kit import WRITES, Verb

NUMBERS = count()
Shape = Callable[[str], NewJob]
SHAPES: dict[str, Shape] = {
    "plain": lambda task: job(task=task),
    "with a key": lambda task: job(task=task, key=task),
    "of a schedule": lambda task: job(
        task=task, key=f"{TICKS_KEY}{task}", policy=Policy(schedule=task, tick=float(next(NUMBERS)))
    ),
    "under a limit": lambda task: limited(need("a"), task=task),
    "in turns of tenants": lambda task: limited(task=task, fair="acme"),
    "kept for no time": lambda task: job(task=task, policy=Policy(keep=0.0)),
}
OF_STORES = (
    "reconnect", "set_status", "reconcile", "reap", "reclaim", "exchange", "cancel", "requeue",
    "skip", "discard", "prune", "checkpoint", "keep_steps", "spawn", "watch_children",
    "send_event", "fire", "pause", "declare_limits", "hold_limit", "spend", "heartbeat",
)  # fmt: skip


async def _await(hands: Hands, held: Claimed) -> None:
    with contextlib.suppress(UsageError):  # it is deleted as it ends
        follower = job(task=f"{held.task} after", after=(Upstream(held.job_id),))
        await hands.store.enqueue([follower])


async def _take_over(hands: Hands, held: Claimed) -> None:
    await WRITES["reclaim"](hands, held)
    other = await Hands.on(hands.store, f"{held.task} other")
    await other.claim(1, tasks=[held.task])


async def _await_and_claim(hands: Hands, held: Claimed) -> None:
    """The claim notes at the job that another one waits for it."""
    await _await(hands, held)
    await (await Hands.on(hands.store, f"{held.task} other")).claim(1, tasks=["none"])


MEANWHILE: dict[str, Verb] = {
    **{name: WRITES[name] for name in OF_STORES},
    "it is awaited": _await,
    "it is awaited, and others claim": _await_and_claim,
    "another worker takes it over": _take_over,
    "its key is wanted": lambda hands, held: hands.store.enqueue(
        [job(task=held.task, key=held.task)]
    ),
    "its task comes under a limit": lambda hands, held: hands.store.declare_limits(
        [NewLimit("b", LimitSpec(running=1))], [DeclaredTask(held.task, ("b",))]
    ),
    "its tenants take turns": lambda hands, held: hands.store.declare_limits(
        [], [DeclaredTask(held.task, fair=True)]
    ),
    "its limit is closed": lambda hands, held: hands.store.set_limit(SetLimit(name="a", running=0)),
    "its limit is opened": lambda hands, held: hands.store.set_limit(
        SetLimit(name="a", running=1_000)
    ),
    "its limit is reset": lambda hands, held: hands.store.set_limit(SetLimit(name="a", reset=True)),
}


async def end(store: Store, shape: Shape, verb: Verb, *, alone: bool) -> tuple[Any, ...]:
    """Run a job of this shape, call the verb meanwhile, and end it; return what can be seen."""
    number = next(NUMBERS)
    task, then = f"t{number}", f"t{number} after"
    hands = await Hands.on(store, f"w{number}")
    await store.hold_limit(Hold("a", "", 0.0))
    await store.set_limit(SetLimit(name="a", reset=True))
    (job_id,) = await enqueued(store, shape(task))
    (mine,) = await hands.claim(1, tasks=[task])
    assert mine.job_id == job_id
    await verb(hands, mine)
    if alone:
        answers, next_ones = await hands.hand_in(ended(mine, result="1")), list[Claimed]()
    else:
        reply = await hands.exchange(ended(mine, result="1"), limit=9, tasks=[task, then])
        answers, next_ones = reply.answers, reply.claimed
    fresh = await Hands.on(store, f"x{number}")
    next_ones += await fresh.claim(9, tasks=[task, then])
    again = [each.created for each in await store.enqueue([shape(task)])]
    await store.cancel([each.job_id for each in await store.enqueue([shape(task)])])
    row = await store.inspector.job(job_id)
    seen = row and (
        row.state,
        row.result,
        row.attempt_count,
        row.failures,
        row.losses,
        row.progress,
    )
    attempts = [each.outcome for each in await store.inspector.attempts(job_id)]
    await fresh.hand_in(*[ended(each) for each in next_ones])
    found = [(each.task.removeprefix(task), each.number) for each in next_ones]
    return answers, seen, attempts, sorted(found), again


@pytest.mark.parametrize("shape", SHAPES)
async def test_an_end_without_a_claim_changes_what_one_with_a_claim_changes(
    store: Store, shape: str
) -> None:
    await declare(store, running=100)
    for name, verb in MEANWHILE.items():
        one = await end(store, SHAPES[shape], verb, alone=True)
        other = await end(store, SHAPES[shape], verb, alone=False)
        assert one == other, name
    assert (await verify(store.inspector)).violations == []
    if shape == "under a limit":
        assert await held(store) == 2, "by the workers that have taken a job over"
