"""Decides which polls are worth a trip: looks for work that the exchange makes unannounced.

A glance shows the highest position ever drawn. If it has risen, there is new work in a line. If it
has not, a look can only find a job whose position was drawn before and committed since. So an idle
worker skips further looks once its last one was complete: no position was drawn since, and every
transaction that may have drawn a known position had ended before that look began. Transaction
numbers show this: a beat whose glance shows the same position, ``NUMBER_SECONDS`` later or more,
has a number above all that were given out, and a later glance shows whether all below it have
ended. In those seconds a transaction gets its number that has drawn a position and has none yet.
One that first waits for the holder of its key may take longer: polls find its job, if its
notification is lost.

One complete look is enough for all of a kind. A worker that has followed a wake-up by the highest
position owes it. The others have heard of that, and skip looks as if they had made it
(``WakeTurns.are_left_to_others``), so a single job sets off no look of the whole fleet.

Only polls find a job whose row was locked while it was looked for, by a transaction that was then
rolled back, such as that of a worker killed within its claim, and one that was left to a worker
that was gone or full before its complete look. So no worker skips polls for longer
than ``QUIET_SECONDS_MAX``, and all workers of a kind together poll as often as ``EASED_PEERS``
would. A worker skips none where its wake-up does not work, where few workers serve the same, or
where no glance came lately.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from outlast.clock import Clock
from outlast.model.lease import LOOK_SECONDS
from outlast.store.glances import Glance
from outlast.worker.claims.peers import EASED_PEERS, EASED_SECONDS
from outlast.worker.claims.wake_turns import WakeTurns

POLL_FACTOR_WITH_GLANCES = 5.0  # glances show due jobs, so polls are rarer
NUMBER_SECONDS = LOOK_SECONDS  # in which a transaction has its number that has drawn a position
QUIET_SECONDS_MAX = 30.0  # without a poll; a reconciliation is due as often


class Polls:
    """What one worker's exchange knows of the line.

    Args:
        poll: seconds between two polls where no glance shows what is new.
        turns: told of new positions; they say when this worker's turn to look has come.
        is_eased: whether the worker is among many that serve the same.
    """

    def __init__(
        self, clock: Clock, poll: float, turns: WakeTurns, is_eased: Callable[[], bool]
    ) -> None:
        self._clock = clock
        self._poll = poll
        self._turns = turns
        self._is_eased = is_eased
        self._drawn: int | None = None  # the last position that a glance has shown
        self._glanced_at = self._new_at = clock.boot()  # new: when the last one was first shown
        self._bound: int | None = None  # transactions below it may have drawn a known position
        self._settled_at = math.inf  # when a glance has shown that they have ended
        self._looked_at = -math.inf
        self._next_due: float | None = None  # since then; inf: never; None: it has found no end
        self._quiet_until: float | None = None  # None: that is not drawn yet

    def seconds(self) -> float:
        """Return the seconds between two polls."""
        return self._poll if self._drawn is None else self._poll * POLL_FACTOR_WITH_GLANCES

    def take_glance(self, glance: Glance) -> bool:
        """Take in a glance; return whether it shows new work, or work that is due before the next
        glance."""
        if glance.drawn is None:
            return False
        before_at, self._glanced_at = self._glanced_at, self._clock.boot()
        rest = max(LOOK_SECONDS, self._glanced_at - before_at)  # until the next one
        is_due = glance.next_due is not None and glance.next_due <= rest
        before, self._drawn = self._drawn, glance.drawn
        self._note_transactions(glance, is_new=before != glance.drawn)
        if before == glance.drawn:
            return is_due
        return before is None or self._turns.hear_of_look(before, glance.drawn) or is_due

    def _note_transactions(self, glance: Glance, *, is_new: bool) -> None:
        if is_new or glance.oldest is None:
            self._bound, self._settled_at, self._new_at = None, math.inf, self._glanced_at
        elif self._bound is None:
            is_numbered = self._glanced_at - self._new_at >= NUMBER_SECONDS
            self._bound = glance.newest if is_numbered else None
        elif self._settled_at == math.inf and glance.oldest >= self._bound:
            self._settled_at = self._glanced_at

    def note_look(self) -> None:
        """Note that a look begins."""
        self._looked_at, self._next_due, self._quiet_until = self._clock.boot(), None, None

    def note_end(self, next_due: float | None) -> None:
        """Note that the last look, for all that an idle worker can take, has found nothing.
        ``next_due``: seconds until the first scheduled job is due; None: there is none."""
        self._next_due = math.inf if next_due is None else next_due
        if self._settled_at <= self._looked_at:
            self._draw_quiet(self._next_due)

    def _draw_quiet(self, next_due: float) -> float:
        share = self.seconds() * self._turns.peers / EASED_PEERS
        quiet = min(QUIET_SECONDS_MAX, share) * (0.5 + 0.5 * self._clock.random())
        self._quiet_until = self._looked_at + min(quiet, next_due)
        return self._quiet_until

    def are_useless(self) -> bool:
        """Whether a look would find nothing, as the last one did, or is left to others."""
        if self._next_due is None:
            return False
        if not (self._settled_at <= self._looked_at or self._is_left_to_others()):
            return False
        now, until = self._clock.boot(), self._quiet_until
        until = self._draw_quiet(self._next_due) if until is None else until
        return now < until and now - self._glanced_at < 2 * EASED_SECONDS and self._is_eased()

    def _is_left_to_others(self) -> bool:
        return self._drawn is not None and self._turns.are_left_to_others(self._drawn, self._new_at)
