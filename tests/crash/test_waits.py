"""Tasks that wait for other jobs hold all slots: this is reported, and another worker helps."""

from __future__ import annotations

import asyncio

import pytest

from harness.scene import Scene
from outlast.insight.explanation import JobDetails
from outlast.insight.why import why
from outlast.model.job import State
from outlast.store.rows import StoredJob
from outlast.store.statistics import Place
from tests.crash.kit import IMPATIENT

SLOTS = ("--concurrency", "2")


async def said_of(stage: Scene, row: StoredJob) -> tuple[str, str]:
    """The position that ``outlast why`` gives, and its sentences."""
    inspector = stage.store.inspector
    about = JobDetails(
        row=row,
        attempts=[],
        workers=await inspector.workers(),
        place=await inspector.place(row.id) or Place(),
        now=row.enqueued_at + 10,
        held=await inspector.held(),
    )
    answer = why(about)
    return answer.position, " ".join(answer.sentences)


@pytest.mark.parametrize(
    ("task", "number"), [("waits_for_another", 2), ("waits_for_another_in_plain_code", 1)]
)
async def test_slots_held_by_waiting_tasks_are_reported(
    stage: Scene, task: str, number: int
) -> None:
    worker = await stage.worker(*SLOTS, env=IMPATIENT)
    parents = [await stage.enqueue(task) for _ in range(number)]
    told = await stage.told(worker, "slots_held_by_waiting")
    assert told["job_id"] in parents
    child = await stage.job(told["waits_for"])
    assert (child.id in parents, child.state) == (False, State.QUEUED)

    async def is_on_the_rows() -> bool:
        held = await stage.store.inspector.held()
        return len(held) == number and all(one.waits_for is not None for one in held)

    await stage.until(is_on_the_rows, "progress that says what is waited for")
    position, sentences = await said_of(stage, child)
    assert position == "slots_held"
    assert f"job {told['job_id']} for job {child.id}" in sentences
    await stage.worker(*SLOTS)
    ends = await asyncio.gather(*(stage.ended(parent) for parent in parents))
    assert [row.result for row in ends] == ["7"] * number
