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
from outlast.store.reads import Held


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


def held_of(job_id: int, worker_id: int, progress: str | None) -> Held:
    """Return a running job as its row shows it."""
    told = progress_of(progress)
    return Held(job_id, worker_id, None if told is None else told.waits_for)
