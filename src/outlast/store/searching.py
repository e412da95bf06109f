"""A search by what is written in jobs. No index knows that: only those that are named are read."""

from __future__ import annotations

import msgspec

SEARCH_MAX = 1_000  # characters of a text that is searched for
LOOK_BYTES = 8_000_000  # of arguments that one look reads: some tenths of a second


class Texts(msgspec.Struct, frozen=True, kw_only=True):
    """What a job has to hold; None lets all pass. Upper and lower case of A to Z are the same.

    Attributes:
        args: a text in its arguments, as they are stored: JSON.
        error: a text in what went wrong last: ``OUTCOME: MESSAGE`` of its last attempt that did
            not complete.
        within: seconds; something has happened to it since then: it ended, began or was enqueued.
    """

    args: str | None = None
    error: str | None = None
    within: float | None = None


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at jobs has found, newest first. ``before``: those with smaller ids were not
    looked at, since the arguments of the others are large; None: all were. ``size``: bytes of the
    arguments that were looked at."""

    ids: list[int] = []
    before: int | None = None
    size: int = 0


def is_searchable(text: str) -> bool:
    """Whether a job could hold this text."""
    try:
        return 0 < len(text) <= SEARCH_MAX and "\x00" not in text and bool(text.encode())
    except UnicodeEncodeError:
        return False
