"""Keeps what happens again and again from filling the log."""

from __future__ import annotations

from outlast.base.clock import Clock

TELL_SECONDS = 60.0  # between two reports


class Throttle:
    """Lets one report through in TELL_SECONDS, with the number of events that it covers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0
        self._open_at = clock.boot()

    @property
    def is_like_new(self) -> bool:
        """Whether a new throttle would act alike, so that this one may be dropped."""
        return not self._count and self._clock.boot() >= self._open_at

    def count(self, *, is_new: bool = False) -> int:
        """Count one more; return the number to report: 0 if it is too early, and not ``is_new``."""
        self._count += 1
        now = self._clock.boot()
        if now < self._open_at and not is_new:
            return 0
        count, self._count = self._count, 0
        self._open_at = now + TELL_SECONDS
        return count
