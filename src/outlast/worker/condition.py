"""Finds the duties of a worker that fail, and decides when the worker must give up.

A worker whose beats go through looks healthy, even if all else fails. So the heartbeat, on its
separate connection, writes a duty that has failed for a while to the worker's row. And a worker
that can neither hand in nor take jobs, while the store answers, is useless: it exits, so that
supervisors and people notice. If calls only break off (an outage, a lock, a full server), that may
pass, and exiting would cost the worker its attempts, so it stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from outlast.base.clock import Clock
from outlast.base.text import line
from outlast.errors import StoreUnavailable

TELL_SECONDS = 5.0  # of failure before the row reports a duty
GIVE_UP_SECONDS = 300.0  # of failure of the vital duty while beats go through
ERROR_MAX = 300  # characters
VITAL = "exchange"


class Failure(NamedTuple):
    """The reason why a duty fails, and the boot time since which it fails."""

    error: Exception
    since: float


class Trouble(NamedTuple):
    """A failing duty: the error in one line, and the boot time since which it fails."""

    duty: str
    error: str
    since: float


class Condition:
    """Judges the duties of one worker at each answered beat.

    ``gap``: seconds without a beat after which the store counts as having been away. ``hide``
    removes secrets from errors.
    """

    def __init__(self, clock: Clock, gap: float, hide: Callable[[str], str]) -> None:
        self._clock = clock
        self._gap = gap
        self._hide = hide
        self._beat_at = self._beats_since = clock.boot()
        self._answered_at: float | None = None  # since when the store refuses the vital duty

    def note_beat(self) -> None:
        """Note a beat that was answered."""
        now = self._clock.boot()
        if now - self._beat_at >= self._gap:
            self._beats_since = now
        self._beat_at = now

    def find_trouble(self, failures: Mapping[str, Failure | None]) -> Trouble | None:
        """Return the failing duty to report: the vital one, else the one that has failed for
        longest. ``failures``: duty -> why it fails, or None if it does not."""
        told = [
            (name, why)
            for name, why in failures.items()
            if why is not None and self._seconds_since(why.since) >= TELL_SECONDS
        ]
        if not told:
            return None
        name, why = min(told, key=lambda each: (each[0] != VITAL, each[1].since))
        text = f"{type(why.error).__name__}: {why.error}"
        return Trouble(name, line(self._hide(text), ERROR_MAX), why.since)

    def find_end(self, failures: Mapping[str, Failure | None]) -> Failure | None:
        """Return the failure of the vital duty, if the worker has to leave because of it. Time in
        which calls only broke off does not count: otherwise one refusal after an outage would end
        the worker."""
        why = failures.get(VITAL)
        if why is None:
            self._answered_at = None
        if why is None or isinstance(why.error, StoreUnavailable):
            return None
        if self._answered_at is None:
            self._answered_at = self._clock.boot()
        lasts = self._seconds_since(max(self._answered_at, self._beats_since))
        return why if lasts >= GIVE_UP_SECONDS else None

    def _seconds_since(self, since: float) -> float:
        return self._clock.boot() - since
