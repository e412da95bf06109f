"""Defines waiting jobs of a store that are to be announced to a messenger."""

from __future__ import annotations

import msgspec

RunBy = tuple[int, int, str, int]  # a running job, its token, its worker's name and number


class Unpublished(msgspec.Struct, frozen=True):
    """A due job that has waited for a while, as a notice about it needs it. ``token``: of its last
    attempt, 0 before the first; ``seconds``: how long it has been due; ``position``: in the line, a
    new one each time that it enters it, 0 while it is outside."""

    job_id: int
    queue: str
    task: str
    token: int
    seconds: float
    position: int


class UnpublishedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that wait in the store and are to be announced. ``workers``: how many are active;
    ``next_due``: in how many seconds the next scheduled job falls due; None: not within a minute,
    as far as the store knows."""

    workers: int
    next_due: float | None
    jobs: list[Unpublished]
