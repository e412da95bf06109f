"""Spans and reports of attempts whose process was killed: the worker makes them, or the next one.

Real processes, whose spans and reports go to files.
"""

from __future__ import annotations

from typing import Any

import outlast
from harness.scene import Scene
from outlast.contrib import otel
from tests.crash import told
from tests.unit.contrib.tracing_kit import Spans, ids

WITH_SETUP = ("--setup", "tests.crash.traced:set_up_worker")
ENV = {"OUTLAST_TEST_APP": "tests.crash.traced:app"}


async def sent(stage: Scene, name: str) -> tuple[int, int]:
    """Enqueue a job as an instrumented program does; return its id and that of the span."""
    spans = Spans()
    app = outlast.App(stage.url)
    task = app.task(name=name)(_nothing)
    otel.instrument(app, tracer_provider=spans.provider)
    job = await task.enqueue()
    await app.close()
    return job.id, ids(spans.one("send default"))[1]


async def _nothing() -> None:
    """Stands for the task of the worker's application."""


async def attempts(stage: Scene, job: int) -> dict[Any, dict[str, Any]]:
    """Return the spans of both attempts of a job once they are there, by number."""

    def spans() -> list[dict[str, Any]]:
        found = told.read(stage.folder, "spans")
        return [each for each in found if each.get("messaging.message.id") == str(job)]

    await stage.until(lambda: len(spans()) == 2, "the spans of two attempts")
    return {each["outlast.attempt.number"]: each for each in spans()}


async def test_the_worker_tells_of_an_attempt_whose_runner_was_killed(
    sqlite_stage: Scene,
) -> None:
    stage = sqlite_stage
    worker = await stage.worker(*WITH_SETUP, env=ENV)
    job, sender = await sent(stage, "dies")
    spans = await attempts(stage, job)
    first, second = spans[1], spans[2]
    assert (first["pid"], second["pid"] == worker.pid) == (worker.pid, False)
    assert (first["is_child"], first["of"]) == (True, sender)
    assert first["error.type"] == "signalled"
    assert first["outlast.crash.signal"] == "SIGKILL"
    assert first["outlast.resumed_from_checkpoint"] is False
    assert first["seconds"] > 0
    assert (second["is_child"], second["of"]) == (False, sender)
    assert second["outlast.resumed_from_checkpoint"] is True
    assert second["outlast.outcome"] == "completed"
    (report,) = told.read(stage.folder, "events")
    assert (report["pid"], report["signal"]) == (worker.pid, "SIGKILL")
    assert report["tags"]["outlast.job_id"] == str(job)


async def test_another_worker_tells_of_an_attempt_whose_worker_was_killed(
    sqlite_stage: Scene,
) -> None:
    stage = sqlite_stage
    killed = await stage.worker(*WITH_SETUP, env=ENV)
    job, sender = await sent(stage, "waits")

    await stage.until(lambda: told.read(stage.folder, "begun"), "the first attempt")
    killed.kill_tree()
    other = await stage.worker(*WITH_SETUP, env=ENV)
    spans = await attempts(stage, job)
    assert spans[1]["pid"] == other.pid
    assert spans[1]["error.type"] == "lost_worker"
    assert spans[1]["of"] == sender
    assert spans[2]["outlast.outcome"] == "completed"
    (report,) = told.read(stage.folder, "events")
    assert report["tags"]["outlast.outcome"] == "lost_worker"
