"""Trace by OpenTelemetry: a span for each enqueued job or batch, one for each attempt.

Call ``instrument(app)`` where the application is made, and ``watch_deaths()`` in the worker's own
process (``outlast worker --setup``), for attempts whose process has died. This module needs only
the API; the program sets up the SDK and where spans go.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import msgspec

from outlast.base.clock import SYSTEM, Clock
from outlast.client.app import App
from outlast.client.attempt import Attempt, find_current
from outlast.client.stores import Enqueue
from outlast.contrib.trace_context import SentBy, note_context, read_context
from outlast.errors import ConfigError, text_of
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.store.values import Enqueued, NewJob
from outlast.worker import foreign_ends
from outlast.worker.foreign_ends import ForeignEnd

try:
    from opentelemetry import context, propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer
except ImportError as error:
    raise ConfigError(
        "outlast.contrib.otel needs OpenTelemetry: pip install 'outlast[otel]'"
    ) from error

_SYSTEM = "outlast"
_FAILED = {OutcomeKind.CRASHED, OutcomeKind.DEAD}


def instrument(app: App, *, tracer_provider: trace.TracerProvider | None = None) -> None:
    """Make spans for jobs that this application enqueues (``send QUEUE``) and runs (``process
    QUEUE``).

    Call it once for each application. The ``meta`` of the job carries the context of the trace,
    under ``otel``. The first attempt, if it begins within 60 seconds after the job was enqueued, is
    a child of the span that sent the job; other attempts, and attempts of jobs that were delayed or
    sent in bulk, begin a new trace with a link to that span.

    Args:
        app: the application.
        tracer_provider: the provider of the tracer; default: the global one.
    """
    tracer = trace.get_tracer("outlast", tracer_provider=tracer_provider)
    app.stores.wrap(_Producer(tracer, app).send)
    consumer = _Consumer(tracer, app)
    app.around_fns.insert(0, contextlib.asynccontextmanager(consumer.around))
    app._end_fns.append(consumer.end)  # noqa: SLF001


def watch_deaths(*, tracer_provider: trace.TracerProvider | None = None) -> Callable[[], None]:
    """Make a span for each attempt that this process, a worker, ends on behalf of a dead process:
    its runner, or another worker. Return a function that stops this.

    Call it in the function that ``outlast worker --setup`` names. The span of an attempt whose
    worker has died has no duration: only the store knows its start.
    """
    tracer = trace.get_tracer("outlast", tracer_provider=tracer_provider)
    return foreign_ends.listen(lambda ended: _trace_death(tracer, ended, SYSTEM))


class _Producer:
    def __init__(self, tracer: Tracer, app: App) -> None:
        self._tracer = tracer
        self._app = app

    async def send(self, jobs: Sequence[NewJob], enqueue: Enqueue) -> list[Enqueued]:
        if not jobs or all(read_context(job.policy.meta) for job in jobs):  # a span has sent them
            return await enqueue(jobs)
        queues = {job.queue for job in jobs}
        name = f"send {queues.pop()}" if len(queues) == 1 else "send"
        with self._tracer.start_as_current_span(
            name,
            kind=SpanKind.PRODUCER,
            attributes=_sent(jobs),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                stored = await enqueue(self._with_context(jobs))
            except Exception as error:
                _note_refusal(span, error)
                raise
            if len(stored) == 1:
                span.set_attribute("messaging.message.id", str(stored[0].job_id))
                span.set_attribute("outlast.created", stored[0].created)
            return stored

    def _with_context(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        if not carrier:  # no tracing is set up
            return list(jobs)
        now = self._app.stores.clock.wall()
        noted = []
        for job in jobs:
            may_be_child = len(jobs) == 1 and not job.delay and job.run_at is None
            sent_by = SentBy(carrier, now if may_be_child else None)
            policy = msgspec.structs.replace(
                job.policy, meta=note_context(job.policy.meta, sent_by)
            )
            noted.append(msgspec.structs.replace(job, policy=policy))
        return noted


def _note_refusal(span: Span, error: Exception) -> None:
    """Record an error as OpenTelemetry would; inside an attempt it is redacted first."""
    attempt = find_current()
    hide = str if attempt is None else attempt._hide  # noqa: SLF001
    name, text = type(error).__qualname__, hide(text_of(error))
    trace_text = "".join(traceback.format_exception(error))
    span.set_attribute("error.type", name)
    span.add_event("exception", _exception_of(name, text, hide(trace_text)))
    span.set_status(Status(StatusCode.ERROR, f"{name}: {text}"))


def _sent(jobs: Sequence[NewJob]) -> dict[str, Any]:
    first, more = jobs[0], len(jobs) > 1
    attributes = {"messaging.operation.name": "send", "messaging.operation.type": "send"}
    attributes |= {"messaging.system": _SYSTEM, "messaging.destination.name": first.queue}
    if more and any(job.queue != first.queue for job in jobs):
        del attributes["messaging.destination.name"]
    if all(job.task == first.task for job in jobs):
        attributes["outlast.task"] = first.task
    return attributes | ({"messaging.batch.message_count": len(jobs)} if more else {})


class _Consumer:
    def __init__(self, tracer: Tracer, app: App) -> None:
        self._tracer = tracer
        self._app = app
        self._open: dict[int, Span] = {}  # by token
        self._raised: set[int] = set()  # tokens of attempts that have raised an error

    async def around(self, attempt: Attempt) -> AsyncIterator[None]:
        span, base = self._begin(attempt)
        self._open[attempt.token] = span
        attached = context.attach(trace.set_span_in_context(span, base))
        try:
            yield
        except Exception:  # a verdict is not an Exception
            self._raised.add(attempt.token)
            raise
        finally:
            context.detach(attached)

    def _begin(self, attempt: Attempt) -> tuple[Span, Context]:
        claimed = attempt._claimed  # noqa: SLF001
        attributes = _processed(
            attempt.queue, attempt.task, attempt.job_id, attempt.token, attempt.number
        ) | {"outlast.resumed_from_checkpoint": claimed.checkpoint is not None}
        now = self._app.stores.clock.wall()
        base, links = _origin(claimed.policy.meta, attempt.number, now)
        name = f"process {attempt.queue}"
        kind = SpanKind.CONSUMER
        span = self._tracer.start_span(name, base, kind, attributes=attributes, links=links)
        return span, base

    def end(self, attempt: Attempt, outcome: Outcome) -> None:
        """End the span, even of an attempt that could not begin, with the attempt's outcome."""
        span = self._open.pop(attempt.token, None) or self._begin(attempt)[0]
        crash = outcome.crash
        word = outcome.kind.value
        if outcome.kind is OutcomeKind.CRASHED and crash is not None:
            word = crash.kind.value
        is_error = outcome.kind in _FAILED
        if attempt.token in self._raised and crash is not None and crash.exception is not None:
            kind = crash.exception
            message = crash.message.removeprefix(f"{kind}: ")  # from the report, which is redacted
            span.add_event("exception", _exception_of(kind, message, crash.traceback or ""))
        self._raised.discard(attempt.token)
        _note_end(span, word, outcome.message or (crash.message if crash else ""), is_error)
        span.end()


def _exception_of(kind: str, message: str, stacktrace: str) -> dict[str, str]:
    return {
        "exception.type": kind,
        "exception.message": message,
        "exception.stacktrace": stacktrace,
    }


def _origin(meta: str | None, number: int, now: float) -> tuple[Context, list[Link]]:
    sent_by = read_context(meta)
    if sent_by is None:
        return Context(), []
    remote = propagate.extract(sent_by.carrier, Context())
    if number == 1 and sent_by.is_fresh(now):
        return remote, []
    sender = trace.get_current_span(remote).get_span_context()
    return Context(), [Link(sender)] if sender.is_valid else []


def _processed(queue: str, task: str, job_id: int, token: int, number: int) -> dict[str, Any]:
    return {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": queue,
        "messaging.message.id": str(job_id),
        "outlast.task": task,
        "outlast.token": token,
        "outlast.attempt.number": number,
    }


def _note_end(span: Span, word: str, message: str, is_error: bool) -> None:  # noqa: FBT001
    span.set_attribute("outlast.outcome", word)
    if is_error:
        span.set_attribute("error.type", word)
        span.set_status(Status(StatusCode.ERROR, message.partition("\n")[0] or word))


def _trace_death(tracer: Tracer, ended: ForeignEnd, clock: Clock) -> None:
    attributes = _processed(ended.queue, ended.task, ended.job_id, ended.token, ended.number)
    attributes |= {name: value for name, value in _evidence(ended) if value is not None}
    now = clock.wall()
    began = now - (ended.seconds or 0.0)
    base, links = _origin(ended.meta, ended.number, began)
    span = tracer.start_span(
        f"process {ended.queue}",
        base,
        SpanKind.CONSUMER,
        attributes=attributes,
        links=links,
        start_time=int(began * 1e9),
    )
    _note_end(span, ended.outcome, ended.message, ended.has_failed)
    span.end(int(now * 1e9))


def _evidence(ended: ForeignEnd) -> Iterator[tuple[str, Any]]:
    yield "outlast.resumed_from_checkpoint", ended.resumed
    if ended.crash is not None:
        yield "outlast.crash.signal", ended.crash.signal
        yield "outlast.crash.exit_code", ended.crash.exit_code
        yield "outlast.worker", ended.crash.worker
        yield "host.name", ended.crash.host
