"""Reports to Sentry: a scope for each attempt, and what the process of an attempt cannot tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

import outlast
from outlast.contrib import sentry
from outlast.model.crash import Crash, CrashKind, hiding
from outlast.worker import foreign_ends
from outlast.worker.foreign_ends import ForeignEnd
from tests.unit.runner.execute_kit import Bench


class Kept(Transport):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__({})
        self.events: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            self.events.append(dict(event))


@pytest.fixture
def kept() -> Iterator[Kept]:
    transport = Kept()
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:9/1",
        transport=transport,
        default_integrations=False,
        auto_enabling_integrations=False,
    )
    yield transport
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)


@pytest.fixture
async def bench(kept: Kept) -> AsyncIterator[Bench]:
    bench = Bench()
    sentry.instrument(bench.app, ignore=[KeyError])
    yield bench
    bench.executor.close()


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_an_error_is_reported_with_the_facts_of_its_attempt(
    bench: Bench, kept: Kept, plain: bool
) -> None:
    def fails() -> None:
        sentry_sdk.set_tag("shop", "acme")
        raise ValueError("no such order")

    @bench.app.task(name="plain")
    def plain_work() -> None:
        fails()

    @bench.app.task(name="work")
    async def work() -> None:
        fails()

    await bench.outcome(plain_work if plain else work, token=7, job_id=3, number=2)
    (event,) = kept.events
    assert event["exception"]["values"][-1]["value"] == "no such order"
    assert event["transaction"] == ("plain" if plain else "work")
    assert event["tags"]["outlast.job_id"] == "3"
    assert event["tags"]["shop"] == "acme"
    assert event["contexts"]["outlast"] == {
        "job_id": 3, "token": 7, "attempt": 2, "failures": 0, "queue": "default",
        "is_last_try": False,
    }  # fmt: skip


async def test_attempts_at_the_same_time_have_scopes_of_their_own(bench: Bench, kept: Kept) -> None:
    @bench.app.task
    async def work() -> None:
        token = outlast.current().token
        sentry_sdk.set_tag(f"of_{token}", "yes")
        await asyncio.sleep(0)
        raise ValueError(str(token))

    for token in range(1, 5):
        bench.start(work, token=token)
    async with asyncio.timeout(60):
        while len(bench.link.ends) < 4:
            await asyncio.sleep(0.001)
    for event in kept.events:
        token = event["exception"]["values"][-1]["value"]
        assert {name for name in event["tags"] if name.startswith("of_")} == {f"of_{token}"}
    assert len(kept.events) == 4


@pytest.mark.parametrize(
    "raised", [outlast.Retry(after=1), outlast.Snooze(1), outlast.Cancel("no"), KeyError("a")]
)
async def test_verdicts_and_what_is_ignored_are_not_reported(
    bench: Bench, kept: Kept, raised: Exception
) -> None:
    @bench.app.task
    async def work() -> None:
        raise raised

    await bench.outcome(work)
    assert kept.events == []


async def test_a_job_that_gives_itself_up_is_reported(bench: Bench, kept: Kept) -> None:
    @bench.app.task
    async def work() -> None:
        raise outlast.Dead("the address is gone")

    await bench.outcome(work)
    (event,) = kept.events
    assert event["exception"]["values"][-1]["type"] == "Dead"


@pytest.mark.parametrize(
    ("reason", "reported"), [("timeout", ["timeout"]), ("drain", []), ("cancel", [])]
)
async def test_what_obeyed_a_wish_to_stop_is_judged_by_its_end(
    bench: Bench, kept: Kept, reason: str, reported: list[str]
) -> None:
    began = asyncio.Event()

    @bench.app.task
    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    bench.start(work, token=4)
    await began.wait()
    bench.executor.stop(4, reason)
    await bench.end()
    assert [event["tags"]["outlast.outcome"] for event in kept.events] == reported


async def test_a_failure_without_an_exception_is_reported_as_a_message(
    bench: Bench, kept: Kept
) -> None:
    @bench.app.task
    async def work() -> str:
        return "x" * 5_000

    await bench.outcome(work)
    (event,) = kept.events
    assert event["fingerprint"] == ["outlast", "work", "rejected_result"]
    assert event["message"].startswith("work: ")


def died(**fields: Any) -> ForeignEnd:
    crash = Crash(
        kind=CrashKind.SIGNALLED,
        message="the runner died of SIGSEGV",
        signal="SIGSEGV",
        output=["loading", "decoding"],
        worker="w1",
    )
    values: dict[str, Any] = {
        "job_id": 3,
        "token": 7,
        "task": "work",
        "queue": "mail",
        "number": 1,
        "outcome": "signalled",
        "message": crash.message,
        "crash": crash,
        **fields,
    }
    return ForeignEnd(**values)


def test_a_death_is_reported_by_the_worker_with_its_evidence(kept: Kept) -> None:
    stop = sentry.watch_deaths()
    foreign_ends.tell(died)
    foreign_ends.tell(lambda: died(outcome="released", crash=None))
    foreign_ends.tell(lambda: died(outcome="cancelled"))  # it did not stop when asked
    stop()
    foreign_ends.tell(died)
    (event,) = kept.events
    assert event["message"] == "work: the runner died of SIGSEGV"
    assert event["level"] == "error"
    assert event["fingerprint"] == ["outlast", "work", "signalled"]
    assert event["tags"]["outlast.outcome"] == "signalled"
    evidence = event["contexts"]["outlast crash"]
    assert evidence["signal"] == "SIGSEGV"
    assert evidence["output"] == "loading\ndecoding"
    assert event["contexts"]["outlast"]["job_id"] == 3


def test_what_is_not_charged_is_a_warning(kept: Kept) -> None:
    stop = sentry.watch_deaths()
    crash = Crash(kind=CrashKind.LOST_WORKER, message="worker w1 is gone")
    foreign_ends.tell(lambda: died(outcome="lost_worker", crash=crash))
    stop()
    assert [event["level"] for event in kept.events] == ["warning"]


async def test_an_event_holds_no_piece_of_what_is_redacted(bench: Bench, kept: Kept) -> None:
    """Neither its message nor values of variables and breadcrumbs, as they are cut."""
    card = 4711_2222_3333_4444
    bench.link.hide = hiding([str(card)])  # type: ignore[attr-defined]

    @bench.app.task
    async def work() -> None:
        full = f"x{card} " * 200
        sentry_sdk.add_breadcrumb(message=full, data={"card": card})
        sentry_sdk.set_extra("card", [card, full])
        raise ValueError(full)

    await bench.outcome(work)
    (event,) = kept.events
    assert "[redacted]" in event["exception"]["values"][-1]["value"]
    assert str(card)[:8] not in repr(event)  # not written here, since lines of code go along


class Card:
    """Shows its number when it is represented."""

    def __repr__(self) -> str:
        return f"<card {CARD}>"


CARD = 4711_2222_3333_4444
LOOP: list[object] = [CARD]
LOOP.append(LOOP)


@pytest.mark.parametrize(
    "value",
    [
        str(CARD).encode(),
        bytearray(str(CARD).encode()),
        Path(str(CARD)),
        Decimal(CARD),
        {str(CARD)},
        MappingProxyType({"n": str(CARD)}),
        Card(),
        LOOP,
    ],
    ids=lambda value: type(value).__name__,
)
async def test_values_that_sentry_shows_as_texts_are_redacted(
    bench: Bench, kept: Kept, value: object
) -> None:
    bench.link.hide = hiding([r"\d{16}"])  # type: ignore[attr-defined]

    @bench.app.task
    async def work() -> None:
        sentry_sdk.set_extra("extra", value)
        sentry_sdk.set_context("context", {"value": value})
        sentry_sdk.add_breadcrumb(message="m", data={"value": value})
        raise ValueError

    await bench.outcome(work)
    (event,) = kept.events
    assert "[redacted]" in repr(event["extra"])
    assert str(CARD)[:8] not in repr(event)


async def test_values_without_what_is_redacted_stay_as_they_are(bench: Bench, kept: Kept) -> None:
    bench.link.hide = hiding([r"\d{16}"])  # type: ignore[attr-defined]

    @bench.app.task
    async def work() -> None:
        sentry_sdk.set_extra("extra", [b"x", 1, None, True, 2.5])
        raise ValueError

    await bench.outcome(work)
    assert kept.events[0]["extra"]["extra"] == ["x", 1, None, True, 2.5]
