"""The server of probes: what it answers, also to clients that are slow, large or many."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from outlast import probe
from outlast.config import WorkerSettings
from outlast.errors import ConfigError
from outlast.worker.probes import server
from outlast.worker.probes.server import CONNECTIONS_MAX, REQUEST_BYTES, open_probes
from outlast.worker.probes.vitals import STUCK_SECONDS, Vitals
from tests.manual_clock import ManualClock
from tests.unit.worker.worker_kit import heard_fields

DEADLINE = 30.0


def port_of(events: list[tuple[str, dict[str, Any]]]) -> int:
    (port,) = [int(fields["port"]) for name, fields in events if name == "probes_answered"]
    return port


class Stage:
    """A server whose worker is not there yet, and a port of this machine."""

    def __init__(self, vitals: Vitals, port: int) -> None:
        self.vitals = vitals
        self.port = port

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def say(self, request: bytes) -> tuple[int, dict[str, str], str]:
        """Send a request; return status, headers and body of the answer."""
        reader, writer = await self.connect()
        async with asyncio.timeout(DEADLINE):
            writer.write(request)
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.transport.abort()
        first, *lines = head.split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        return int(first.split(" ")[1]), headers, body

    async def get(self, path: str) -> tuple[int, str]:
        status, _, body = await self.say(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        return status, body


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    settings = WorkerSettings(probe_port=0, probe_host="127.0.0.1")
    with heard_fields() as events:
        async with open_probes(settings, ManualClock()) as vitals:
            yield Stage(vitals, port_of(events))


async def test_each_probe_has_its_path(stage: Stage) -> None:
    assert await stage.get("/livez") == (200, "live\n")
    assert await stage.get("/readyz") == (503, "not ready: it has not registered yet\n")
    assert await stage.get("/startupz") == (503, "not started: no runner is ready yet\n")
    assert await stage.get("/") == (404, "there are /startupz, /readyz, /livez\n")


async def test_an_answer_is_a_short_text_that_no_cache_keeps(stage: Stage) -> None:
    status, headers, body = await stage.say(b"GET /livez?verbose HTTP/1.0\r\n\r\n")
    assert (status, body) == (200, "live\n")
    assert headers["Content-Length"] == str(len(body))
    assert headers["Cache-Control"] == "no-store"
    assert headers["Connection"] == "close"
    status, _, body = await stage.say(b"HEAD /livez HTTP/1.1\r\n\r\n")
    assert (status, body) == (200, "")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /livez HTTP/1.1\r\n\r\n", 405),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET /livez\r\n\r\n", 400),
        (b"GET  HTTP/1.1\r\n\r\n", 404),
        (b"\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nX: " + b"x" * REQUEST_BYTES, 431),
    ],
)
async def test_what_is_no_request_is_refused(stage: Stage, request_: bytes, status: int) -> None:
    assert (await stage.say(request_))[0] == status
    assert (await stage.get("/livez"))[0] == 200


async def test_a_request_may_come_in_pieces(stage: Stage) -> None:
    reader, writer = await stage.connect()
    for piece in (b"GET /li", b"vez HTTP/1.1\r\n", b"\r", b"\n"):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    async with asyncio.timeout(DEADLINE):
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.transport.abort()


async def test_clients_that_say_nothing_keep_no_other_from_its_answer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 3_600.0)  # they are not cut for their silence
    mute = [await stage.connect() for _ in range(CONNECTIONS_MAX + 8)]
    assert (await stage.get("/livez"))[0] == 200
    async with asyncio.timeout(DEADLINE):
        for reader, _ in mute[:8]:  # the oldest had to go
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
    for _, writer in mute:
        writer.transport.abort()


async def test_a_client_that_says_nothing_is_cut(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.05)
    reader, writer = await stage.connect()
    writer.write(b"GET /livez HTT")
    async with asyncio.timeout(DEADLINE):
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.transport.abort()


async def test_a_stuck_loop_is_told_while_it_is_stuck(stage: Stage) -> None:
    def ask() -> tuple[int, str]:
        return probe.ask("127.0.0.1", stage.port, "livez", DEADLINE)

    with heard_fields() as events:
        for _ in range(int(STUCK_SECONDS) + 2):  # this test is what holds the loop up
            stage.vitals.look(1.0)
        assert ask() == (503, "not live: the event loop has not turned for 31 s")
        assert ask()[0] == 503
        await asyncio.sleep(0)
        assert await asyncio.to_thread(ask) == (200, "live")
    reason = {"reason": "not live: the event loop has not turned for 31 s"}
    assert events == [("liveness_failed", reason)], "reported once"


async def test_a_port_that_is_taken_is_refused_by_name(stage: Stage) -> None:
    settings = WorkerSettings(probe_port=stage.port, probe_host="127.0.0.1")
    with pytest.raises(
        ConfigError, match=f"probe_port 127.0.0.1:{stage.port} cannot be used: Addr"
    ):
        async with open_probes(settings, ManualClock()):
            pass


async def test_an_address_that_is_not_there_is_refused() -> None:
    settings = WorkerSettings(probe_port=0, probe_host="192.0.2.1")
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1:0 cannot be used"):
        async with open_probes(settings, ManualClock()):
            pass


async def test_without_an_address_it_answers_on_all_until_it_is_closed() -> None:
    with heard_fields() as events:
        async with open_probes(WorkerSettings(probe_port=0), ManualClock()) as vitals:
            port = port_of(events)
            assert await Stage(vitals, port).get("/livez") == (200, "live\n")
    assert "outlast-probes" not in {thread.name for thread in threading.enumerate()}


async def test_without_a_port_there_is_no_server() -> None:
    with heard_fields() as events:
        async with open_probes(WorkerSettings(), ManualClock()):
            assert not events
