"""Say what a number or a text is, where its type alone does not."""

from __future__ import annotations

from typing import Annotated, Any, get_args

import msgspec

TIME, JSON = "time", "JSON"
Time = Annotated[float, TIME]
"""Seconds since 1970; programs get it as a text in ISO 8601."""
Json = Annotated[str, JSON]
"""A value as it is stored: JSON, perhaps encoded by codecs; programs get the value."""


def is_of(kind: Any, mark: Any) -> bool:
    """Whether a type, or a part of it, is or is marked as ``mark``."""
    return (
        kind is mark
        or mark in getattr(kind, "__metadata__", ())
        or any(is_of(each, mark) for each in get_args(kind))
    )


class Filter(msgspec.Struct, frozen=True):
    """What people may choose the rows of a list by. ``about``: the rows that it lets pass.
    ``value``: the word for its value: a ``NAME`` or ``ID`` has to be equal, a ``TEXT`` is searched
    for, ``N`` is a whole number, ``TIME`` a span of time. ``title``: its name on forms; "": they
    lack it. ``right``: needed on the page and its API. ``among``, ``most``: the only values."""

    about: str
    value: str = "NAME"
    title: str = ""
    right: str | None = None
    among: tuple[str, ...] = ()
    most: int | None = None
    is_needed: bool = False
