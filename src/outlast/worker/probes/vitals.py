"""How a worker is, as its probes say it. No probe asks the store.

An outage of the database is no reason to restart a worker: it would cost it its attempts and mend
nothing. So ``livez`` only asks whether this process can still do its work, and ``readyz`` whether
it would take a job now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple

from outlast.base.clock import Clock
from outlast.worker.worker import Worker

STUCK_SECONDS = 30.0  # without a turn, after which a loop is stuck
TICK_SECONDS = 1.0  # between two looks at the loops
TICKS_COUNTED = 2.0  # of a longer pause: what has held up this thread has held up the loops, too


class ProbeAnswer(NamedTuple):
    """The answer to one probe, with a text for people."""

    is_well: bool
    text: str


class TurnWatch:
    """Whether a loop of this process turns: it is asked to call, again and again.

    Seconds count as they pass for the thread that looks: on a machine that was suspended, and in a
    process that was stopped for a while, no loop was stuck. ``ask`` lets the loop call.
    """

    def __init__(self, name: str, ask: Callable[[Callable[[], None]], object]) -> None:
        self.name = name
        self._ask = ask
        self._waits = False
        self._silent = 0.0

    def look(self, seconds: float) -> None:
        """Look once more, ``seconds`` after the last time."""
        if self._waits:
            self._silent += min(seconds, TICKS_COUNTED * TICK_SECONDS)
            return
        self._silent = 0.0
        self._waits = True
        try:
            self._ask(self._note_turn)
        except RuntimeError:  # it is closed: it does not turn any more
            return

    def _note_turn(self) -> None:
        self._waits = False

    @property
    def silent(self) -> float:
        """For how many seconds it has not turned."""
        return self._silent if self._waits else 0.0


def _never() -> bool:
    return False


class Vitals:
    """What probes say of one worker, from any thread. Made on the worker's loop, before it is."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watches = [TurnWatch("event loop", asyncio.get_running_loop().call_soon_threadsafe)]
        self._is_tether_lost: Callable[[], bool] = _never
        self._worker: Worker | None = None

    def attach(self, worker: Worker, is_tether_lost: Callable[[], bool] = _never) -> None:
        """Speak of this worker from now on."""
        self._is_tether_lost = is_tether_lost
        self._watches.append(TurnWatch("heartbeat's thread", worker.heartbeat.call_soon))
        self._worker = worker

    def look(self, seconds: float) -> None:
        """Look whether the loops turn, ``seconds`` after the last time."""
        for watch in self._watches:
            watch.look(seconds)

    def judge_startup(self) -> ProbeAnswer:
        """Whether the first runner was ready, once and for all."""
        started = self._worker is not None and self._worker.pool.has_started
        return _answer_with("started", [] if started else ["no runner is ready yet"])

    def judge_readiness(self) -> ProbeAnswer:
        """Whether it would take a job now."""
        return _answer_with("ready", list(self._hindrances()))

    def judge_liveness(self) -> ProbeAnswer:
        """Whether this process can do its work, as far as no store is needed for it."""
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
