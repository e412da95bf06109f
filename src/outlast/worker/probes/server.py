"""Answers probes over HTTP, on a separate thread and loop: also while the worker's loop is stuck.

Any client that reaches the port may ask, under any host name, and gets one line about the health of
this worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable

from outlast.base.clock import Clock
from outlast.base.config import WorkerSettings
from outlast.base.http_server import Response, listen, make_response, serving
from outlast.errors import ConfigError
from outlast.events import emit
from outlast.worker.probes.vitals import TICK_SECONDS, ProbeAnswer, Vitals

CLOSE_SECONDS = 5.0


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
            return make_response(404, f"there are {', '.join(self._probes)}")
        health = judge()
        if path == "/livez":
            if self._was_live and not health.is_well:
                emit("liveness_failed", reason=health.text)
            self._was_live = health.is_well
        return make_response(200 if health.is_well else 503, health.text)


@contextlib.asynccontextmanager
async def open_probes(settings: WorkerSettings, clock: Clock) -> AsyncIterator[Vitals]:
    """Answer probes for the length of a block, if the settings name a port; yield the vitals.

    Raises ConfigError if the port cannot be used.
    """
    vitals = Vitals(clock)
    if settings.probe_port is None:
        yield vitals
        return
    host, port = settings.probe_host, settings.probe_port
    try:
        listening = listen(host, port)
    except OSError as error:
        why = error.strerror or type(error).__name__
        where = port if host is None else f"{host}:{port}"
        raise ConfigError(f"probe_port {where} cannot be used: {why}") from error
    server = ProbeServer(listening, vitals, clock)
    server.start()
    emit("probes_answered", port=listening.getsockname()[1])
    try:
        yield vitals
    finally:
        await server.close()
