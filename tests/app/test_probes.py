"""Probes of a worker in the caller's own process."""

from __future__ import annotations

import asyncio
import threading

import outlast
from outlast import probe
from tests.app import in_process_kit
from tests.app.in_process_kit import DEADLINE, until
from tests.unit.worker.worker_kit import heard_fields

app = in_process_kit.app


async def test_a_worker_in_process_answers_until_it_has_left(app: outlast.App) -> None:
    def ask(name: str) -> tuple[int, str]:
        return probe.ask("127.0.0.1", port, name, DEADLINE)

    with heard_fields() as told:
        async with app.worker(probe_port=0, probe_host="127.0.0.1"):
            (port,) = [fields["port"] for name, fields in told if name == "probes_answered"]

            async def is_ready() -> bool:
                return (await asyncio.to_thread(ask, "readyz"))[0] == 200

            await until(is_ready)
            assert await asyncio.to_thread(ask, "startupz") == (200, "started")
            assert await asyncio.to_thread(ask, "livez") == (200, "live")
    assert "outlast-probes" not in {thread.name for thread in threading.enumerate()}
