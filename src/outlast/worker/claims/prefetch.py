"""Attempts that were claimed before there was a slot for them, so that no slot waits for the store.

They wait in the worker and have not begun: no runner knows of them. So nothing that happens to a
runner touches them, and they can be given back at any time, uncharged. No more are claimed than
will start within ``HORIZON_SECONDS`` at the rate at which attempts have lately ended, so that
none waits behind a slow one; where that rate was no promise, they are given back after
``WAIT_SECONDS_MAX``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice, takewhile

from outlast.base.clock import Clock
from outlast.model.lifecycle import Outcome, OutcomeKind
from outlast.store.values import Claimed
from outlast.worker.claims.ledger import Ledger
from outlast.worker.running import Running

HORIZON_SECONDS = 0.06  # two trips to the store and back, with something in hand
RATE_SECONDS = 0.1  # over which ends are counted
WAIT_SECONDS_MAX = 0.25
TURN_EVERY_SECONDS = 0.5  # in which a plain function gets a turn where async tasks fill all
TURN_SECONDS = 5.0  # in which what was claimed has a slot, or is given back
LINGER_SECONDS_MAX = 0.02  # in which ends gather for one trip, while enough waits here

_LATE = Outcome(
    kind=OutcomeKind.RELEASED,
    message="claimed for a slot that did not come free",
    delay=1.0,  # seconds: it must not be claimed again at once, and again
    began=False,
)


class Prefetch:
    """The attempts of one kind that wait, in the order of their claims: those that will start
    within ``horizon`` seconds; 0: none is claimed without a slot."""

    def __init__(self, ledger: Ledger, clock: Clock, horizon: float = HORIZON_SECONDS) -> None:
        self._horizon = horizon
        self._ledger = ledger
        self._clock = clock
        self._waiting: dict[int, Running] = {}
        self._granted = 0
        self._rate = 0.0
        self._count = 0
        self._counted_since = clock.boot()

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, token: int) -> bool:
        return token in self._waiting

    def grant(self) -> int:
        """Return how many more may be claimed now, and put here until the next call."""
        self._granted = max(0, self.most() - len(self._waiting))
        return self._granted

    def most(self) -> int:
        """Return how many may be held beyond the slots: what will start within the horizon."""
        return self.expect(self._horizon)

    def expect(self, seconds: float) -> int:
        """Return how many attempts will start in that time."""
        return int(self._per_second() * seconds)

    def part(self, slots: int) -> int:
        """Return how many one exchange may claim for this number of slots: while attempts end,
        half of all that may be held, so that one half runs while the other is exchanged."""
        most = int(self._rate * self._horizon)
        return (slots + most + 1) // 2 if most else slots

    def span(self) -> float | None:
        """Return for how many seconds those that wait keep the slots busy; None: nothing runs."""
        rate = self._per_second()
        return len(self._waiting) / rate if rate else None

    def note_freed(self, slots: int) -> None:
        """Note how many attempts have ended."""
        if slots:
            self._per_second()
            self._count += slots

    def put(self, running: Running) -> bool:
        """Let an attempt wait, behind the others. False: none was granted for it."""
        if not self._granted:
            return False
        self._granted -= 1
        self._waiting[running.token] = running
        return True

    def line_up(self, attempts: Iterable[Running]) -> None:
        """Let attempts wait behind the others until the loop's next turn."""
        for running in attempts:
            self._waiting[running.token] = running

    def take(self, count: int) -> list[Running]:
        """Return the first that wait, to be started now, and let go of them. What has a timeout and
        has waited too long, as when this process was stopped, is given back."""
        if not self._waiting:
            return []
        self._give_back_expired()
        first = list(islice(self._waiting.values(), count))
        for running in first:
            del self._waiting[running.token]
        return first

    def _give_back_expired(self) -> None:
        """The deadline on the row counts from the claim: reapers allow for TURN_SECONDS."""
        now = self._clock.boot()
        expired = takewhile(lambda one: now - one.started_at > TURN_SECONDS, self._waiting.values())
        late = [one.token for one in expired if one.claimed.policy.timeout is not None]
        for token in late:
            del self._waiting[token]
            self._ledger.end(token, _LATE)

    def stop(self, token: int, reason: str) -> None:
        """End one that has not begun, since it was asked to stop."""
        running = self._waiting.pop(token)
        running.stop_reason = reason  # a cancel wins over the release
        message = f"stopped: {reason}"
        outcome = Outcome(kind=OutcomeKind.RELEASED, message=message, began=False)
        self._ledger.end(token, outcome)

    def give_back(self, reason: str, which: Callable[[Claimed], bool] | None = None) -> None:
        """Give all back, or those."""
        for token, running in list(self._waiting.items()):
            if which is None or which(running.claimed):
                self.stop(token, reason)

    def give_back_late(self, wait: float = WAIT_SECONDS_MAX, *, free: int = 0) -> None:
        """Give back those that have waited too long and would still wait: slots became slow. One
        look is not enough where the whole machine was slow: the present rate counts, too, and the
        first have a slot among the ``free`` ones."""
        if not self._waiting:
            return
        now = self._clock.boot()
        soon = free + int(self._per_second() * WAIT_SECONDS_MAX)
        for running in list(self._waiting.values())[soon:]:
            if now - running.started_at < wait:
                return
            del self._waiting[running.token]
            self._ledger.end(running.token, _LATE)

    def _per_second(self) -> float:
        now = self._clock.boot()
        elapsed = now - self._counted_since
        if elapsed >= RATE_SECONDS:
            self._rate = self._count / elapsed
            self._counted_since, self._count = now, 0
        return self._rate


def linger(*prefetches: Prefetch) -> float:
    """Return for how many seconds ends may gather before the next trip: no slot runs dry."""
    spans = [span for each in prefetches if (span := each.span()) is not None]
    return min(LINGER_SECONDS_MAX, min(spans) / 2) if spans else 0.0
