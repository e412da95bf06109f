"""An application whose spans and reports go to files, for tests that kill its processes."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import sentry_sdk
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

import outlast
from outlast.contrib import otel, sentry
from tests.crash.told import write


class ToFile(SpanExporter):
    """Writes spans to a file."""

    def export(self, spans: Any) -> SpanExportResult:
        for span in spans:
            write("spans", _shown(span))
        return SpanExportResult.SUCCESS


def _shown(span: ReadableSpan) -> dict[str, Any]:
    parent = span.parent or next((link.context for link in span.links), None)
    return {
        "name": span.name,
        "is_child": span.parent is not None,
        "of": None if parent is None else parent.span_id,
        "seconds": ((span.end_time or 0) - (span.start_time or 0)) / 1e9,
        **dict(span.attributes or {}),
    }


class ReportsToFile(Transport):
    """Writes reports to a file."""

    def capture_envelope(self, envelope: Envelope) -> None:
        event: Any = envelope.get_event()
        if event is not None:
            evidence = event["contexts"].get("outlast crash", {})
            write("reports", {"message": event.get("message"), "tags": event["tags"], **evidence})


def set_up() -> None:
    """Set up both libraries, in any process."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ToFile()))
    trace.set_tracer_provider(provider)
    sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", transport=ReportsToFile())


def set_up_worker() -> None:
    """Set up the worker's own process: outlast worker --setup."""
    set_up()
    otel.watch_deaths()
    sentry.watch_deaths()


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
