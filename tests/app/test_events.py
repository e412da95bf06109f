"""``attempt.wait_event`` and ``app.send_event``: one outcome for each wait, without a slot."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any

import msgspec
import pytest

import outlast
from outlast import BadArguments, JobFailed, UsageError
from outlast.store.protocol import Store
from outlast.store.values import NewEvent
from outlast.testing import inline_sync, isolate
from tests.app import in_process_kit
from tests.app.in_process_kit import DEADLINE, row_of, transaction, until

app = in_process_kit.app
store = in_process_kit.store
HOUR = 3_600.0


@pytest.fixture
def app_url(store_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("OUTLAST_RUN_DIR", str(tmp_path / "run"))
    return store_url


class Approval(msgspec.Struct):
    by: str


async def waits(job: outlast.Job[Any], name: str) -> bool:
    return (await row_of(job)).event == name


async def test_an_approval_wakes_the_job_and_each_later_attempt_gets_it(
    app: outlast.App, store: Store
) -> None:
    said: list[Approval] = []

    @app.task(retries=1, backoff=0)
    async def publish() -> str:
        attempt = outlast.current()
        name = f"approve:{attempt.job_id}"
        approval = await attempt.wait_event(name, timeout=HOUR, type=Approval)
        said.append(approval)
        if len(said) == 1:
            raise ValueError("again")
        return approval.by

    async with app.worker(concurrency=1):
        job, other = await publish.enqueue(), await publish.enqueue()
        name = f"approve:{job.id}"
        await until(functools.partial(waits, job, name))
        await until(functools.partial(waits, other, f"approve:{other.id}"))
        assert await app.send_event(name, {"by": "ada"})
        assert not await app.send_event(name, {"by": "eve"})
        assert await job.result(DEADLINE) == "ada"
        assert said == [Approval("ada")] * 2
        assert (await other.status(), (await row_of(other)).event) == (
            "waiting",
            f"approve:{other.id}",
        )
    row = await row_of(job)
    assert (row.failures, row.attempt_count) == (1, 3)
    ends = [
        (each.outcome, each.charge, each.message) for each in await store.inspector.attempts(job.id)
    ]
    assert ends[0] == ("snoozed", "none", f"it waits for the event {name!r}")


async def test_an_event_may_be_sent_before_and_in_a_transaction_and_in_plain_code(
    app: outlast.App, store: Store
) -> None:
    @app.task
    def plain(name: str) -> Any:
        return outlast.current().wait_event_sync(name, timeout=HOUR)

    assert app.url is not None
    await app.send_event("before")
    async with transaction(app.url) as connection:
        job = await plain.enqueue("inside")
        async with app.worker():
            assert await (await plain.enqueue("before")).result(DEADLINE) is None
            await app.send_event("inside", [1, 2], connection=connection)
    async with app.worker():
        assert await job.result(DEADLINE) == [1, 2]


async def test_a_timeout_is_kept_also_if_the_event_comes_then(
    app: outlast.App, store: Store
) -> None:
    outcomes: list[str] = []

    @app.task(retries=2, backoff=0)
    async def asks() -> None:
        attempt = outlast.current()
        try:
            outcomes.append(await attempt.wait_event("answer", timeout=0.05))
        except TimeoutError as error:
            outcomes.append(str(error))
            await app.send_event("answer", "late")
        raise ValueError("again")

    async with app.worker():
        with pytest.raises(JobFailed):
            await (await asks.enqueue()).result(DEADLINE)
    assert outcomes == ["no event 'answer' was sent in time"] * 3


async def test_what_cannot_be_is_refused(app: outlast.App, store: Store) -> None:
    for name in ("", "x" * 191, "a\nb", 7):
        with pytest.raises(UsageError, match="name of an event"):
            await app.send_event(name)  # type: ignore[arg-type]
    with pytest.raises(BadArguments, match="the value of event 'a'"):
        await app.send_event("a", object())
    with pytest.raises(BadArguments, match="the value of event 'a' has"):
        await app.send_event("a", "x" * app.max_payload)
    errors: list[str] = []

    @app.task(retries=0)
    async def asks() -> None:
        attempt = outlast.current()
        for _ in range(2):
            try:
                await attempt.wait_event("text", timeout=HOUR, type=int)
            except (BadArguments, UsageError) as error:
                errors.append(str(error))

    await app.send_event("text", "secret")
    async with app.worker():
        await (await asks.enqueue()).result(DEADLINE)
    assert "does not fit int" in errors[0]
    assert "secret" not in errors[0]
    assert "was begun before" in errors[1]


@pytest.mark.parametrize("count", [100, pytest.param(1_000, marks=pytest.mark.long)])
async def test_an_event_against_the_end_of_the_time_has_one_outcome_in_each_job(
    app: outlast.App, store: Store, count: int
) -> None:
    """Events come as the waits end; each attempt of a job sees what its first one saw."""
    seen: dict[int, list[Any]] = {}
    waiting: list[int] = []

    @app.task(retries=2, backoff=0)
    async def asks() -> None:
        attempt = outlast.current()
        waiting.append(attempt.job_id)
        try:
            outcome = await attempt.wait_event(f"event {attempt.job_id}", timeout=0.1)
        except TimeoutError:
            outcome = None
        seen.setdefault(attempt.job_id, []).append(outcome)
        if attempt.failures < 2:
            raise ValueError("again")

    async with app.worker(concurrency=20):
        jobs = await app.enqueue_many([asks.call()] * count)
        while len({*waiting}) < len(jobs):
            await asyncio.sleep(0.01)
        for number, job in enumerate(jobs):
            await app.send_event(f"event {job.id}", number)
        for job in jobs:
            await job.result(DEADLINE)
    for number, job in enumerate(jobs):
        assert seen[job.id] in ([None] * 3, [number] * 3)


def test_the_test_kit_sends_events_and_travels_over_a_wait() -> None:
    app = outlast.App("sqlite:////nowhere/production.db")

    @app.task
    async def asks(name: str) -> str | None:
        attempt = outlast.current()
        try:
            found: str = await attempt.wait_event(name, timeout=86_400, type=str)
        except TimeoutError:
            return None
        return found

    with isolate(app) as jobs:
        approved, unheard = asks.enqueue_sync("a"), asks.enqueue_sync("b")
        assert jobs.drain_sync() == 2
        jobs.travel(86_000)
        app.send_event_sync("a", "fine")
        assert jobs.drain_sync() == 1
        assert approved.result_sync(timeout=0) == "fine"
        assert unheard.status_sync() == "waiting"
        jobs.travel(401)
        assert jobs.drain_sync() == 1
        assert unheard.result_sync(timeout=0) is None
    with pytest.raises(UsageError, match="works only in the attempt of a job"):
        inline_sync(asks.call("a"))


async def test_values_are_encrypted(app_url: str, store: Store) -> None:
    encryption = outlast.Encryption({"k": outlast.Encryption.make_key()}, required=True)
    app = outlast.App(app_url, payloads=[encryption])

    @app.task(retries=0)
    async def asks(name: str) -> Any:
        return await outlast.current().wait_event(name, timeout=HOUR)

    async with app.worker():
        await app.send_event("card", "4711 0815")
        assert await (await asks.enqueue("card")).result(DEADLINE) == "4711 0815"
        await store.send_event(NewEvent("plain", '["4711"]'))
        with pytest.raises(JobFailed, match="the event cannot be read: not encrypted"):
            await (await asks.enqueue("plain")).result(DEADLINE)
    await app.close()
    stored = await store.find_event("card")
    assert stored is not None
    assert stored.startswith(' ["outlast:payload",["aes-256-gcm:k"]')


async def test_a_wait_takes_only_a_time_that_can_be_waited(app: outlast.App) -> None:
    @app.task(retries=0)
    async def waits_for(kind: str, span: str) -> None:
        attempt, seconds = outlast.current(), float(span)
        if kind == "time":
            await attempt.sleep(seconds, "a while")
        await attempt.wait_event("go", timeout=seconds)

    kinds = [(kind, span) for kind in ("time", "event") for span in ("-5", "nan", "inf", "1e300")]
    jobs = [await waits_for.enqueue(*each) for each in kinds]
    async with app.worker():
        for job in jobs:
            with pytest.raises(JobFailed, match="wait for 0 to"):
                await job.result(DEADLINE)
