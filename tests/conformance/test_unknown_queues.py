"""A worker is told of queues that nothing knows."""

from __future__ import annotations

from outlast import events
from outlast.store.protocol import Store
from outlast.store.values import NewJob
from outlast.worker.assemble import tell_unknown_queues
from tests.conformance.kit import enqueued


async def test_a_queue_that_no_task_and_no_job_has_is_told_with_a_near_one(store: Store) -> None:
    await enqueued(store, NewJob(task="t", queue="ad-hoc"))
    told: list[tuple[object, object]] = []
    end = events.subscribe(
        lambda name, fields: (
            told.append((fields["queue"], fields["near"])) if name == "queue_unknown" else None
        )
    )
    try:
        await tell_unknown_queues(store, ["mail", "mial", "ad-hoc", "x"], ["mail", "default"])
        await tell_unknown_queues(store, [], ["default"])
    finally:
        end()
    assert told == [("mial", "mail"), ("x", None)]
