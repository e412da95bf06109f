"""What becomes of the ticks of a schedule that is due: fired, skipped or missed. Pure."""

from __future__ import annotations

from enum import StrEnum

GRACE_SECONDS = 86_400.0  # a tick that is late by more is missed


class Overlap(StrEnum):
    """Whether a tick has a job while that of an earlier tick is unfinished."""

    SKIP = "skip"
    ALLOW = "allow"


class CatchUp(StrEnum):
    """Which of several ticks that have passed since the last look are fired."""

    LAST = "last"
    ALL = "all"
    NONE = "none"
