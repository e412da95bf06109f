"""Act on jobs and schedules from a request, recorded as on the page. Each act opens a store for
itself alone, so no connection to the database stays open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from outlast.base.clock import SYSTEM
from outlast.base.sync import run_in_background
from outlast.contrib.django.project import store_url
from outlast.insight.acting import By, Verb, note_on, trigger_schedule
from outlast.store import open_store
from outlast.store.protocol import Store
from outlast.store.values import Cancelled, Requeued

R = TypeVar("R")


def requeue(ids: Sequence[int], by: By) -> dict[int, Requeued]:
    """Revive dead and cancelled jobs; return the effect on each."""
    return _on_store(lambda store: store.requeue(ids, record=note_on(Verb.REQUEUE, by, ids)))


def cancel(ids: Sequence[int], by: By) -> dict[int, Cancelled]:
    """Cancel queued jobs at once, ask running ones to stop; return which."""
    return _on_store(lambda store: store.cancel(ids, record=note_on(Verb.CANCEL, by, ids)))


def discard(ids: Sequence[int], by: By) -> int:
    """Delete the dead ones among the jobs; return how many."""
    return _on_store(lambda store: store.discard(ids, record=note_on(Verb.DISCARD, by, ids)))


def trigger(name: str, by: By) -> int:
    """Enqueue a schedule's call now; return the job's id. ScheduleNotFound if there is none."""

    async def fire(store: Store) -> int:
        return (await trigger_schedule(store, name, SYSTEM.wall(), by)).job_id

    return _on_store(fire)


def _on_store(verb: Callable[[Store], Awaitable[R]]) -> R:
    url = store_url()

    async def there() -> R:
        store = open_store(url)
        try:
            await store.open()
            return await verb(store)
        finally:
            await store.close()

    return run_in_background(there)
