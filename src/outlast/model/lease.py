"""Leases, seen from both sides: how long the holder trusts it, and when others declare the holder
gone.

The holder's trust ends before anyone else may act, because it is anchored at the moment
*before* the renewal was sent and ends a margin early, while an observer starts counting only
after it has *seen* the beat. No clock is compared with another one.

    holder    asked ──────────── stop ── 3 s ── kill (90 %) ─┐ lease
    observer          seen ──────────────────────────────────────────┘ gone
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from outlast.errors import ConfigError

KILL_FRACTION = 0.9
STOP_FRACTION, STOP_SECONDS_MAX = 0.1, 3.0  # to stop before the kill: of the lease, and at most
GAP_FRACTION = 0.5  # looks further apart than this much of the lease: observing starts over
ABSENT_BEATS = 1.75  # heartbeats without presence and beat, after which a worker is gone
ABSENT_GAP_BEATS = 0.75  # looks further apart than this many heartbeats: observing starts over
ABSENT_LOOK_SECONDS, ABSENT_LOOK_BEATS = 0.5, 0.25  # the pause between looks while one is absent
STEP_SECONDS = 2.0  # that a clock may be ahead or behind in all and still be in step
STEADY_GAP_SECONDS = 15.0  # between two looks at a clock; longer ones start over
PATIENCE_SECONDS_MAX, PATIENCE_FRACTION = 30.0, 1 / 3  # for an answer: at most; of the lease
PAUSE_BEATS, PAUSE_SECONDS = 1.25, 3.0  # between two beats seen: more of both together is a pause
LOOK_SECONDS = 1.0  # between two looks at all workers; less where one has a short lease
LOOK_FRACTION = 1 / 6  # how much of a lease may pass between two looks at its holder


class DeathCause(StrEnum):
    """By what a worker was found gone. Silence, and a lock in the database that is gone, may be
    wrong about a worker that still runs: a network that cuts its connections looks the same."""

    LOCK_FILE = "lock_file"
    TETHER = "tether"
    PRESENCE = "presence"
    RESTARTED = "restarted"
    SILENCE = "silence"

    @property
    def proven(self) -> bool:
        """Whether its processes are known to be gone, and not only unheard of."""
        return self in {DeathCause.LOCK_FILE, DeathCause.TETHER, DeathCause.RESTARTED}

    @property
    def sentence(self) -> str:
        """What people are told, of "it"."""
        return _SENTENCES[self]


_SENTENCES = {
    DeathCause.LOCK_FILE: "its lock file is free, so none of its processes is left",
    DeathCause.TETHER: "its tether has said so: its lock file was free, none of its processes left",
    DeathCause.PRESENCE: "it holds its lock in the database no longer, and was not seen to beat",
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


def patience(lease: float) -> float:
    """Return for how many seconds a worker with this lease waits for an answer of the store."""
    return min(PATIENCE_SECONDS_MAX, lease * PATIENCE_FRACTION)


class Trust:
    """How long a holder may act on its lease, on the clock that it hands in.

    At ``stop_at`` attempts are to be stopped. At ``kill_at`` runners are to be gone: the end of
    their tether.
    """

    def __init__(self, terms: LeaseTerms, asked_at: float) -> None:
        self._terms = terms
        self._count_from(asked_at)

    def _count_from(self, asked_at: float) -> None:
        self.asked_at = asked_at
        self.kill_at = asked_at + self._terms.lease * KILL_FRACTION
        self.stop_at = self.kill_at - min(STOP_SECONDS_MAX, self._terms.lease * STOP_FRACTION)

    def holds(self, now: float) -> bool:
        """Whether attempts may go on."""
        return now < self.stop_at

    def renewed(self, asked_at: float) -> None:
        """Extend by a renewal that was *asked* at this time and granted.

        A lapsed trust is never extended: by then others may have acted.
        """
        if self.holds(asked_at):
            self._count_from(max(self.asked_at, asked_at))


class Presence(StrEnum):
    """What one look shows of a worker's lock in the database. ``unknown`` proves nothing: it has
    none, or took it under another incarnation of the database than the present one."""

    HELD = "held"
    ABSENT = "absent"
    UNKNOWN = "unknown"


class SteadyClock:
    """Whether a store's clock may judge how long an attempt has run: only while it is in step.

    A hard deadline is the store's now at the claim plus the timeout. The store's clock can be
    stepped, and a failover can bring another clock. So a look at it counts only if it has run in
    step with the observer's own boot clock, by looks without a gap, for at least the time that is
    to be judged (timeout and slack). Then a healthy attempt is never judged overdue: if it was
    claimed within that time, its deadline was written by a clock that has been in step since,
    and what that clock says has passed has passed, to within twice ``STEP_SECONDS``; if it was
    claimed before, then that whole time, and so its timeout and slack, have passed on the
    observer's own clock, regardless of its deadline. The slack must be more than twice
    ``STEP_SECONDS``. What two looks cannot see is a step and its way back between them, less than
    ``STEADY_GAP_SECONDS`` apart, with a claim in the middle of it.
    """

    def __init__(self) -> None:
        self._offset = 0.0
        self._since = self._looked_at = float("-inf")

    def look(self, boot: float, store_now: float) -> None:
        """Take in one look: both clocks at the same moment, in seconds."""
        gap = boot - self._looked_at > STEADY_GAP_SECONDS
        if gap or abs(store_now - boot - self._offset) >= STEP_SECONDS:
            self._offset, self._since = store_now - boot, boot
        self._looked_at = boot

    def forget(self) -> None:
        """Start over, as after an outage."""
        self._looked_at = float("-inf")

    def covers(self, seconds: float) -> bool:
        """Whether it has been in step for so long, up to the last look."""
        return self._looked_at - self._since >= seconds


class Beating:
    """For how long each worker was seen to beat without a pause, by looks on one boot clock.

    Only that proves that a worker had the time to do its work: one that was stopped for a while
    beats at once when it goes on, before it has handed in what ended meanwhile.
    """

    def __init__(self) -> None:
        self._seen: dict[int, _Beats] = {}

    def look(self, now: float, signs: Iterable[Sign]) -> None:
        """Take in one look at all workers."""
        self._seen = {sign.worker_id: self._beats(now, sign) for sign in signs}

    def forget(self) -> None:
        """Start over, as after an outage in which no worker could be seen."""
        self._seen.clear()

    def last_beat(self, worker_id: int, after: float) -> float:
        """Return when the last beat was seen of a worker that had then beaten for ``after``
        seconds; of any other, minus infinity."""
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
    """What one look shows of one worker: its counter and its own terms, in seconds.
    ``incarnation``: of the database, under which its presence was taken."""

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
        """Whether the store may have been out of sight, for the worker as well.

        Half of a lease and one heartbeat (at most a third) are less than the lease: a stall of
        the store that passes for no gap cannot make a worker that beats look silent.
        """
        return now - watched.looked_at > sign.lease * GAP_FRACTION


class _Absent(msgspec.Struct):
    beat: int
    incarnation: str | None
    since: float
    looked_at: float


class PresenceObserver:
    """Who is gone by presence: in every look the lock was absent, the counter unchanged and the
    incarnation the same, over more than ABSENT_BEATS heartbeats of that worker, without a gap.

    Why a worker that lives is not called gone. Its lock is absent only while it reconnects, and
    it still beats, on a connection of its own: once in each heartbeat, with a retry soon after a
    beat that failed. So two looks that are further apart than one heartbeat see another counter,
    unless the store was away from the worker too. A failed look or a long pause between two looks
    shows that; what may pass unseen (a gap) and one heartbeat are together no more than the span.
    A database that was restarted, or a standby that was promoted, knows no worker's lock: it is
    another incarnation, under which a worker is absent only after it was present.

    The span counts from the answer of the first look to the asking of the last: both were then
    within it, however slow the store is.
    """

    def __init__(self) -> None:
        self._absent: dict[int, _Absent] = {}
        self.pause: float | None = None

    def look(self, asked_at: float, now: float, signs: Iterable[Sign]) -> list[Sign]:
        """Take in one look, asked for and answered at these times; return those that are gone.

        ``pause`` is then in how many seconds the next look is wanted; None: at leisure.
        """
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
