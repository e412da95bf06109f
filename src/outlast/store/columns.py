"""Columns that hold our own JSON, read the same way by both stores.

A row that another program has written, or a later release, must never stop a claim or a reap: what
cannot be read counts as not given.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from outlast.model.crash import Progress
from outlast.model.job import Policy
from outlast.model.lease import DeathCause


@lru_cache(maxsize=1_000)
def policy_of(text: str) -> Policy:
    """Return the policy on a row; most rows share a few."""
    try:
        return msgspec.json.decode(text, type=Policy)
    except (msgspec.DecodeError, UnicodeError):
        return Policy()


def progress_of(text: str | None) -> Progress | None:
    """Return the progress on a row."""
    try:
        return None if text is None else msgspec.json.decode(text, type=Progress)
    except (msgspec.DecodeError, UnicodeError):
        return None


def cause_of(text: str | None) -> DeathCause | None:
    """Return by what a worker was found gone; None for one that left, or a cause unknown here."""
    return DeathCause(text) if text in set(DeathCause) else None
