"""Decides when the exchange makes its next trip to the store: the one place that does.

A worker asks for work at once when it hears of some: by a notification, from the sweeper, or from a
peek at the store, which shows that a position was drawn since the last one or that a job falls
due before the next one. Otherwise it asks when the last reply said that something falls due, and at
each poll, since each hint may be lost. It polls less often where something else would tell it of
new work: peeks, a wake-up that looks for each write by itself, or a messenger in good health.

Which of many idle workers follows a hint is decided in ``wake_turns``.
"""

from __future__ import annotations

from outlast.base.clock import Clock
from outlast.model.lease import LOOK_SECONDS
from outlast.store.peeks import Peek
from outlast.store.values import Exchanged
from outlast.store.wakeup import Health
from outlast.wakeup.inbox import Inbox
from outlast.worker.claims.wake_turns import WakeTurns

POLL_FACTOR_WHERE_SHOWN = 5.0  # peeks, or looks for writes, show new and due jobs
POLL_FACTOR_WITH_MESSENGER = 10.0
PAUSE_SECONDS_MIN = 0.001


class Pacing:
    """The times of one worker's trips.

    Args:
        poll: seconds between two polls where nothing else would show new work.
        look_every: seconds between two checks whether running attempts have newer holders.
        turns: told of new positions; they say whether this worker follows them at once.
        inbox: of the messenger; None: there is none.
        health: of the wake-up; None: there is none.
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
        self.is_hinted = False  # new work may exist: the next run asks even if it is early

    def hint(self) -> None:
        """Note that new work may exist."""
        self.is_hinted = True

    def take_peek(self, peek: Peek) -> bool:
        """Take in a peek at the store; return whether to make a trip now. Where a messenger
        announces work, that is left to it."""
        if self._inbox is not None or peek.drawn is None:
            return False
        before_at, self._peeked_at = self._peeked_at, self._clock.boot()
        before, self._drawn = self._drawn, peek.drawn
        rest = max(LOOK_SECONDS, self._peeked_at - before_at)  # until the next one
        is_new = before is None or (
            before != peek.drawn and self._turns.hear_of_look(before, peek.drawn)
        )
        if is_new or (peek.next_due is not None and peek.next_due <= rest):
            self.hint()
        return self.is_hinted

    def note_asked(self) -> None:
        """Note that a trip begins, which answers all hints up to now."""
        self.is_hinted = False
        self.asked_at = self._look_at = self._clock.boot()

    def is_at_ease(self) -> bool:
        """Whether a look can wait: the messenger would announce new jobs."""
        return self._is_announced() and not self.is_hinted and self._clock.boot() < self._look_at

    def is_poll_due(self) -> bool:
        """Whether the last trip began a poll ago."""
        return self._clock.boot() - self.asked_at >= self._poll

    def rest(self) -> float:
        """Return the pause after a run without a trip."""
        return min(self._poll, self._look_every)

    def take_reply(self, reply: Exchanged, *, has_looked: bool, is_running: bool) -> float:
        """Return the pause after a reply that left nothing to do at once.

        Args:
            reply: of the last trip.
            has_looked: whether that trip asked for work.
            is_running: whether attempts run, whose holders are checked every ``look_every``.
        """
        due = self._poll_seconds()
        for soon in (reply.next_due, reply.next_look):
            due = due if soon is None else min(due, soon)
        if has_looked:
            self._look_at += due
        if is_running or self._is_announced():  # or the messenger falls silent
            due = min(due, self._look_every)
        return max(PAUSE_SECONDS_MIN, due)

    def _poll_seconds(self) -> float:
        if self._is_announced():
            return self._poll * POLL_FACTOR_WITH_MESSENGER
        return self._poll * POLL_FACTOR_WHERE_SHOWN if self._is_shown() else self._poll

    def _is_shown(self) -> bool:
        """Whether something shows each new job, without being told of it."""
        health = self._health
        return self._drawn is not None or (health is not None and health.sees_all and health.good)

    def _is_announced(self) -> bool:
        return self._inbox is not None and self._inbox.healthy
