"""Helps attempts with steps: checks names, calls functions, and encodes values."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any

from outlast.base.sync import loop_is_running
from outlast.errors import BadArguments, UsageError
from outlast.payload.codec import class_of, encode_payload, from_json, to_json
from outlast.payload.payloads import Payloads
from outlast.payload.signature import read_returns

NAME_MAX = 200  # characters


def check_name(name: object, of: str = "a step", most: int = NAME_MAX) -> str:
    """Return a name as a plain text; UsageError for one that no step can have."""
    if not isinstance(name, str) or not 1 <= len(name) <= most or not name.isprintable():
        raise UsageError(
            f"the name of {of} is a printable text of 1 to {most} characters, not {name!r:.80}"
        )
    return str.__str__(name)  # frames and drivers take no other texts


def check_plain(function: Callable[..., Any]) -> None:
    """Raise UsageError for a coroutine function, which nothing awaits in plain code."""
    if inspect.iscoroutinefunction(function):
        raise UsageError("the function of step_sync and step_in_sync must be plain, not async")


def returns_of(function: Callable[..., Any]) -> Any:
    """Return the type that the function of a step returns, or Any."""
    while isinstance(function, functools.partial):
        function = function.func
    return read_returns(function)


async def call(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call the function of a step; a plain one in a thread, so that a running loop goes on.

    A thread cannot be stopped. So a cancelled step ends when its function does: the attempt, and
    with it the job, is not given up before."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    if not loop_is_running():  # of step_sync
        return function(*args, **kwargs)
    thread = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        value = await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait([thread])
        raise
    return await value if inspect.isawaitable(value) else value


def encode_step(
    job_id: int, name: str, value: Any, returns: Any, max_payload: int, payloads: Payloads
) -> tuple[Any, str]:
    """Return a step's value as later attempts will get it, and its stored form. BadArguments if it
    cannot be encoded, does not fit the return annotation, or is too large."""
    what = f"the value of step {name!r}"
    text = to_json(what, value)
    of = (job_id, name)
    stored = encode_payload(f"{what} has", "step", "return", text, max_payload, payloads, of)
    if returns is str and not isinstance(value, str):  # bytes would arrive as base64
        raise BadArguments(f"{what} does not fit str: it is of class {class_of(value)}")
    return from_json(what, text, returns), stored


def decode_step(job_id: int, name: str, stored: str, returns: Any, payloads: Payloads) -> Any:
    """Return the value of a step that an earlier attempt has kept."""
    text = payloads.decode("step", stored, job_id, name)
    return from_json(f"the value of step {name!r}", text, returns)
