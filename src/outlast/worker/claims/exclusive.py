"""Empties a worker for an exclusive job, and keeps other jobs out while the job runs.

An idle worker takes such a job at once. A busy worker that learns of a due exclusive job takes no
other jobs for a moment, so that a stream of short jobs cannot starve it. If an attempt has run for
longer than such a moment, the worker does not try, because it would be idle for nothing. So with
hours-long jobs in every worker an exclusive job waits for the first worker that becomes quiet.
"""

from __future__ import annotations

from collections.abc import Callable

from outlast.base.clock import Clock
from outlast.store.values import ClaimRequest, Exchanged
from outlast.worker.claims.in_flight import InFlight

TURN_SECONDS = 10.0  # in which a busy worker takes no jobs, to become empty
TURN_EVERY_SECONDS = 60.0  # between two such turns, at least
VAIN_SECONDS = 1.0  # pause if the job was gone: another worker has it


class ExclusiveClaim:
    """Chooses an exchange's requests; ``least``: the smallest ``solo`` that needs the worker."""

    def __init__(self, in_flight: InFlight, clock: Clock, least: int) -> None:
        self._in_flight = in_flight
        self._clock = clock
        self._least = least
        self._waiting = 0
        self.asked = False  # whether the last request was for an exclusive job
        self._turn_until = self._next_turn_at = self._vain_until = clock.boot()

    def choose(
        self,
        usual: Callable[[], list[ClaimRequest]],
        exclusive: Callable[[int], ClaimRequest | None],
    ) -> list[ClaimRequest]:
        """Return the requests to make now: the usual ones, one for an exclusive job, or none."""
        self.asked = False
        if self._is_taken():
            return []
        if self.is_wanted() and (request := exclusive(self._waiting)):
            self.asked = True
            return [request]
        if (
            self._waiting
            and not self._in_flight.is_empty()
            and self._clock.boot() < self._turn_until
        ):
            return []
        return usual()

    def is_wanted(self) -> bool:
        """Whether the worker is empty and an exclusive job waits for it."""
        if not self._waiting or not self._in_flight.is_empty():
            return False
        return self._clock.boot() >= self._vain_until

    def take_reply(self, requests: list[ClaimRequest], reply: Exchanged) -> bool:
        """Note the reply to these requests. Return True if another trip is useful at once."""
        if self.asked:
            self._waiting = 0
            self._vain_until = self._clock.boot() + VAIN_SECONDS
            return not reply.claimed
        if requests:
            self._waiting = reply.solo_waiting if reply.solo_waiting >= self._least else 0
            if self._waiting:
                self._begin_turn()
        return self.is_wanted()

    def _begin_turn(self) -> None:
        now = self._clock.boot()
        started = (running.started_at for running in self._in_flight.running.values())
        if now >= self._next_turn_at and all(now - at < TURN_SECONDS for at in started):
            self._turn_until = now + TURN_SECONDS
            self._next_turn_at = now + TURN_EVERY_SECONDS

    def _is_taken(self) -> bool:
        running = self._in_flight.running
        return len(running) == 1 and next(iter(running.values())).claimed.solo >= self._least
