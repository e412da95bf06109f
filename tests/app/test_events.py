"""``attempt.wait_event`` and ``app.send_event``: one outcome for each wait, without a slot."""

from __future__ import annotations

import functools
from typing import Any

import msgspec
import pytest

import outlast
from outlast import BadArguments, JobFailed, UsageError
from outlast.store.protocol import Store
from tests.app import in_process_kit
from tests.app.in_process_kit import DEADLINE, row_of, transaction, until

app = in_process_kit.app
store = in_process_kit.store
HOUR = 3_600.0


class Approval(msgspec.Struct):
    by: str


async def waits(store: Store, job_id: int, name: str) -> bool:
    return [row.event for row in await store.inspector.waits(job_id)] == [name]


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
        await until(functools.partial(waits, store, job.id, name))
        await until(functools.partial(waits, store, other.id, f"approve:{other.id}"))
        assert await app.send_event(name, {"by": "ada"})
        assert not await app.send_event(name, {"by": "eve"})
        assert await job.result(DEADLINE) == "ada"
        assert said == [Approval("ada")] * 2
    row = await row_of(job)
    assert (row.failures, row.attempt_count) == (1, 3)
    ends = [
        (each.outcome, each.charge, each.message) for each in await store.inspector.attempts(job.id)
    ]
    assert ends[0] == ("snoozed", "none", f"it waits for the event {name!r}")
    assert await waits(store, other.id, f"approve:{other.id}")


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
