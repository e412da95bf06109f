"""What users type, as the type checkers must see it. Checked, never run: see test_typing.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import outlast
import outlast.events
from outlast.contrib import otel, sentry
from outlast.testing import AppUnderTest
from outlast.web import Access, Right, dashboard

app = outlast.App("sqlite:///jobs.db", notify=False, max_payload=10_000)


@app.task
async def analyze(repo: str, depth: int = 100) -> dict[str, int]:
    attempt = outlast.current()
    assert_type(attempt, outlast.Attempt)
    attempt.report(0.4, "commit 400 of 1000", stage="counting")
    await attempt.save({"commit": 400})
    assert_type(await attempt.wait_event("approve", timeout=60, type=datetime), datetime)
    await attempt.complete_in(object(), {"a": 1})
    return {"commits": depth}


@app.task(queue="mail", retries=5, timeout=timedelta(minutes=1), aliases=["old.name"])
def mail(to: str, *cc: str, urgent: bool = False) -> int:
    attempt = outlast.current()
    attempt.save_sync(1)
    assert_type(attempt.wait_event_sync("approve", timeout=60.0, type=int), int)
    attempt.check()
    assert_type(attempt.stopping, bool)
    assert_type(attempt.cancelled, bool)
    assert_type(attempt.stop_reason, outlast.StopReason | None)
    return attempt.finish(len(cc))


@app.task(batch=500, batch_wait=timedelta(seconds=2), retries=5)
async def index(items: list[str]) -> list[int]:
    assert_type(outlast.current_batch(), list[outlast.Attempt])
    raise outlast.ItemErrors({3: ValueError("no such page")}, results=[len(each) for each in items])


@app.task(batch=500)
def ping(hosts: list[str]) -> None: ...


encoded = outlast.App(payloads=[outlast.Compression(), outlast.Encryption({"2026": "…"})])


async def in_a_lifespan(session: object) -> None:
    async with app as entered:
        assert_type(entered, outlast.App)
    app.on_commit(session, mail.using(delay=60).call("b"))


PATIENT: outlast.TaskOptions = {"retries": 10, "backoff_max": timedelta(hours=1)}


CHOOSY: outlast.TaskOptions = {
    "retry_on": (OSError,),
    "dead_on": FileNotFoundError,
    "backoff": [1, timedelta(minutes=1)],
}


@app.task(**CHOOSY)
def choosy() -> None: ...


@app.task(backoff=lambda error, failures: failures * 2.0)
def patient_by_hand() -> None: ...


@app.task(**PATIENT)
async def patient() -> None: ...


@app.task(own_runner=True, requires={"gpu"})
async def tick() -> None:
    raise outlast.Snooze(60)


@app.lifespan
async def resources(app: outlast.App) -> AsyncIterator[dict[str, str]]:
    yield {"engine": "on"}


@app.around
def context(attempt: outlast.Attempt) -> Iterator[None]:
    yield


async def enqueue() -> None:
    job = await analyze.enqueue("r", depth=50)
    assert_type(job, outlast.Job[dict[str, int]])
    assert_type(job.id, int)
    assert_type(job.created, bool)
    assert_type(job.row, outlast.JobRow | None)
    assert_type(await job.result(timeout=30), dict[str, int])
    assert_type(job.result_sync(), dict[str, int])
    assert_type(await job.status(), str)
    assert_type(await job.refresh(), outlast.JobRow)
    assert_type(await job.cancel(), outlast.Cancelled)
    assert_type(job.requeue_sync(from_scratch=True), outlast.Requeued)
    assert_type(mail.enqueue_sync("a", "b", urgent=True), outlast.Job[int])
    assert_type(mail.enqueue_sync("a").result_sync(5), int)
    assert_type((await tick.enqueue()).id, int)
    assert_type(await tick.enqueue(), outlast.Job[None])


async def place(connection: Any) -> None:
    later = analyze.using(
        delay=60, queue="slow", priority=5, key="repo:42", tenant="acme", connection=connection
    )
    assert_type(await later.enqueue("r"), outlast.Job[dict[str, int]])
    assert_type(later.using(at=datetime.now(UTC)).call("r", depth=2), outlast.Call[dict[str, int]])
    assert_type(mail.using(delay=timedelta(days=1)).enqueue_sync("a"), outlast.Job[int])
    placed: outlast.BoundTask[[], None] = tick.using(priority=1)
    assert_type(placed.call(), outlast.Call[None])


async def batches() -> None:
    assert_type(index, outlast.BatchTask[str, int])
    assert_type(await index.enqueue("a"), outlast.Job[int])
    assert_type(ping.using(delay=1).enqueue_sync("a"), outlast.Job[None])
    assert_type(await (await index.enqueue("a")).result(), int)
    await app.enqueue_many([index.call("a"), index.call("b")])
    await index(["a", "b"])


async def many() -> None:
    assert_type(await app.enqueue_many([mail.call("a"), mail.call("b")]), list[outlast.Job[int]])
    assert_type(app.enqueue_many_sync([mail.call("a")]), list[outlast.Job[int]])
    mixed = await app.enqueue_many([analyze.call("a", depth=2), mail.using(delay=60).call("b")])
    print([job.id for job in mixed])


async def call_directly() -> None:
    running: Coroutine[Any, Any, dict[str, int]] = analyze("r")
    assert_type(await running, dict[str, int])
    assert_type(await analyze("r", depth=3), dict[str, int])
    assert_type(mail("a"), int)


async def operate() -> None:
    assert_type(await app.get(1), outlast.Job[Any])
    assert_type(app.get_sync(1), outlast.Job[Any])
    assert_type(await app.cancel(1), outlast.Cancelled)
    assert_type(await app.requeue(1, from_scratch=True), outlast.Requeued)
    assert_type(app.find("mail"), outlast.Task[..., Any])
    async with app.worker(queues=["analysis"], lease=30, max_rss=None):
        pass
    app.close_sync()


def who(request: object) -> Access | None:
    return Access("ada", can=["view", Right.BULK], tenant=None) if request else None


async def who_asks_a_store(request: object) -> Access | None:
    return Access("ada", can={"view"}).reading() if request else None


def show() -> None:
    assert_type(Access("ada", can="view").may("cancel"), bool)
    dashboard(app, access=who, name="production", colour="red", hosts=["jobs.example.org"])
    dashboard("sqlite:///jobs.db", access=who_asks_a_store, hide=r"\d{16}", hide_keys=["password"])
    end = outlast.events.subscribe(print)
    end()


def trace() -> None:
    otel.instrument(app)
    sentry.instrument(app, ignore=[ValueError])
    otel.watch_deaths()()
    sentry.watch_deaths()()


def isolated(made: AppUnderTest) -> None:
    print(made)


def take(task: outlast.Task[[str], int], plain: outlast.PlainTask[[str], int]) -> outlast.Job[int]:
    assert_type(plain("a"), int)
    return task.enqueue_sync("a")
