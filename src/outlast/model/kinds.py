"""Say what a number or a text of a row is, where its type alone does not."""

from __future__ import annotations

from typing import Annotated, Any, get_args

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
