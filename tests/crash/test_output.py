"""What an attempt has written is in its own report, and its lines in the log name its job."""

from __future__ import annotations

import json
import os
import signal

import pytest

from harness.scene import Scene
from outlast.model.job import Policy, State
from outlast.model.pause import PauseKind
from outlast.store.values import NewJob, NewPause
from outlast.worker.runners.output import NOT_KNOWN

ONCE = Policy(retries=0, max_losses=0)
PRINTERS = {"OUTLAST_TEST_APP": "tests.crash.printers:app"}


async def enqueue(stage: Scene, task: str, **args: object) -> int:
    new = NewJob(task=task, args=json.dumps(args), policy=ONCE)
    return (await stage.store.enqueue([new]))[0].job_id


async def output_of(stage: Scene, job_id: int) -> list[str]:
    await stage.ended(job_id)
    (closed,) = await stage.attempts(job_id)
    assert closed.crash is not None
    return closed.crash.output


async def test_the_report_of_an_error_has_what_the_attempt_wrote(stage: Scene) -> None:
    worker = await stage.worker(env=PRINTERS)
    first = await enqueue(stage, "prints", word="first", raises=False)
    assert (await stage.ended(first)).state == "completed"
    job_id = await enqueue(stage, "prints", word="second")
    assert await output_of(stage, job_id) == [
        "second by print",
        "second past Python",
        "second by a child",
        "second to stderr",
        "second, no end",
    ]

    await stage.until(
        lambda: any(each["text"] == "second, no end" for each in worker.told("runner_output")),
        "the last line of the log",
    )
    lines = [each for each in worker.told("runner_output") if each["text"].startswith("second")]
    assert {(each["job_id"], each["task"]) for each in lines} == {(job_id, "prints")}


@pytest.mark.short
async def test_attempts_that_share_a_runner_have_each_its_own_lines(sqlite_stage: Scene) -> None:
    stage = sqlite_stage
    await stage.worker(env=PRINTERS)
    jobs = [await enqueue(stage, "prints_in_turn", word=word) for word in ("one", "two")]
    for job_id, word in zip(jobs, ("one", "two"), strict=True):
        lines = await output_of(stage, job_id)
        if NOT_KNOWN in lines:
            lines = lines[: lines.index(NOT_KNOWN)]
        assert lines == [f"{word} {number}" for number in range(5)]


async def test_after_a_kill_each_report_has_its_own_lines_and_marks_unattributed_ones(
    sqlite_stage: Scene,
) -> None:
    stage = sqlite_stage
    await stage.worker(env=PRINTERS)
    jobs = [await enqueue(stage, "prints_and_hangs", word=word) for word in ("one", "two")]

    await stage.noted(2, "written")
    os.kill(stage.entries()[0]["pid"], signal.SIGKILL)

    async def closed() -> bool:
        return all([await stage.attempts(job_id) for job_id in jobs])

    await stage.until(closed, "the reports")
    for job_id, word in zip(jobs, ("one", "two"), strict=True):
        crash = (await stage.attempts(job_id))[0].crash
        assert crash is not None
        lines = crash.output
        assert lines[:2] == [f"{word} by print", NOT_KNOWN]
        assert sorted(lines[2:]) == ["one past Python", "two past Python"]


@pytest.mark.parametrize(
    ("why", "deaf"), [("pause", False), ("pause", True), ("drain", True), ("timeout", True)]
)
async def test_the_last_lines_of_an_attempt_that_is_stopped_are_kept(
    stage: Scene, why: str, deaf: bool
) -> None:
    """The store refuses them once the end has been handed in."""
    worker = await stage.worker("--drain-timeout", "0", env=PRINTERS)
    timeout = 1.0 if why == "timeout" else None
    policy = Policy(retries=0, max_losses=0, logs=True, timeout=timeout, cancel_grace=1.0)
    new = NewJob(task="prints_when_asked_to_stop", args=json.dumps({"deaf": deaf}), policy=policy)
    job_id = (await stage.store.enqueue([new]))[0].job_id
    await stage.started(1)
    if why == "pause":
        await stage.store.pause(NewPause(kind=PauseKind.ALL, stop=True))
    elif why == "drain":
        worker.signal(signal.SIGTERM)
    row = await stage.in_state(job_id, State.DEAD if why == "timeout" else State.QUEUED)
    (kept,) = await stage.store.inspector.logs(job_id)
    assert [line.text for line in kept.lines] == ["begins", "asked to stop", "the last of it"]
    assert (row.failures, row.losses) == (int(why == "timeout"), 0)
    (closed,) = await stage.attempts(job_id)
    assert closed.outcome == ("timeout" if why == "timeout" else "released")
