"""Sends events, and lets attempts wait for them.

A wait has one outcome in each job: the value of the event, or that the time was over. The attempt
that finds it keeps it as a step, under its token, before it acts on it. So later attempts get the
same, even if the event comes meanwhile.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from outlast.client import steps
from outlast.errors import Snooze
from outlast.payload.codec import encode_payload, from_json, to_json
from outlast.store.values import NewEvent

if TYPE_CHECKING:
    from outlast.client.attempt_store import AttemptStore
    from outlast.client.stores import StoreProvider

NAME_MAX = 190  # characters: with a word before it, it is the name of a step
_TIMED_OUT = "null"  # the outcome; of an event it is a list with the value


def check_name(name: object) -> str:
    """Return a name as a plain text; UsageError for one that no event can have."""
    return steps.check_name(name, "an event", NAME_MAX)


def encode_event(name: str, value: Any, max_payload: int, stores: StoreProvider) -> NewEvent:
    """Return an event to be sent; BadArguments if its value cannot be encoded or is too large."""
    what = f"the value of event {name!r}"
    text = to_json(what, [value])
    payloads = stores.payloads
    stored = encode_payload(f"{what} has", "event", "send", text, max_payload, payloads, [name])
    return NewEvent(name, stored)


async def wait_event(
    store: AttemptStore, name: str, timeout: float | timedelta, returns: Any
) -> Any:
    """Do what ``Attempt.wait_event`` does."""
    name = check_name(name)
    seconds = Snooze(timeout).seconds
    kept, limit = f"event {name}", f"end {name}"
    store.begin(kept, limit)
    outcome, end = await store.find(kept, limit)
    if outcome is None:
        sent = await store.ask(lambda opened: opened.find_event(name))
        if sent is None:
            await _wait_until(store, name, end, limit, seconds)
        outcome = _TIMED_OUT if sent is None else store.decode("event", sent, name)
        await store.keep(kept, outcome)
    if outcome == _TIMED_OUT:
        raise TimeoutError(f"no event {name!r} was sent in time")
    what = f"the value of event {name!r}"
    (value,) = from_json(what, outcome, list[msgspec.Raw])
    return from_json(what, value, returns)


async def _wait_until(
    store: AttemptStore, name: str, end: str | None, limit: str, seconds: float
) -> None:
    """End the attempt if the wait is not over; its end was kept by the first attempt."""
    now = store.clock.wall()
    until = now + seconds if end is None else from_json("the end of a wait", end, float)
    if end is None:
        await store.keep(limit, str(until))
    if until > now:
        raise store.wait(until - now, f"it waits for the event {name!r}", event=name)
