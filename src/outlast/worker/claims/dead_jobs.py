"""Reclaims orphans (``reclaim_and_tell``), and reports each job that died, once.

The worker whose outcome the store accepted reports it: the outcome of its own attempt, or its
decision about an orphan. Listeners (``worker/foreign_ends.py``) are also told of attempts that this
worker ended for a dead process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from outlast.errors import BadData, text_of
from outlast.events import emit
from outlast.model.job import State
from outlast.model.lifecycle import Transition
from outlast.store.protocol import Store
from outlast.store.values import Orphan
from outlast.worker import foreign_ends
from outlast.worker.base import Running
from outlast.worker.claims.counters import Counters
from outlast.worker.foreign_ends import ForeignEnd

MESSAGE_MAX = 300  # characters


def tell_dead(transition: Transition, *, task: str, queue: str, attempts: int) -> None:
    """Report that a job died by this transition. ``attempts``: how many it has had."""
    emit(
        "job_dead",
        job_id=transition.job_id,
        token=transition.token,
        task=task,
        queue=queue,
        kind=transition.outcome,
        message=message_of(transition),
        attempts=attempts,
    )


def message_of(transition: Transition) -> str:
    """Return the first line of an end's message, for an event."""
    crash = transition.crash
    text = crash.message if crash is not None and crash.message else transition.message
    return text.strip().partition("\n")[0][:MESSAGE_MAX]


async def reclaim_and_tell(
    store: Store,
    decide: Callable[[Orphan], Transition],
    counters: Counters,
    only: Collection[tuple[int, int]] | None = None,
) -> tuple[list[Transition], BadData | None]:
    """Call ``store.reclaim``; count the closed attempts, and report the jobs that it made dead. If
    the store refuses to close one, for example by a trigger of the user's, close the others, and
    return an error that names it."""
    orphans: dict[int, Orphan] = {}

    def note_and_decide(orphan: Orphan) -> Transition:
        orphans[orphan.facts.token] = orphan
        return decide(orphan)

    refused: BadData | None = None
    try:
        applied = await store.reclaim(note_and_decide, only=only)
    except BadData:
        applied = []
        for one in [(each.facts.job_id, each.facts.token) for each in orphans.values()]:
            try:
                applied += await store.reclaim(note_and_decide, only=[one])
            except BadData as error:
                refused = BadData(f"job {one[0]} cannot be reclaimed: {text_of(error)}")
    for transition in applied:
        orphan = orphans[transition.token]
        counters.note_reclaimed(orphan.queue, orphan.task, transition.outcome)
        tell_end_of_orphan(orphan, transition)
        if transition.state is State.DEAD:
            tell_dead(transition, task=orphan.task, queue=orphan.queue, attempts=orphan.attempts)
    return applied, refused


def tell_end_of_own(running: Running, transition: Transition, now: float) -> None:
    """Tell listeners of an attempt whose runner has died. ``now``: on the boot clock."""
    claimed = running.claimed
    _tell_end(
        transition,
        task=claimed.task,
        queue=claimed.queue,
        number=claimed.number,
        seconds=now - running.started_at,
        resumed=claimed.checkpoint is not None,
        meta=claimed.policy.meta,
    )


def tell_end_of_orphan(orphan: Orphan, transition: Transition) -> None:
    """Tell listeners of an attempt whose worker is gone, or did not end it."""
    if orphan.began:
        _tell_end(
            transition,
            task=orphan.task,
            queue=orphan.queue,
            number=orphan.attempts,
            meta=orphan.facts.policy.meta,
        )


def _tell_end(transition: Transition, **of_attempt: Any) -> None:

    def make() -> ForeignEnd:
        return ForeignEnd(
            job_id=transition.job_id,
            token=transition.token,
            outcome=transition.outcome,
            message=message_of(transition),
            crash=transition.crash,
            is_dead=transition.state is State.DEAD,
            **of_attempt,
        )

    foreign_ends.tell(make)
