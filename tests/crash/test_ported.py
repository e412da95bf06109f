"""The project that the page for users of Celery shows: its charge, and the invoice behind it."""

from __future__ import annotations

from harness.scene import Scene
from outlast.model.job import State
from outlast.store.rows import JobFilter, StoredJob

PORTED = {"OUTLAST_TEST_APP": "tests.crash.ported:app"}


async def invoices(stage: Scene) -> list[StoredJob]:
    rows = await stage.store.inspector.jobs(JobFilter(task="invoice"))
    return [await stage.job(row.id) for row in rows]


async def test_a_charge_killed_behind_its_follow_up_makes_one_invoice(stage: Scene) -> None:
    killed = await stage.worker("--queues", "money", env=PORTED)
    charge = await stage.enqueue("charge", order=7, cents=1200)
    await stage.started(1)
    killed.kill_tree()

    await stage.worker("--queues", "default", env=PORTED)
    for stored in await invoices(stage):  # a key of theirs would be free when they have ended
        await stage.ended(stored.id)
    await stage.worker("--queues", "money", env=PORTED)
    ended = await stage.ended(charge)
    assert (ended.state, ended.result) == (State.COMPLETED, '"charged 1200"')
    (invoice,) = await invoices(stage)
    assert (await stage.ended(invoice.id)).state is State.COMPLETED
    assert [one.outcome for one in await stage.attempts(charge)] == ["lost_worker"]
