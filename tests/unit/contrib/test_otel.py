"""Spans of attempts: whose child, what they say, how they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

import outlast
from outlast.contrib import otel
from outlast.model.crash import Crash, CrashKind, hiding
from outlast.model.job import Policy
from outlast.store.values import Enqueued
from outlast.worker import foreign_ends
from outlast.worker.foreign_ends import ForeignEnd
from tests.manual_clock import ManualClock
from tests.unit.contrib.tracing_kit import Spans, facts, ids, origin
from tests.unit.runner.execute_kit import Bench

SENDER = (0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOW = 5_000.0


class Traced(Bench):
    """An executor whose application is instrumented."""

    def __init__(self) -> None:
        super().__init__()
        self.spans = Spans()
        self.app.stores.clock = ManualClock(wall=NOW)
        otel.instrument(self.app, tracer_provider=self.spans.provider)

    async def span_of(self, task, **fields) -> ReadableSpan:
        await self.outcome(task, **fields)
        return self.spans.one("process default")


@pytest.fixture
async def bench() -> AsyncIterator[Traced]:
    bench = Traced()
    yield bench
    bench.executor.close()


def sent(at: float | None) -> Policy:
    carrier = {"traceparent": PARENT} | ({} if at is None else {"sent": at})
    return Policy(meta=json.dumps({"otel": carrier}))


@pytest.mark.parametrize(
    ("policy", "number", "tied"),
    [
        (sent(NOW - 59), 1, ("child", SENDER)),
        (sent(NOW - 61), 1, ("linked", SENDER)),
        (sent(NOW + 59), 1, ("child", SENDER)),  # where clocks differ
        (sent(NOW + 61), 1, ("linked", SENDER)),
        (sent(NOW), 2, ("linked", SENDER)),
        (sent(None), 1, ("linked", SENDER)),
        (Policy(meta='{"otel": {"traceparent": "rubbish", "sent": 5000}}'), 1, ("root", None)),
        (Policy(), 1, ("root", None)),
    ],
)
async def test_only_a_first_attempt_soon_after_its_enqueuing_is_a_child(
    bench: Traced, policy: Policy, number: int, tied: tuple[str, object]
) -> None:
    @bench.app.task
    async def work() -> None: ...

    span = await bench.span_of(work, policy=policy, number=number)
    assert origin(span) == tied
    assert (tied[0] == "child") is (ids(span)[0] == SENDER[0])


async def test_a_span_says_what_the_conventions_for_messaging_want(bench: Traced) -> None:
    @bench.app.task
    async def work() -> None: ...

    span = await bench.span_of(work, token=7, job_id=3, number=2, checkpoint="[1]")
    assert span.kind is SpanKind.CONSUMER
    assert span.status.status_code is StatusCode.UNSET
    assert facts(span) == {
        "messaging.system": "outlast",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": "3",
        "outlast.task": "work",
        "outlast.token": 7,
        "outlast.attempt.number": 2,
        "outlast.resumed_from_checkpoint": True,
        "outlast.outcome": "completed",
    }


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_spans_of_the_tasks_own_are_its_children(bench: Traced, plain: bool) -> None:
    def inner() -> None:
        with bench.spans.provider.get_tracer("shop").start_as_current_span("inner"):
            pass

    @bench.app.task(name="work")
    def plain_work() -> None:
        inner()

    async def work() -> None:
        inner()

    task = plain_work if plain else bench.app.task(name="async_work")(work)
    span = await bench.span_of(task)
    assert origin(bench.spans.one("inner")) == ("child", ids(span))
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_the_spans_of_attempts_at_the_same_time_are_their_own(
    bench: Traced, plain: bool
) -> None:
    seen: dict[int, int] = {}

    def note() -> None:
        seen[outlast.current().token] = trace.get_current_span().get_span_context().span_id

    @bench.app.task(name="plain", own_runner=False)
    def plain_work() -> None:
        note()

    @bench.app.task
    async def work() -> None:
        await asyncio.sleep(0)
        note()

    for token in range(1, 9):
        bench.start(plain_work if plain else work, token=token)
    async with asyncio.timeout(60):
        while len(bench.link.ends) < 8:
            await asyncio.sleep(0.001)
    spans = {facts(span)["outlast.token"]: ids(span)[1] for span in bench.spans.all()}
    assert spans == seen
    assert len(spans) == 8


async def test_an_error_is_recorded_and_is_the_type_of_the_spans_error(bench: Traced) -> None:
    @bench.app.task
    async def work() -> None:
        raise ValueError("no such order\nmore")

    span = await bench.span_of(work)
    assert facts(span)["error.type"] == "error"
    assert span.status.status_code is StatusCode.ERROR
    (event,) = span.events
    assert event.name == "exception"
    assert (event.attributes or {})["exception.type"] == "ValueError"


@pytest.mark.parametrize(
    ("verdict", "outcome", "is_error"),
    [
        (outlast.Snooze(5), "snoozed", False),
        (outlast.Cancel("not needed"), "cancelled", False),
        (outlast.Retry(after=5), "error", True),
        (outlast.Dead("for good"), "dead", True),
    ],
)
async def test_a_verdict_is_an_outcome_and_no_exception(
    bench: Traced, verdict: Exception, outcome: str, is_error: bool
) -> None:
    @bench.app.task
    async def work() -> None:
        raise verdict

    span = await bench.span_of(work)
    assert facts(span)["outlast.outcome"] == outcome
    assert facts(span).get("error.type") == (outcome if is_error else None)
    assert not span.events


async def test_an_attempt_that_obeys_its_limit_ends_by_it(bench: Traced) -> None:
    began = asyncio.Event()

    @bench.app.task
    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    bench.start(work, token=4)
    await began.wait()
    bench.executor.stop(4, "timeout")
    await bench.end()
    assert facts(bench.spans.one("process default"))["error.type"] == "timeout"


async def test_a_result_that_cannot_be_stored_is_the_end(bench: Traced) -> None:
    @bench.app.task
    async def work() -> str:
        return "x" * 5_000

    assert facts(await bench.span_of(work))["error.type"] == "rejected_result"


async def test_an_attempt_that_cannot_begin_has_a_span(bench: Traced) -> None:
    @bench.app.task
    async def work(a: int) -> None: ...

    span = await bench.span_of(work, args='{"b": 1}', policy=sent(NOW))
    assert facts(span)["error.type"] == "undecodable"
    assert origin(span) == ("child", SENDER)


def ended(**fields: object) -> ForeignEnd:
    values: dict[str, object] = {
        "job_id": 3,
        "token": 7,
        "task": "work",
        "queue": "mail",
        "number": 1,
        "outcome": "signalled",
        "message": "the runner died of SIGKILL",
        "seconds": 2.5,
        "resumed": False,
        "crash": Crash(kind=CrashKind.SIGNALLED, signal="SIGKILL", worker="w", host="h"),
        **fields,
    }
    return ForeignEnd(**values)  # type: ignore[arg-type]


@pytest.fixture
def watched() -> Spans:
    spans = Spans()
    stop = otel.watch_deaths(tracer_provider=spans.provider)
    foreign_ends.tell(ended)
    stop()
    foreign_ends.tell(lambda: ended(queue="after the end"))
    return spans


def test_the_span_of_an_attempt_whose_process_has_died_is_made_by_its_worker(
    watched: Spans,
) -> None:
    span = watched.one("process mail")
    assert len(watched.all()) == 1
    assert facts(span)["error.type"] == "signalled"
    assert facts(span)["outlast.crash.signal"] == "SIGKILL"
    assert "outlast.crash.exit_code" not in facts(span)
    assert span.status.description == "the runner died of SIGKILL"
    assert ((span.end_time or 0) - (span.start_time or 0)) / 1e9 == pytest.approx(2.5)


def test_the_span_of_an_attempt_that_was_killed_for_a_cancel_is_no_error() -> None:
    spans = Spans()
    stop = otel.watch_deaths(tracer_provider=spans.provider)
    foreign_ends.tell(lambda: ended(outcome="cancelled"))
    stop()
    span = spans.one("process mail")
    assert "error.type" not in facts(span)
    assert facts(span)["outlast.crash.signal"] == "SIGKILL"


def test_without_a_listener_nothing_is_made() -> None:
    foreign_ends.tell(lambda: pytest.fail("made for no listener"))


def test_a_listener_that_fails_keeps_no_other_from_hearing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[int] = []

    def fails(each: ForeignEnd) -> None:
        raise ValueError("full")

    stops = [
        foreign_ends.listen(fails),
        foreign_ends.listen(lambda each: heard.append(each.job_id)),
    ]
    foreign_ends.tell(ended)
    for stop in stops:
        stop()
    assert heard == [3]
    assert "a listener failed" in caplog.text


async def test_a_span_holds_no_piece_of_what_is_redacted(bench: Traced) -> None:
    bench.link.hide = hiding([r"\d{16}"])  # type: ignore[attr-defined]

    @bench.app.task(retries=0)
    async def work() -> None:
        raise ValueError("x4711222233334444 " * 200)

    span = await bench.span_of(work)
    (event,) = span.events
    told = dict(event.attributes or {})
    assert "[redacted]" in str(told["exception.message"])
    assert told["exception.type"] == "ValueError"
    shown = [span.to_json(), repr(span.status.description)]
    assert "47112222" not in "".join(shown)


async def refuse(jobs: object, enqueue: object) -> list[Enqueued]:
    raise ValueError("the key '4711222233334444' belongs to job 1")


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_a_span_of_what_an_attempt_sends_is_redacted(bench: Traced, plain: bool) -> None:
    """Its error may name a key, which user code has written."""
    bench.link.hide = hiding([r"\d{16}"])  # type: ignore[attr-defined]

    bench.app.stores.wrap(refuse)
    otel.instrument(bench.app, tracer_provider=bench.spans.provider)  # around the refusal

    @bench.app.task
    async def other() -> None: ...

    async def work() -> None:
        await other.enqueue()

    def work_plainly() -> None:
        other.enqueue_sync()

    await bench.outcome(bench.app.task(name="work", retries=0)(work_plainly if plain else work))
    span = next(span for span in bench.spans.all() if span.name == "send default")
    assert span.status.description == "ValueError: the key '[redacted]' belongs to job 1"
    (event,) = span.events
    assert (event.attributes or {})["exception.type"] == "ValueError"
    assert "47112222" not in span.to_json()


async def test_a_span_of_no_attempt_says_what_went_wrong(bench: Traced) -> None:
    bench.app.stores.wrap(refuse)
    otel.instrument(bench.app, tracer_provider=bench.spans.provider)

    @bench.app.task
    async def other() -> None: ...

    with pytest.raises(ValueError, match="belongs"):
        await other.enqueue()
    span = bench.spans.all()[0]
    assert span.status.status_code is StatusCode.ERROR
    assert "4711222233334444" in str(span.status.description)
