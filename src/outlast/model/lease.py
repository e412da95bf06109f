"""Leases, seen from both sides: how long the holder trusts, and when others call it gone.

The holder's trust ends before anyone else may act, because it is anchored at the moment
*before* the renewal was sent and ends a margin early, while an observer starts counting only
after it has *seen* the beat. No clock is compared with another one.

    holder    asked ──────────── stop (80 %) ──── kill (90 %) ─┐ lease
    observer          seen ──────────────────────────────────────────┘ gone
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from outlast.errors import ConfigError

STOP_FRACTION = 0.8
KILL_FRACTION = 0.9
GAP_FRACTION = 0.5  # looks further apart than this much of the lease: observing starts anew
LOOK_FRACTION = 1 / 6  # how much of a lease may pass between two looks at its holder


class DeathCause(StrEnum):
    """By what a worker was found gone. Only silence may be wrong about a worker that still runs."""

    LOCK_FILE = "lock_file"
    PRESENCE = "presence"
    RESTARTED = "restarted"
    SILENCE = "silence"

    @property
    def proven(self) -> bool:
        """Whether its processes are known to be gone, and not only unheard of."""
        return self is not DeathCause.SILENCE

    @property
    def sentence(self) -> str:
        """What people are told, of "it"."""
        return _SENTENCES[self]


_SENTENCES = {
    DeathCause.LOCK_FILE: "its lock file is free: every process that held it is gone",
    DeathCause.PRESENCE: "its lock in the database is gone, and it was not seen to beat",
    DeathCause.RESTARTED: "it was restarted: a new worker has its instance name",
    DeathCause.SILENCE: "it was not seen to beat for its whole lease",
}


class LeaseTerms(msgspec.Struct, frozen=True):
    """A worker's own beat and lease, in seconds. Raises ConfigError if they cannot work."""

    heartbeat: float = 2.0
    lease: float = 60.0

    def __post_init__(self) -> None:
        if self.heartbeat <= 0:
            raise ConfigError("--heartbeat must be above 0 seconds")
        if self.lease < 3 * self.heartbeat:
            raise ConfigError(
                f"a lease of {self.lease:g} s is too short for a heartbeat of {self.heartbeat:g} s:"
                " it must be at least three times the heartbeat"
            )


class Trust:
    """How long a holder may act on its lease, on the clock that it hands in."""

    def __init__(self, terms: LeaseTerms, asked_at: float) -> None:
        self._terms = terms
        self.asked_at = asked_at

    @property
    def stop_at(self) -> float:
        """When attempts are to be stopped."""
        return self.asked_at + self._terms.lease * STOP_FRACTION

    @property
    def kill_at(self) -> float:
        """When runners are to be gone: the end of their tether."""
        return self.asked_at + self._terms.lease * KILL_FRACTION

    def holds(self, now: float) -> bool:
        """Whether attempts may go on."""
        return now < self.stop_at

    def renewed(self, asked_at: float) -> None:
        """Extend by a renewal that was *asked* at this time and granted.

        A lapsed trust is never extended: by then others may have acted.
        """
        if self.holds(asked_at):
            self.asked_at = max(self.asked_at, asked_at)


class Sign(msgspec.Struct, frozen=True):
    """What one look shows of one worker: its counter and its own terms, in seconds."""

    worker_id: int
    beat: int
    heartbeat: float
    lease: float


class _Watched:
    __slots__ = ("beat", "looked_at", "since")

    def __init__(self, beat: int, now: float) -> None:
        self.beat = beat
        self.since = now
        self.looked_at = now


class Observer:
    """The observer's rule, as in Kubernetes leader election (client-go, leaderelection).

    A worker is gone when its counter was seen unchanged for that worker's own lease on the
    observer's own clock, by looks without a gap.
    """

    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}

    def look(self, now: float, signs: Iterable[Sign]) -> list[Sign]:
        """Take in one look at all workers; return those that are gone by the rule."""
        signs = list(signs)
        gone = [sign for sign in signs if self._is_gone(now, sign)]
        seen = {sign.worker_id for sign in signs}
        self._watched = {key: value for key, value in self._watched.items() if key in seen}
        return gone

    def forget(self) -> None:
        """Start anew, as after an outage in which nobody could be seen."""
        self._watched.clear()

    def _is_gone(self, now: float, sign: Sign) -> bool:
        watched = self._watched.get(sign.worker_id)
        if watched is None or watched.beat != sign.beat or self._gap(now, watched, sign):
            self._watched[sign.worker_id] = _Watched(sign.beat, now)
            return False
        watched.looked_at = now
        return now - watched.since >= sign.lease

    @staticmethod
    def _gap(now: float, watched: _Watched, sign: Sign) -> bool:
        """Whether the store may have been out of sight, for the worker as well.

        Half of a lease and one heartbeat (at most a third) are less than the lease: a stall of
        the store that passes for no gap cannot make a worker that beats look silent.
        """
        return now - watched.looked_at > sign.lease * GAP_FRACTION
