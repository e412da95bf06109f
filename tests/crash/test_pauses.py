"""``outlast pause`` against a running worker: once it has said so, nothing of it starts."""

from __future__ import annotations

from harness.scene import Scene
from outlast.model.job import State
from tests.crash.test_drain_from_outside import outlast


async def test_a_paused_task_starts_nowhere_and_what_runs_stops_if_asked(
    sqlite_stage: Scene,
) -> None:
    stage = sqlite_stage
    await stage.worker("--concurrency", "2")
    running = await stage.enqueue("waits")
    await stage.started(1)
    code, said = await outlast(
        stage, "pause", "task", "waits", "--reason", "a test", "--wait", "90"
    )
    assert (code, said) == (
        0,
        (
            "the task 'waits' is paused: none of its jobs starts;"
            " `outlast resume task waits` ends that\n"
        ),
    )
    held = await stage.enqueue("waits")
    assert (await stage.ended(await stage.enqueue("noop"))).state is State.COMPLETED
    assert (await stage.job(held)).state is State.QUEUED
    assert (await stage.job(running)).state is State.RUNNING
    code, said = await outlast(stage, "pause", "task", "waits", "--stop", "--wait", "90")
    assert code == 0, said
    row = await stage.in_state(running, State.QUEUED)
    assert (row.failures, row.losses, row.attempt_count) == (0, 0, 1)
    assert len(stage.entries()) == 1
    code, said = await outlast(stage, "resume", "task", "waits")
    assert code == 0, said
    for job in (held, running):
        await stage.in_state(job, State.RUNNING)


async def test_what_lies_in_a_runner_whose_loop_is_blocked_does_not_begin_once_it_is_paused(
    stage: Scene,
) -> None:
    await stage.worker()
    gate = stage.folder / "gate"
    blocks = await stage.enqueue("blocks_its_loop_until", path=str(gate))
    await stage.started(1)
    behind = await stage.enqueue("waits")
    await stage.in_state(behind, State.RUNNING)
    code, said = await outlast(stage, "pause", "task", "waits", "--wait", "90")
    assert code == 0, said
    gate.touch()
    assert (await stage.ended(blocks)).state is State.COMPLETED
    assert (await stage.ended(await stage.enqueue("noop"))).state is State.COMPLETED
    row = await stage.in_state(behind, State.QUEUED)
    assert (row.failures, row.losses) == (0, 0)
    assert len(stage.entries()) == 1, "nothing of it has begun"
