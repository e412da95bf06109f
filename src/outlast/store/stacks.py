"""Requests for the stacks of running jobs, on their workers' rows, and the answers, on the jobs'.

A request names an attempt by its token. The worker finds it with its next heartbeat, which reads
that row anyway: without requests, nothing more is read or sent. A row holds at most REQUESTS_MAX
requests, each valid for REQUEST_SECONDS, which bounds the work of a worker. An answer is kept until
the next one for the same job, and is deleted with the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

REQUESTS_MAX = 10  # of one worker, in REQUEST_SECONDS
REQUEST_SECONDS = 10.0
_ROW_MAX = REQUESTS_MAX * 40  # characters of the requests on a row
_REQUEST = r"([0-9]{1,16}):([0-9]{1,18})"


class StackRequest(NamedTuple):
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


def read_requests(text: str | None) -> list[StackRequest]:
    """Return the requests on a worker's row that can be read, the oldest first."""
    if not text or len(text) > _ROW_MAX:
        return []
    found = [re.fullmatch(_REQUEST, part) for part in text.split()]
    read = [StackRequest(int(one[1]), int(one[2])) for one in found if one is not None]
    return read[-REQUESTS_MAX:]


def format_requests(requests: Iterable[StackRequest]) -> str:
    """Return requests as they are stored on a row."""
    return " ".join(f"{each.number}:{each.token}" for each in requests)


def find_valid(requests: Iterable[StackRequest], now: float) -> list[StackRequest]:
    """Return the requests that are still valid at this time of the store's clock."""
    return [each for each in requests if abs(now - each.number / 1000) < REQUEST_SECONDS]
