"""The server of probes: what it answers, also while the loop of the worker is stuck."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from outlast import probe
from outlast.base.config import WorkerSettings
from outlast.errors import ConfigError
from outlast.worker.probes import STUCK_SECONDS, Vitals, open_probes
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

    def ask(self, path: str) -> tuple[int, str]:
        return probe.ask("127.0.0.1", self.port, path, DEADLINE)

    async def get(self, path: str) -> tuple[int, str]:
        return await asyncio.to_thread(self.ask, path)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    settings = WorkerSettings(probe_port=0, probe_host="127.0.0.1")
    with heard_fields() as events:
        async with open_probes(settings, ManualClock()) as vitals:
            yield Stage(vitals, port_of(events))


async def test_each_probe_has_its_path(stage: Stage) -> None:
    assert await stage.get("livez") == (200, "live")
    assert await stage.get("readyz") == (503, "not ready: it has not registered yet")
    assert await stage.get("startupz") == (503, "not started: no runner is ready yet")
    assert await stage.get("") == (404, "the probes are /startupz, /readyz, /livez")


async def test_a_probe_may_use_any_name(stage: Stage) -> None:
    async with httpx.AsyncClient(timeout=DEADLINE) as client:
        place = f"http://127.0.0.1:{stage.port}/livez"
        assert (await client.get(place, headers={"Host": "worker.example"})).text == "live\n"


async def test_a_stuck_loop_is_told_while_it_is_stuck(stage: Stage) -> None:
    with heard_fields() as events:
        for _ in range(int(STUCK_SECONDS) + 2):  # this test is what holds the loop up
            stage.vitals.look(1.0)
        assert stage.ask("livez") == (503, "not live: the event loop has not turned for 31 s")
        assert stage.ask("livez")[0] == 503
        await asyncio.sleep(0)
        assert await stage.get("livez") == (200, "live")
    reason = {"reason": "not live: the event loop has not turned for 31 s"}
    assert events == [("liveness_failed", reason)], "reported once"


async def test_a_port_that_is_taken_is_refused_by_name(stage: Stage) -> None:
    settings = WorkerSettings(probe_port=stage.port, probe_host="127.0.0.1")
    with pytest.raises(
        ConfigError,
        match=f"probe_port 127.0.0.1:{stage.port} cannot be used: Address .*; choose another port",
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
            assert await Stage(vitals, port).get("livez") == (200, "live")
    assert "outlast-probes" not in {thread.name for thread in threading.enumerate()}


async def test_without_a_port_there_is_no_server() -> None:
    with heard_fields() as events:
        async with open_probes(WorkerSettings(), ManualClock()):
            assert not events
