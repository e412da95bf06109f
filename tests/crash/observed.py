"""Spans and events of Sentry that go to files, for applications whose processes are killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sentry_sdk
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from outlast.contrib import otel, sentry
from tests.crash.told import write


def set_up(
    span: Callable[[ReadableSpan], dict[str, Any]],
    envelope: Callable[[Envelope], dict[str, Any] | None],
    **options: Any,
) -> None:
    """Set up both libraries in this process: what these return of each span and event is written
    to the files ``spans`` and ``events``."""

    class Spans(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            for one in spans:
                write("spans", span(one))
            return SpanExportResult.SUCCESS

    class Events(Transport):
        def capture_envelope(self, one: Envelope) -> None:
            if (shown := envelope(one)) is not None:
                write("events", shown)

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Spans()))
    trace.set_tracer_provider(provider)
    sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", transport=Events(), **options)


def watch_deaths() -> None:
    """What else the worker's own process sets up: outlast worker --setup."""
    otel.watch_deaths()
    sentry.watch_deaths()
