"""Answers probes over HTTP, on a separate thread and loop: even while the worker's loop is stuck.

Any client that reaches the port may ask, under any host name, and gets one line about the health of
this worker. A restart would not repair an outage of the database, but cost the worker's attempts:
so ``livez`` only says whether this process can still do its work, and ``readyz`` whether it would
take a job now.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple

from outlast.base.clock import Clock
from outlast.base.config import WorkerSettings
from outlast.base.http_server import Response, listen, make_response, serving
from outlast.events import emit
from outlast.worker.worker import Worker

CLOSE_SECONDS = 5.0
STUCK_SECONDS = 30.0  # without a turn: then a loop counts as stuck
TICK_SECONDS = 1.0  # between two checks of the loops
TICKS_COUNTED = 2.0  # of a longer pause: the loops were held up together with this thread


class ProbeAnswer(NamedTuple):
    """The answer to one probe, with a text for people."""

    is_well: bool
    text: str


class TurnWatch:
    """Checks whether a loop turns, by asking it, through ``ask``, to run a call again and again.
    Time counts as it passes for the checking thread, which a suspended machine stops as well."""

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
        """Judge no worker: it sleeps, which is not a fault."""
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
            yield f"its lease is not trusted: no heartbeat was answered for {silent:.0f} s"
        if not worker.pool.is_ready:
            yield "no runner is ready"


def _answer_with(word: str, faults: list[str]) -> ProbeAnswer:
    return ProbeAnswer(not faults, f"not {word}: {'; '.join(faults)}" if faults else word)


class ProbeServer:
    """Answers on a listening socket, which it closes at the end."""

    def __init__(self, listening: socket.socket, vitals: Vitals, clock: Clock) -> None:
        self._socket = listening
        self._clock = clock
        self._vitals = vitals
        self._probes: dict[str, Callable[[], ProbeAnswer]] = {
            "/startupz": vitals.judge_startup,
            "/readyz": vitals.judge_readiness,
            "/livez": vitals.judge_liveness,
        }
        self._was_live = True
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()
        self._started = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="outlast-probes", daemon=True
        )

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()
        self._started.wait(CLOSE_SECONDS)

    async def close(self) -> None:
        """Stop answering."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._stopped.set)
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with serving(self._socket, self._answer):
            self._started.set()
            looking = asyncio.create_task(self._look_again_and_again())
            await self._stopped.wait()
            looking.cancel()
            await asyncio.wait([looking])

    async def _look_again_and_again(self) -> None:
        before = self._clock.boot()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = self._clock.boot()
            self._vitals.look(now - before)
            before = now

    async def _answer(self, path: str) -> Response:
        judge = self._probes.get(path)
        if judge is None:
            return make_response(404, f"the probes are {', '.join(self._probes)}")
        health = judge()
        if path == "/livez":
            if self._was_live and not health.is_well:
                emit("liveness_failed", reason=health.text)
            self._was_live = health.is_well
        return make_response(200 if health.is_well else 503, health.text)


@contextlib.asynccontextmanager
async def open_probes(settings: WorkerSettings, clock: Clock) -> AsyncIterator[Vitals]:
    """Answer probes for the length of a block, if the settings name a port; yield the vitals.
    Raises ConfigError if the port cannot be used."""
    vitals = Vitals(clock)
    if settings.probe_port is None:
        yield vitals
        return
    listening = listen(settings.probe_host, settings.probe_port, "probe_port")
    server = ProbeServer(listening, vitals, clock)
    server.start()
    emit("probes_answered", port=listening.getsockname()[1])
    try:
        yield vitals
    finally:
        await server.close()
