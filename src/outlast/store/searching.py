"""Defines a search by texts in jobs. No index knows them: only the jobs that are named are read."""

from __future__ import annotations

import msgspec

SEARCH_MAX = 1_000  # characters of a text that is searched for
LOOK_BYTES = 8_000_000  # of arguments that one look reads: some tenths of a second


class Texts(msgspec.Struct, frozen=True, kw_only=True):
    """The texts that a job has to hold; None lets all pass. A to Z match in upper and lower case.

    Attributes:
        args: a text in its arguments, as they are stored: JSON.
        error: a text in its last error: ``OUTCOME: MESSAGE`` of its last attempt that did not
            complete.
        within: seconds within which it ended, began or was enqueued.
    """

    args: str | None = None
    error: str | None = None
    within: float | None = None


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one look at jobs, newest first. ``before``: jobs with smaller ids were not
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
