"""Asks where a running job is: the request is on its worker's row, the answer on the job's own.

A request names an attempt by its token. The worker finds it with its next beat, which reads that
row anyway: without requests, nothing more is read or sent. A row holds requests for ASK_SECONDS,
ASKS_MAX of them at most, which bounds the work of a worker. An answer is kept until the next one
for the same job, and is deleted with that job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

ASKS_MAX = 10  # of one worker, in ASK_SECONDS
ASK_SECONDS = 10.0
_ROW_MAX = ASKS_MAX * 40  # characters of the requests on a row
_ASK = r"([0-9]{1,16}):([0-9]{1,18})"


class StackAsk(NamedTuple):
    """A request. ``number``: when it was made, in milliseconds since 1970 by the store's clock,
    unique on its row."""

    number: int
    token: int


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """Where an attempt was: the stacks of its process, its own first, or a command's processes.
    ``asked``: the number of the last request answered; ``line``: its innermost line, if known."""

    token: int
    asked: int
    text: str
    line: str | None = None


def asks_of(text: str | None) -> list[StackAsk]:
    """Return the requests on a worker's row that can be read, the oldest first."""
    if not text or len(text) > _ROW_MAX:
        return []
    found = (re.fullmatch(_ASK, part) for part in text.split())
    return [StackAsk(int(one[1]), int(one[2])) for one in found if one is not None][-ASKS_MAX:]


def asks_text(asks: Iterable[StackAsk]) -> str:
    """Return requests as they are stored on a row."""
    return " ".join(f"{ask.number}:{ask.token}" for ask in asks)


def standing(asks: Iterable[StackAsk], now: float) -> list[StackAsk]:
    """Return the requests that still count at this time of the store's clock."""
    return [ask for ask in asks if abs(now - ask.number / 1000) < ASK_SECONDS]
