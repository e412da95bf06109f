"""Judges a lease from both sides: how long the holder trusts it, and when others call it gone.

The holder's trust ends before anyone else may act: it counts from *before* the renewal was sent and
ends a margin early, while an observer starts counting only after it has *seen* the beat. No clock
is compared with another one.

    holder    asked ──────────── stop ── 3 s ── kill (90 %) ─┐ lease
    observer          seen ──────────────────────────────────────────┘ gone
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from outlast.errors import ConfigError

KILL_FRACTION = 0.9
STOP_FRACTION, STOP_SECONDS_MAX = 0.1, 3.0  # stop before kill: share of lease, and at most
GAP_FRACTION = 0.5  # of the lease: longer gaps between two scans restart observing
ABSENT_BEATS = 1.75  # heartbeats without presence or beat, after which a worker is gone
ABSENT_GAP_BEATS = 0.75  # heartbeats: longer gaps between two scans restart observing
ABSENT_LOOK_SECONDS, ABSENT_LOOK_BEATS = 0.5, 0.25  # between two scans while a worker is absent
STEP_SECONDS = 2.0  # total drift of a clock that still counts as in step
STEADY_GAP_SECONDS = 15.0  # between two readings of a clock; a longer gap starts over
PATIENCE_SECONDS_MAX, PATIENCE_FRACTION = 30.0, 1 / 3  # for an answer: at most; of the lease
PAUSE_BEATS, PAUSE_SECONDS = 1.25, 3.0  # between two beats: more than both together is a pause
LOOK_SECONDS = 1.0  # between two scans of all workers; less if a worker has a short lease
LOOK_FRACTION = 1 / 6  # share of a lease that may pass between two scans of its holder


class DeathCause(StrEnum):
    """The evidence that a worker is gone. Silence or a lost lock in the database may be wrong about
    a worker that still runs: a network that cuts its connections looks the same."""

    LOCK_FILE = "lock_file"
    TETHER = "tether"
    PRESENCE = "presence"
    RESTARTED = "restarted"
    SILENCE = "silence"

    @property
    def proven(self) -> bool:
        """Whether the worker's processes are known to be gone, not only silent."""
        return self in {DeathCause.LOCK_FILE, DeathCause.TETHER, DeathCause.RESTARTED}

    @property
    def sentence(self) -> str:
        """The sentence for people, with "it" for the worker."""
        return _SENTENCES[self]


_SENTENCES = {
    DeathCause.LOCK_FILE: "its lock file is free, so none of its processes is left",
    DeathCause.TETHER: "its tether has said so: its lock file was free, none of its processes left",
    DeathCause.PRESENCE: "it no longer holds its lock in the database, and sent no heartbeat",
    DeathCause.RESTARTED: "it was restarted: a new worker has its instance name",
    DeathCause.SILENCE: "it sent no heartbeat for its whole lease",
}


class LeaseTerms(msgspec.Struct, frozen=True):
    """A worker's own heartbeat and lease, in seconds. Raises ConfigError if they are invalid."""

    heartbeat: float = 2.0
    lease: float = 60.0

    def __post_init__(self) -> None:
        if self.heartbeat <= 0:
            raise ConfigError("heartbeat must be above 0 seconds")
        if self.lease < 3 * self.heartbeat:
            raise ConfigError(
                f"lease {self.lease:g} s is too short for a heartbeat of {self.heartbeat:g} s:"
                " it must be at least three times the heartbeat"
            )


def patience(lease: float) -> float:
    """Return the seconds that a worker with this lease waits for an answer of the store."""
    return min(PATIENCE_SECONDS_MAX, lease * PATIENCE_FRACTION)


class Trust:
    """How long a holder may act on its lease, on its own clock. Attempts are stopped at
    ``stop_at``; their runners are gone at ``kill_at``, the end of the tether."""

    def __init__(self, terms: LeaseTerms, asked_at: float) -> None:
        self._terms = terms
        self._count_from(asked_at)

    def _count_from(self, asked_at: float) -> None:
        self.asked_at = asked_at
        self.kill_at = asked_at + self._terms.lease * KILL_FRACTION
        self.stop_at = self.kill_at - min(STOP_SECONDS_MAX, self._terms.lease * STOP_FRACTION)

    def holds(self, now: float) -> bool:
        """Whether attempts may continue."""
        return now < self.stop_at

    def renewed(self, asked_at: float) -> None:
        """Extend the trust by a renewal *requested* at this time. A lapsed trust is never extended:
        by then others may have acted."""
        if self.holds(asked_at):
            self._count_from(max(self.asked_at, asked_at))


class Presence(StrEnum):
    """The state of a worker's lock in the database. ``unknown`` proves nothing: there is no lock,
    or it was taken under another incarnation of the database."""

    HELD = "held"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class SteadyClock:
    """Whether a store's clock may judge how long an attempt has run: only while it is in step.

    A hard deadline is the store's time at the claim plus the timeout. The store's clock can be
    stepped, and a failover brings another clock. So a reading counts only if the clock has run in
    step with the observer's own boot clock, by readings without a gap, for at least the time to be
    judged (timeout and slack). Then a healthy attempt is never judged overdue: if it was claimed
    within that time, its deadline was written by the clock in step, and the time has passed to
    within twice ``STEP_SECONDS``, which is less than the slack; if before, its timeout and slack
    have passed on the observer's own clock. Two readings less than ``STEADY_GAP_SECONDS`` apart
    cannot show a step undone between them, with a claim in the middle of it.
    """

    def __init__(self) -> None:
        self._offset = 0.0
        self._since = self._looked_at = float("-inf")

    def look(self, boot: float, store_now: float) -> None:
        """Take one reading of both clocks at the same moment, in seconds."""
        gap = boot - self._looked_at > STEADY_GAP_SECONDS
        if gap or abs(store_now - boot - self._offset) >= STEP_SECONDS:
            self._offset, self._since = store_now - boot, boot
        self._looked_at = boot

    def forget(self) -> None:
        """Start over, as after an outage."""
        self._looked_at = float("-inf")

    def covers(self, seconds: float) -> bool:
        """Whether the clock has been in step for that long, up to the last reading."""
        return self._looked_at - self._since >= seconds


class Beating:
    """Measures how long each worker has been beating without a pause, on one boot clock. Only that
    proves that it had time for its work: a stopped worker beats at once when it continues, before
    it has handed in the attempts that ended meanwhile."""

    def __init__(self) -> None:
        self._seen: dict[int, _Beats] = {}

    def look(self, now: float, signs: Iterable[Sign]) -> None:
        """Take one scan of all workers."""
        self._seen = {sign.worker_id: self._beats(now, sign) for sign in signs}

    def forget(self) -> None:
        """Start over, as after an outage in which no worker could be seen."""
        self._seen.clear()

    def last_beat(self, worker_id: int, after: float) -> float:
        """Return when the last beat was seen; minus infinity if it had not beaten for ``after``."""
        beats = self._seen.get(worker_id)
        if beats is None or beats.last_at - beats.since < after:
            return float("-inf")
        return beats.last_at

    def _beats(self, now: float, sign: Sign) -> _Beats:
        before = self._seen.get(sign.worker_id)
        if before is None:
            return _Beats(sign.beat, since=now, last_at=float("-inf"))
        if sign.beat == before.beat:
            return before
        paused = now - before.last_at > sign.heartbeat * PAUSE_BEATS + PAUSE_SECONDS
        return _Beats(sign.beat, since=now if paused else before.since, last_at=now)


class Sign(msgspec.Struct, frozen=True):
    """One worker in a scan. ``incarnation``: the database's, when the worker took its presence."""

    worker_id: int
    beat: int
    heartbeat: float
    lease: float
    presence: Presence = Presence.UNKNOWN
    incarnation: str | None = None


class _Beats(msgspec.Struct, frozen=True):
    beat: int
    since: float
    last_at: float


class _Watched:
    __slots__ = ("beat", "looked_at", "since")

    def __init__(self, beat: int, now: float) -> None:
        self.beat = beat
        self.since = now
        self.looked_at = now


class Observer:
    """The observer's rule of Kubernetes (client-go, leaderelection): a worker is gone when scans
    without a gap have shown the same counter for its own lease, on the observer's own clock."""

    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}

    def look(self, now: float, signs: Iterable[Sign]) -> list[Sign]:
        """Take one scan of all workers; return the workers that are gone by the rule."""
        signs = list(signs)
        gone = [sign for sign in signs if self._is_gone(now, sign)]
        seen = {sign.worker_id for sign in signs}
        self._watched = {key: value for key, value in self._watched.items() if key in seen}
        return gone

    def forget(self) -> None:
        """Start over, as after an outage in which no worker could be seen."""
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
        """Whether the store may have been unreachable, for the worker as well. Half of a lease and
        one heartbeat (at most a third) are less than the lease: a shorter stall of the store cannot
        make a beating worker look silent."""
        return now - watched.looked_at > sign.lease * GAP_FRACTION


class _Absent(msgspec.Struct):
    beat: int
    incarnation: str | None
    since: float
    looked_at: float


class PresenceObserver:
    """Finds workers that are gone by presence: in every scan, over more than ABSENT_BEATS
    heartbeats of the worker and without a gap, the lock was absent, the counter unchanged and the
    incarnation the same.

    A live worker's lock is absent only while it reconnects. It still beats on a separate
    connection, and retries a failed beat soon, so two scans further apart than one heartbeat see
    different counters, unless the worker cannot reach the store either: then a scan has failed or
    was late, and the longest unnoticed pause plus one heartbeat is no more than the span. A
    restarted or promoted database is another incarnation, under which a worker is absent only after
    it was present. The span counts from the answer to the first scan to the request of the last.
    """

    def __init__(self) -> None:
        self._absent: dict[int, _Absent] = {}
        self.pause: float | None = None

    def look(self, asked_at: float, now: float, signs: Iterable[Sign]) -> list[Sign]:
        """Take a scan with the times of its request and answer; return the workers that are gone.
        ``pause``: the seconds until the next scan should run; None: no hurry."""
        absent = [sign for sign in signs if sign.presence is Presence.ABSENT]
        self._absent = {sign.worker_id: self._watched(now, sign) for sign in absent}
        pauses = (min(ABSENT_LOOK_SECONDS, sign.heartbeat * ABSENT_LOOK_BEATS) for sign in absent)
        self.pause = min(pauses, default=None)
        return [sign for sign in absent if self._is_gone(asked_at, sign)]

    def forget(self) -> None:
        """Start over, as after an outage in which no worker could be seen."""
        self._absent.clear()

    def _watched(self, now: float, sign: Sign) -> _Absent:
        before = self._absent.get(sign.worker_id)
        if before is None or not self._goes_on(now, before, sign):
            return _Absent(sign.beat, sign.incarnation, now, now)
        before.looked_at = now
        return before

    @staticmethod
    def _goes_on(now: float, before: _Absent, sign: Sign) -> bool:
        same = (before.beat, before.incarnation) == (sign.beat, sign.incarnation)
        return same and now - before.looked_at <= sign.heartbeat * ABSENT_GAP_BEATS

    def _is_gone(self, asked_at: float, sign: Sign) -> bool:
        return asked_at - self._absent[sign.worker_id].since > sign.heartbeat * ABSENT_BEATS
