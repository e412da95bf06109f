"""Sends events, and lets attempts wait for them.

A wait has one outcome for each job, kept as a step: what the event has brought, or that the time
was over. The attempt that finds it keeps it, under its token, before it acts on it. So later
attempts get the same, also if the event comes meanwhile.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from outlast.errors import Snooze, UsageError
from outlast.payload.codec import encode_payload, from_json, to_json
from outlast.store.events import NewEvent
from outlast.store.values import NamedStep, StepFound

if TYPE_CHECKING:
    from outlast.client.attempt import Attempt
    from outlast.client.stores import StoreProvider

NAME_MAX = 190  # characters: with a word before it, it is the name of a step
_TIMED_OUT = "null"  # the outcome; of an event it is a list with the value


def check_name(name: object) -> None:
    """Raise UsageError for a name that no event can have."""
    if not isinstance(name, str) or not 1 <= len(name) <= NAME_MAX or not name.isprintable():
        raise UsageError(
            f"the name of an event is a printable text of 1 to {NAME_MAX} characters, not"
            f" {name!r:.80}"
        )


def encode_event(name: str, value: Any, max_payload: int, stores: StoreProvider) -> NewEvent:
    """Return an event to be sent; BadArguments if its value cannot be encoded or is too large."""
    what = f"the value of event {name!r}"
    text = to_json(what, [value])
    payloads = stores.payloads
    stored = encode_payload(f"{what} has", "event", "send", text, max_payload, payloads)
    return NewEvent(name, stored)


async def wait_event(
    attempt: Attempt, stores: StoreProvider, name: str, timeout: float | timedelta, returns: Any
) -> Any:
    """Do what ``Attempt.wait_event`` does."""
    check_name(name)
    seconds = Snooze(timeout).seconds
    kept = [NamedStep(attempt.job_id, attempt.token, f"{word} {name}") for word in ("event", "end")]
    for step in kept:
        attempt._begin_step(step.name, to_json)  # noqa: SLF001
    outcome, end = await _find(attempt, stores, kept)
    if outcome is None:
        sent = await stores.ask(lambda store: store.find_event(name))
        if sent is None:
            await _wait_until(attempt, stores, name, end, kept[1], seconds)
        outcome = _TIMED_OUT if sent is None else stores.payloads.decode("event", sent)
        await _keep(attempt, stores, kept[0], outcome)
    if outcome == _TIMED_OUT:
        raise TimeoutError(f"no event {name!r} was sent in time")
    what = f"the value of event {name!r}"
    (value,) = from_json(what, outcome, list[msgspec.Raw])
    return from_json(what, value, returns)


async def _wait_until(
    attempt: Attempt,
    stores: StoreProvider,
    name: str,
    end: str | None,
    step: NamedStep,
    seconds: float,
) -> None:
    """End the attempt if the wait is not over; when it is was kept by the first attempt."""
    now = attempt._clock.wall()  # noqa: SLF001
    until = now + seconds if end is None else from_json("the end of a wait", end, float)
    if end is None:
        await _keep(attempt, stores, step, str(until))
    if until > now:
        snooze = Snooze(until - now)
        snooze._event = name  # noqa: SLF001
        snooze.args = (f"it waits for the event {name!r}",)
        raise snooze


async def _find(attempt: Attempt, stores: StoreProvider, kept: list[NamedStep]) -> list[str | None]:
    if attempt.number == 1:
        return [None for _ in kept]
    found = await stores.ask(lambda store: store.find_steps(kept))
    texts = [attempt._found(each) for each in found]  # noqa: SLF001
    return [None if text is None else stores.payloads.decode("step", text) for text in texts]


async def _keep(attempt: Attempt, stores: StoreProvider, step: NamedStep, text: str) -> None:
    _, stored = attempt._encode_step(step.name, msgspec.Raw(text.encode()), Any)  # noqa: SLF001
    named = msgspec.structs.replace(step, value=stored)
    (answer,) = await stores.ask(lambda store: store.keep_steps([named]))
    attempt._kept(StepFound(answer))  # noqa: SLF001
