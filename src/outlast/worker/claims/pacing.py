"""Decides when the exchange makes its next trip to the store. No other code does.

A worker requests work at once when it learns of some: by a notification, from the announcer, or
from a peek at the store, which shows that a position was drawn since the last peek or that a job
falls due before the next one. Otherwise it requests work at the due time in the last reply, and at
each poll, since each hint may be lost. It polls less often if something else would show new work:
peeks, a wake-up that notices each write by itself, or a healthy messenger.

The log of ``outlast.trips`` gives the reason of each trip, at debug level. ``wake_turns`` decides
which of many idle workers follows a hint.
"""

from __future__ import annotations

import logging
from enum import StrEnum

from outlast.base.clock import Clock
from outlast.model.lease import LOOK_SECONDS
from outlast.store.values import Exchanged, Peek
from outlast.store.wakeup import Health
from outlast.wakeup.inbox import Inbox
from outlast.worker.claims.wake_turns import WakeTurns

POLL_FACTOR_WHERE_SHOWN = 5.0  # peeks, or a wake-up that notices writes, show new and due jobs
POLL_FACTOR_WITH_MESSENGER = 10.0
PAUSE_SECONDS_MIN = 0.001
BUSY_PAUSE_SECONDS = 0.05  # before an end with a locked row is sent again

_log = logging.getLogger("outlast.trips")


class Reason(StrEnum):
    """Why a trip is made."""

    HINT = "hint"  # a wake-up, or another part of the worker, said that there may be work
    POSITION = "position"  # a peek has shown a new position
    DUE = "due"  # a job falls due
    SEARCH = "search"  # the store has more to search, by its last reply
    POLL = "poll"
    CHECK = "check"  # attempts run, or the messenger may have fallen silent
    ENDS = "ends"  # attempts have ended, or the row of an end was locked
    MORE = "more"  # the last reply filled all slots, or was cut: there may be more jobs


class Pacing:
    """The times of one worker's trips.

    Args:
        poll: seconds between two polls if nothing else would show new work.
        look_every: seconds between two checks for newer holders of running attempts.
        turns: receives new positions, and decides whether this worker follows them at once.
        inbox: the messenger's inbox, or None without a messenger.
        health: the wake-up's health, or None without a wake-up.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        poll: float,
        look_every: float,
        turns: WakeTurns,
        inbox: Inbox | None,
        health: Health | None = None,
    ) -> None:
        self._clock = clock
        self._poll = poll
        self._look_every = look_every
        self._turns = turns
        self._inbox = inbox
        self._health = health
        self._drawn: int | None = None  # the last position that a peek has shown
        self._peeked_at = self._look_at = clock.boot()
        self.asked_at = clock.boot() - poll  # when the last trip began
        self.is_hinted = False  # new work may exist: the next run makes a trip even if it is early
        self.reason = Reason.POLL  # why the next trip is made

    def hint(self, reason: Reason = Reason.HINT) -> None:
        """Note that new work may exist: the next run makes a trip even if it is early."""
        self.is_hinted, self.reason = True, reason

    def take_peek(self, peek: Peek) -> bool:
        """Act on a peek at the store; return whether to make a trip now. If a messenger announces
        work, trips are left to it."""
        if self._inbox is not None or peek.drawn is None:
            return False
        before_at, self._peeked_at = self._peeked_at, self._clock.boot()
        before, self._drawn = self._drawn, peek.drawn
        rest = max(LOOK_SECONDS, self._peeked_at - before_at)  # until the next peek
        if before is None or (
            before != peek.drawn and self._turns.hear_of_look(before, peek.drawn)
        ):
            self.hint(Reason.POSITION)
        elif peek.next_due is not None and peek.next_due <= rest:
            self.hint(Reason.DUE)
        return self.is_hinted

    def note_asked(self, *, has_ends: bool = False) -> None:
        """Note that a trip begins, which covers all hints up to now."""
        if has_ends and not self.is_hinted:
            self.reason = Reason.ENDS
        _log.debug("a trip to the store: %s", self.reason)
        self.is_hinted = False
        self.asked_at = self._look_at = self._clock.boot()

    def is_at_ease(self) -> bool:
        """Whether a trip can wait: the messenger would announce new jobs."""
        return self._is_announced() and not self.is_hinted and self._clock.boot() < self._look_at

    def is_poll_due(self) -> bool:
        """Whether the last trip began at least one poll interval ago."""
        return self._clock.boot() - self.asked_at >= self._poll

    def rest(self) -> float:
        """Return the pause after a run without a trip."""
        return self.wait(min(self._poll, self._look_every), Reason.POLL)

    def wait(self, seconds: float, reason: Reason) -> float:
        """Return the pause before the next trip, which is made for this reason unless a hint comes
        first."""
        if not self.is_hinted:
            self.reason = reason
        return seconds

    def take_reply(self, reply: Exchanged, *, has_looked: bool, is_running: bool) -> float:
        """Return the pause after a reply that requires no further trip at once.

        Args:
            reply: the reply to the last trip.
            has_looked: whether that trip requested work.
            is_running: whether attempts run, whose holders are checked every ``look_every``.
        """
        due, reason = self._poll_seconds(), Reason.POLL
        for soon, why in ((reply.next_due, Reason.DUE), (reply.next_look, Reason.SEARCH)):
            if soon is not None and soon < due:
                due, reason = soon, why
        if has_looked:
            self._look_at += due
        if (is_running or self._is_announced()) and self._look_every < due:
            due, reason = self._look_every, Reason.CHECK  # the messenger may also fall silent
        return self.wait(max(PAUSE_SECONDS_MIN, due), reason)

    def _poll_seconds(self) -> float:
        if self._is_announced():
            return self._poll * POLL_FACTOR_WITH_MESSENGER
        return self._poll * POLL_FACTOR_WHERE_SHOWN if self._is_shown() else self._poll

    def _is_shown(self) -> bool:
        """Whether each new job is noticed without a notification."""
        health = self._health
        return self._drawn is not None or (health is not None and health.sees_all and health.good)

    def _is_announced(self) -> bool:
        return self._inbox is not None and self._inbox.healthy
