"""An application whose tasks put a secret of its own into each place that they can reach, and make
each mistake of which something is said. Its payloads are encrypted; spans and events go to files.
"""

from __future__ import annotations

import os
import signal
from enum import Enum

import sentry_sdk
from opentelemetry.sdk.trace import ReadableSpan
from sentry_sdk.envelope import Envelope

import outlast
from outlast.contrib import otel, sentry
from tests.conformance.planted_kit import Secrets
from tests.crash import observed

GIVEN = {"key", "label", "meta"}
"""With a job, beside its arguments."""
REPORTED = {"stage", "progress"}
PRINTED = {"log", "output"}
SAID = {"message", "name of an argument"}
"""In messages: what a task raises, and names of arguments that it does not take."""
PAYLOADS = {
    *("argument", "wrong argument", "wrong choice", "no object", "argument of a schedule"),
    *("odd argument", "unfit argument", "checkpoint", "odd checkpoint", "large checkpoint"),
    *("result", "mismatched result", "unstorable result", "unstorable key", "large result"),
    "local variable",
}
SECRETS = Secrets()
for _place in GIVEN | REPORTED | PRINTED | SAID | PAYLOADS:
    SECRETS.plant(_place)
_ALL = {*SECRETS.by_place}


def plant(place: str) -> str:
    """Return the secret of a place."""
    assert place in _ALL, "the test would not look for it"
    return SECRETS.plant(place)


def long(place: str, characters: int) -> str:
    """Return a text full of the secret of a place."""
    assert place in _ALL, "the test would not look for it"
    return SECRETS.long(place, characters)


class Odd:
    """What is no JSON, and shows a secret where it is shown."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __repr__(self) -> str:
        return long(self._place, 3_000)


class Colour(Enum):
    """A choice."""

    RED = "red"


def make_app(key: str, url: str | None = None) -> outlast.App:
    """Return the application. What its tasks get as ``card`` is a secret."""
    app = outlast.App(url, payloads=[outlast.Encryption({"k": key})], max_payload=100_000)

    @app.task(retries=0, logs=True)
    async def works(card: str) -> dict[str, str]:
        attempt = outlast.current()
        print(long("log", 500), plant("log").encode(), flush=True)
        attempt.report(0.5, long("progress", 300), stage=plant("stage"))
        await attempt.save({"card": card, "page": long("checkpoint", 3_000)})
        return {"paid": long("result", 3_000), "b": repr({"t": plant("result").encode()})}

    @app.task(retries=0, logs=True)
    async def raises(card: str, shift: int) -> None:
        local = [card, plant("local variable")]
        sentry_sdk.add_breadcrumb(message="it goes on", data={"said": plant("message")})
        raise ValueError("x" * shift + long("message", 3_000 * len(local)))

    @app.task(retries=0)
    def dies(card: str) -> None:
        print(long("output", 20_000 if card else 0), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    @app.task(retries=0)
    async def narrow(count: int = 0, colour: Colour = Colour.RED) -> None: ...

    @app.task(retries=0)
    async def mismatched(card: str) -> int:
        return plant("mismatched result")  # type: ignore[return-value]

    @app.task(retries=0)
    async def unstorable(card: str) -> object:
        return {"a": [Odd("unstorable result")]}

    @app.task(retries=0)
    async def unnamed(card: str) -> object:
        return {(plant("unstorable key"), 1): 2}

    @app.task(retries=0)
    async def large(card: str) -> str:
        return long("large result", 200_000)

    @app.task(retries=0)
    async def saves_odd(card: str) -> None:
        await outlast.current().save({"a": Odd("odd checkpoint")})

    @app.task(retries=0)
    async def saves_large(card: str) -> None:
        await outlast.current().save(long("large checkpoint", 200_000))

    @app.task(retries=0)
    async def sends_odd(card: str) -> None:
        await works.enqueue(Odd("odd argument"))  # type: ignore[arg-type]

    @app.task(retries=0)
    async def sends_wrong(card: str) -> None:
        await narrow.enqueue(plant("unfit argument"))  # type: ignore[arg-type]

    return app


def _span(span: ReadableSpan) -> dict[str, str]:
    """All of it."""
    return {"span": span.to_json(), "status": repr(span.status.description)}


def _event(envelope: Envelope) -> dict[str, str]:
    """All of it."""
    return {"event": envelope.serialize().decode()}


def set_up() -> None:
    """Set up both libraries, in any process."""
    observed.set_up(
        _span,
        _event,
        include_local_variables="OUTLAST_TEST_VARIABLES" in os.environ,
        max_value_length=100_000,
    )


def set_up_worker() -> None:
    """Set up the worker's own process."""
    set_up()
    observed.watch_deaths()


if "OUTLAST_TEST_KEY" in os.environ:  # in a runner, and not where a test imports this
    set_up()
    app = make_app(os.environ["OUTLAST_TEST_KEY"])
    otel.instrument(app)
    sentry.instrument(app)
