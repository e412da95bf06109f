"""A tracer provider whose spans a test can look at."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Spans:
    """The spans of one test."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def all(self) -> list[ReadableSpan]:
        """Return those that have ended."""
        return list(self._exporter.get_finished_spans())

    def one(self, name: str) -> ReadableSpan:
        """Return the only one of this name."""
        (span,) = [span for span in self.all() if span.name == name]
        return span


def facts(span: ReadableSpan) -> dict[str, object]:
    """Return its attributes."""
    return dict(span.attributes or {})


def ids(span: ReadableSpan) -> tuple[int, int]:
    """Return the ids of its trace and of itself."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def origin(span: ReadableSpan) -> tuple[str, tuple[int, int] | None]:
    """Return how it is tied to another span, and to which: child, linked or root."""
    if span.parent is not None:
        return "child", (span.parent.trace_id, span.parent.span_id)
    if span.links:
        (link,) = span.links
        return "linked", (link.context.trace_id, link.context.span_id)
    return "root", None
