"""Spans of what is enqueued, and traces from there through the attempts, on each store."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sqlite3
from typing import Any

import pytest
from opentelemetry.trace import SpanKind

import outlast
from outlast.contrib import otel
from tests.app import in_process_kit
from tests.app.in_process_kit import DEADLINE
from tests.unit.contrib.tracing_kit import Spans, facts, ids, origin

app = in_process_kit.app


@pytest.fixture
def spans(app: outlast.App) -> Spans:
    made = Spans()
    otel.instrument(app, tracer_provider=made.provider)
    return made


async def meta_of(app: outlast.App, job: outlast.Job[Any]) -> dict[str, Any]:
    row = await app.stores.ask(lambda store: store.inspector.job(job.id))
    assert row is not None
    meta: dict[str, Any] = json.loads(row.policy.meta or "{}")
    return meta


async def test_a_trace_leads_from_a_request_through_its_jobs(
    app: outlast.App, spans: Spans
) -> None:
    @app.task(queue="mail")
    async def mail() -> None: ...

    @app.task
    async def order() -> int:
        return (await mail.enqueue()).id

    with spans.provider.get_tracer("web").start_as_current_span("POST /orders"):
        job = await order.enqueue()
    async with app.worker():
        mailed = await job.result(timeout=DEADLINE)
        await (await app.get(mailed)).result(timeout=DEADLINE)
    chain = ["POST /orders", "send default", "process default", "send mail", "process mail"]
    found = [spans.one(name) for name in chain]
    for parent, child in itertools.pairwise(found):
        assert origin(child) == ("child", ids(parent))


async def test_what_is_sent_has_a_span_by_the_conventions(app: outlast.App, spans: Spans) -> None:
    @app.task
    async def work() -> None: ...

    job = await work.using(queue="mail", meta={"order": 7}).enqueue()
    span = spans.one("send mail")
    assert span.kind is SpanKind.PRODUCER
    assert facts(span) == {
        "messaging.system": "outlast",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job.id),
        "outlast.task": "work",
        "outlast.created": True,
    }
    meta = await meta_of(app, job)
    trace_id, span_id = ids(span)
    flags = span.context.trace_flags
    assert meta["order"] == 7
    assert meta["otel"]["traceparent"] == f"00-{trace_id:032x}-{span_id:016x}-{flags:02x}"
    assert "sent" in meta["otel"]


async def test_many_are_sent_by_one_span_and_none_is_its_child(
    app: outlast.App, spans: Spans
) -> None:
    @app.task
    async def work(n: int) -> None: ...

    jobs = await app.enqueue_many([work.call(n) for n in range(3)])
    span = spans.one("send default")
    assert facts(span)["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in facts(span)
    async with app.worker():
        for job in jobs:
            await job.result(timeout=DEADLINE)
    attempts = [each for each in spans.all() if each.name == "process default"]
    assert [origin(each) for each in attempts] == [("linked", ids(span))] * 3
    assert len({ids(each)[0] for each in attempts}) == 3


async def test_a_batch_of_several_queues_names_none(app: outlast.App, spans: Spans) -> None:
    @app.task
    async def work() -> None: ...

    await app.enqueue_many([work.call(), work.using(queue="mail").call()])
    assert "messaging.destination.name" not in facts(spans.one("send"))


async def test_a_delayed_job_begins_a_trace_of_its_own(app: outlast.App, spans: Spans) -> None:
    @app.task
    async def work() -> None: ...

    job = await work.using(delay=0.05).enqueue()
    async with app.worker():
        await job.result(timeout=DEADLINE)
    sender = ids(spans.one("send default"))
    assert origin(spans.one("process default")) == ("linked", sender)


@pytest.mark.on_both_stores
async def test_plain_code_and_connections_of_its_own_send_as_well(
    app: outlast.App, spans: Spans
) -> None:
    @app.task
    async def work() -> None: ...

    job = await asyncio.to_thread(work.enqueue_sync)
    assert "otel" in await meta_of(app, job)
    assert facts(spans.one("send default"))["messaging.message.id"] == str(job.id)


async def test_jobs_of_the_callers_transaction_are_sent_by_one_span(sqlite_url: str) -> None:
    spans = Spans()
    async with outlast.App(sqlite_url) as app:
        otel.instrument(app, tracer_provider=spans.provider)

        @app.task
        async def work(n: int) -> None: ...

        await app.stores.store()
        path = sqlite_url.removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            task = work.using(connection=connection)
            jobs = await app.enqueue_many([task.call(n) for n in range(2)])
            connection.execute("COMMIT")
        assert facts(spans.one("send default"))["messaging.batch.message_count"] == 2
        assert "otel" in await meta_of(app, jobs[0])


async def test_without_an_sdk_nothing_is_noted(app: outlast.App) -> None:
    otel.instrument(app)

    @app.task
    async def work() -> None: ...

    job = await work.using(meta={"order": 7}).enqueue()
    assert await meta_of(app, job) == {"order": 7}
    async with app.worker():
        await job.result(timeout=DEADLINE)


async def test_notes_without_room_for_a_context_stay_as_they_are(
    app: outlast.App, spans: Spans
) -> None:
    @app.task
    async def work() -> None: ...

    meta = {"note": "x" * (4_096 - len(json.dumps({"note": ""}, separators=(",", ":"))))}
    job = await work.using(meta=meta).enqueue()
    assert await meta_of(app, job) == meta
    assert facts(spans.one("send default"))["outlast.created"] is True
