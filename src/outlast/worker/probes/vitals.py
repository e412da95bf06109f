"""Judges a worker's health for its probes. No probe asks the store.

An outage of the database is no reason to restart a worker: a restart would cost its attempts and
repair nothing. So ``livez`` only says whether this process can still do its work, and ``readyz``
whether it would take a job now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple

from outlast.base.clock import Clock
from outlast.worker.worker import Worker

STUCK_SECONDS = 30.0  # without a turn: then a loop counts as stuck
TICK_SECONDS = 1.0  # between two checks of the loops
TICKS_COUNTED = 2.0  # of a longer pause: the loops were held up together with this thread


class ProbeAnswer(NamedTuple):
    """The answer to one probe, with a text for people."""

    is_well: bool
    text: str


class TurnWatch:
    """Checks whether a loop of this process turns, by asking it to run a call again and again.

    Time counts as it passes for the checking thread: while a machine was suspended, or a process
    was stopped for a while, no loop was stuck. ``ask`` passes a call to the loop.
    """

    def __init__(self, name: str, ask: Callable[[Callable[[], None]], object]) -> None:
        self.name = name
        self._ask = ask
        self._waits = False
        self._silent = 0.0

    def look(self, seconds: float) -> None:
        """Check again, ``seconds`` after the last time."""
        if self._waits:
            self._silent += min(seconds, TICKS_COUNTED * TICK_SECONDS)
            return
        self._silent = 0.0
        self._waits = True
        try:
            self._ask(self._note_turn)
        except RuntimeError:  # the loop is closed: it does not turn any more
            return

    def _note_turn(self) -> None:
        self._waits = False

    @property
    def silent(self) -> float:
        """The seconds for which the loop has not turned."""
        return self._silent if self._waits else 0.0


class Vitals:
    """Judges one worker for its probes, from any thread. Made on its loop, before the worker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watches = [TurnWatch("event loop", asyncio.get_running_loop().call_soon_threadsafe)]
        self._is_tether_lost: Callable[[], bool] = lambda: False
        self._worker: Worker | None = None
        self._sleeps = False

    def attach(self, worker: Worker, is_tether_lost: Callable[[], bool] = lambda: False) -> None:
        """Judge this worker from now on."""
        self.rest()
        self._is_tether_lost = is_tether_lost
        self._watches.append(TurnWatch("heartbeat's thread", worker.heartbeat.call_soon))
        self._worker, self._sleeps = worker, False

    def rest(self) -> None:
        """Judge no worker: it sleeps, which is no fault."""
        del self._watches[1:]
        self._is_tether_lost = lambda: False
        self._sleeps, self._worker = self._sleeps or self._worker is not None, None

    def look(self, seconds: float) -> None:
        """Check whether the loops turn, ``seconds`` after the last time."""
        for watch in self._watches:
            watch.look(seconds)

    def judge_startup(self) -> ProbeAnswer:
        """Whether a runner was ever ready."""
        started = self._sleeps or (self._worker is not None and self._worker.pool.has_started)
        return _answer_with("started", [] if started else ["no runner is ready yet"])

    def judge_readiness(self) -> ProbeAnswer:
        """Whether the worker would take a job now."""
        return _answer_with("ready", list(self._hindrances()))

    def judge_liveness(self) -> ProbeAnswer:
        """Whether this process can do its work, apart from the store."""
        faults = [
            f"the {watch.name} has not turned for {watch.silent:.0f} s"
            for watch in self._watches
            if watch.silent >= STUCK_SECONDS
        ]
        if self._is_tether_lost():
            faults.append(
                "the tether process is gone: nothing would end runners if this worker died"
            )
        return _answer_with("live", faults)

    def _hindrances(self) -> Iterator[str]:
        if self._sleeps:
            return
        worker = self._worker
        registration = None if worker is None else worker.registration
        if worker is None or registration is None or not registration.me.worker_id:
            yield "it has not registered yet"
            return
        if registration.draining:
            yield "it is draining"
        if not registration.is_trusted():
            silent = self._clock.boot() - registration.trust.asked_at
            yield f"its lease is not trusted: no beat was answered for {silent:.0f} s"
        if not worker.pool.is_ready:
            yield "no runner is ready"


def _answer_with(word: str, faults: list[str]) -> ProbeAnswer:
    return ProbeAnswer(not faults, f"not {word}: {'; '.join(faults)}" if faults else word)
