"""An application whose spans and reports go to files, for tests that kill its processes."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from sentry_sdk.envelope import Envelope

import outlast
from outlast.contrib import otel, sentry
from tests.crash import observed
from tests.crash.told import write


def _span(span: ReadableSpan) -> dict[str, Any]:
    parent = span.parent or next((link.context for link in span.links), None)
    return {
        "name": span.name,
        "is_child": span.parent is not None,
        "of": None if parent is None else parent.span_id,
        "seconds": ((span.end_time or 0) - (span.start_time or 0)) / 1e9,
        **dict(span.attributes or {}),
    }


def _report(envelope: Envelope) -> dict[str, Any] | None:
    event: Any = envelope.get_event()
    if event is None:
        return None
    evidence = event["contexts"].get("outlast crash", {})
    return {"message": event.get("message"), "tags": event["tags"], **evidence}


def set_up() -> None:
    """Set up both libraries, in any process."""
    observed.set_up(_span, _report)


def set_up_worker() -> None:
    """Set up the worker's own process."""
    set_up()
    observed.watch_deaths()


app = outlast.App()
if "OUTLAST_TEST_APP" in os.environ:  # in a runner, and not where a test imports this
    set_up()
    otel.instrument(app)
    sentry.instrument(app)


@app.task(retries=1, backoff_first=0)
async def dies() -> str:
    """Die of SIGKILL in the first attempt."""
    attempt = outlast.current()
    if attempt.number == 1:
        await attempt.save({"at": 1})
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


@app.task
async def waits() -> str:
    """Wait, in the first attempt, until its worker is killed."""
    if outlast.current().number == 1:
        write("begun", {})
        await asyncio.Event().wait()
    return "done"
