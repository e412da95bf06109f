"""Holds attempts that are claimed ahead of a slot, so that no slot waits for the store.

No runner knows of them: a runner's death does not touch them, and they can be given back at any
time, uncharged. Only as many are claimed as will start within ``HORIZON_SECONDS`` at the recent
rate of ends, so that none waits behind a slow one; if the rate drops, they are given back after
``WAIT_SECONDS_MAX``. ``TripPlan`` lets ends gather while enough of them wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice, takewhile

from outlast.base.clock import Clock
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.store.values import Claimed
from outlast.worker.base import Running
from outlast.worker.claims.in_flight import InFlight

HORIZON_SECONDS = 0.15  # a trip is worth its cost even if many workers share the jobs
RATE_SECONDS = 0.1  # over which the rate of ends is measured
WAIT_SECONDS_MAX = 0.25
BACK_SECONDS = 0.4  # before a job that was given back is due, lest it is claimed again and again
BEGIN_SECONDS = 5.0  # in which a claimed attempt gets a slot or is given back

_LATE = Outcome(
    kind=OutcomeKind.RELEASED,
    message="claimed for a slot that did not come free",
    delay=BACK_SECONDS,
    began=False,
)


class Prefetch:
    """The waiting attempts of one kind, in the order of their claims; with a ``horizon`` of 0
    seconds, none is claimed without a slot."""

    def __init__(self, in_flight: InFlight, clock: Clock, horizon: float) -> None:
        self._horizon = horizon
        self._in_flight = in_flight
        self._clock = clock
        self._waiting: dict[int, Running] = {}
        self._rate = 0.0
        self._count = 0
        self._counted_since = clock.boot()

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, token: int) -> bool:
        return token in self._waiting

    def room(self) -> int:
        """Return how many more may be claimed now."""
        return max(0, self.most() - len(self._waiting))

    def most(self) -> int:
        """Return how many may be held beyond the slots: as many as start within the horizon."""
        return self.expect(self._horizon)

    def expect(self, seconds: float) -> int:
        """Return how many attempts will start in that time."""
        return int(self._per_second() * seconds)

    def part(self, slots: int) -> int:
        """Return how many one exchange may claim for these slots: while attempts end, half of those
        that may be held, so that one half runs while the other is exchanged."""
        most = self.most()
        return (slots + most + 1) // 2 if most else slots

    def has_rate(self) -> bool:
        """Whether attempts of this kind have ended lately: only then may others wait."""
        return self._per_second() > 0

    def note_freed(self, slots: int) -> None:
        """Note how many attempts have ended."""
        self._per_second()
        self._count += slots

    def line_up(self, attempts: Iterable[Running]) -> None:
        """Let attempts wait behind the others."""
        for running in attempts:
            self._waiting[running.token] = running

    def take(self, count: int) -> list[Running]:
        """Remove and return the first waiting attempts, to start now."""
        if not self._waiting:
            return []
        self._give_back_expired()
        first = list(islice(self._waiting.values(), count))
        for running in first:
            del self._waiting[running.token]
        return first

    def _give_back_expired(self) -> None:
        """Give back attempts with a timeout that have waited too long for the deadline on their row
        (``Deadlines`` in the reaper), for example because this process was stopped."""
        now = self._clock.boot()
        waiting = self._waiting.values()
        expired = takewhile(lambda one: now - one.started_at > BEGIN_SECONDS, waiting)
        late = [one.token for one in expired if one.claimed.policy.timeout is not None]
        for token in late:
            del self._waiting[token]
            self._in_flight.end(token, _LATE)

    def stop(self, token: int, reason: str) -> None:
        """End an attempt, if it waits here, since it was asked to stop."""
        running = self._waiting.pop(token, None)
        if running is None:
            return
        running.stop_reason = reason  # a cancel wins over the release
        message = f"stopped: {reason}"
        outcome = Outcome(kind=OutcomeKind.RELEASED, message=message, began=False)
        self._in_flight.end(token, outcome)

    def give_back(self, reason: str, which: Callable[[Claimed], bool] | None = None) -> None:
        """Give back all attempts, or the ones that ``which`` selects."""
        for token, running in list(self._waiting.items()):
            if which is None or which(running.claimed):
                self.stop(token, reason)

    def give_back_late(self, *, free: int = 0) -> None:
        """Give back attempts that have waited too long and will not start soon, at the current rate
        or in one of the ``free`` slots: the waiting alone may be due to a slow machine."""
        if not self._waiting:
            return
        now = self._clock.boot()
        soon = free + int(self._per_second() * WAIT_SECONDS_MAX)
        for running in list(self._waiting.values())[soon:]:
            if now - running.started_at < WAIT_SECONDS_MAX:
                return
            del self._waiting[running.token]
            self._in_flight.end(running.token, _LATE)

    def _per_second(self) -> float:
        now = self._clock.boot()
        elapsed = now - self._counted_since
        if elapsed >= RATE_SECONDS:
            self._rate = self._count / elapsed
            self._counted_since, self._count = now, 0
        return self._rate


class Ahead:
    """All attempts of one worker that wait for a slot, or for a runner of their own (``alone``)."""

    def __init__(self, in_flight: InFlight, clock: Clock, horizon: float = HORIZON_SECONDS) -> None:
        self.alone = Prefetch(in_flight, clock, horizon)
        self.shared = Prefetch(in_flight, clock, horizon)
        self._kinds = self.alone, self.shared

    def __len__(self) -> int:
        return len(self.alone) + len(self.shared)

    def __contains__(self, token: int) -> bool:
        return token in self.alone or token in self.shared

    def count_ahead(self) -> int:
        """Return how many attempts may end before a slot could be idle: the fewest of a kind."""
        return min((len(kind) for kind in self._kinds if kind.has_rate()), default=0)

    def stop(self, token: int, reason: str) -> None:
        """End an attempt, if it waits here, since it was asked to stop."""
        for kind in self._kinds:
            kind.stop(token, reason)

    def give_back(self, reason: str, which: Callable[[Claimed], bool] | None = None) -> None:
        """Give back all attempts, or the ones that ``which`` selects."""
        for kind in self._kinds:
            kind.give_back(reason, which)

    def give_back_late(self, *, free: int = 0) -> None:
        """Give back attempts that have waited too long, as ``Prefetch`` does."""
        for kind in self._kinds:
            kind.give_back_late(free=free)
