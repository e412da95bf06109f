"""Probes of a real worker: its database is away, it drains, it is stopped, its tether is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

import outlast.runner.tether
from harness.proxy import proxied
from harness.scene import Scene, WorkerProcess
from outlast.probe import FINE, NO_ANSWER, NOT_WELL, ask

HASTY = ("--heartbeat", "0.25", "--lease", "4")  # it is not ready 3.2 s after its last beat
HERE = ("--probe-port", "0", "--probe-host", "127.0.0.1")
SECONDS = 30.0  # for an answer; a busy machine is slow
BEAT = 0.25  # between two looks at a worker whose database is away
AWAY_SECONDS = float(os.environ.get("OUTLAST_TEST_AWAY_SECONDS", "5"))


class Probed:
    """A worker, asked as a supervisor asks it."""

    def __init__(self, worker: WorkerProcess, port: int) -> None:
        self.worker = worker
        self.port = port

    async def ask(self, probe: str) -> tuple[int, str]:
        return await asyncio.to_thread(ask, "127.0.0.1", self.port, probe, SECONDS)

    async def run(self, probe: str, timeout: float = SECONDS) -> int:
        """Return the exit code of an exec probe."""
        command = [sys.executable, "-m", "outlast.probe", probe, "--port", str(self.port)]
        command += ["--timeout", str(timeout)]
        done = await asyncio.to_thread(
            subprocess.run, command, check=False, capture_output=True, timeout=90
        )
        return done.returncode

    async def says(self, probe: str, status: int) -> bool:
        return (await self.ask(probe))[0] == status


async def probed(stage: Scene, *options: str) -> Probed:
    worker = await stage.worker(*HERE, *options)
    told = await stage.told(worker, "probes_answered")
    return Probed(worker, told["port"])


async def test_while_the_database_is_away_a_worker_lives_and_is_not_ready(
    pg_stage: Scene,
) -> None:
    async with proxied(pg_stage.url) as (proxy, through):
        pg_stage.url = through
        one = await probed(pg_stage, *HASTY)
        lives = []

        async def is_ready() -> bool:
            lives.append(await one.ask("livez"))
            return await one.says("readyz", 200)

        async def is_not_ready() -> bool:
            lives.append(await one.ask("livez"))
            return await one.says("readyz", 503)

        assert await one.ask("startupz") == (200, "started")
        await pg_stage.until(is_ready, "a worker that is ready")
        proxy.hold()
        await pg_stage.until(is_not_ready, "a worker that is not ready")
        assert "its lease is not trusted: no heartbeat" in (await one.ask("readyz"))[1]
        for _ in range(round(AWAY_SECONDS / BEAT)):
            lives.append(await one.ask("livez"))
            assert await is_not_ready()
            await asyncio.sleep(BEAT)
        assert await one.says("startupz", 200)
        proxy.release()
        await proxy.cut()
        await pg_stage.until(is_ready, "a worker that is ready again")
        assert set(lives) == {(200, "live")}


async def test_a_draining_worker_is_not_ready_and_lives(sqlite_stage: Scene) -> None:
    one = await probed(sqlite_stage, "--drain-timeout", "60")
    await sqlite_stage.enqueue("counts")
    await sqlite_stage.started(1)
    assert [await one.run(probe) for probe in ("readyz", "livez")] == [FINE, FINE]
    one.worker.signal(signal.SIGTERM)
    await sqlite_stage.told(one.worker, "worker_draining")
    assert await one.ask("readyz") == (503, "not ready: it is draining")
    assert [await one.run(probe) for probe in ("readyz", "livez")] == [NOT_WELL, FINE]
    sqlite_stage.enough()


async def test_a_worker_that_is_stopped_gives_an_exec_probe_no_answer(
    sqlite_stage: Scene,
) -> None:
    one = await probed(sqlite_stage)
    await sqlite_stage.stop(one.worker.signal)
    assert await one.run("livez", timeout=0.5) == NO_ANSWER
    one.worker.signal(signal.SIGCONT)
    assert await one.run("livez") == FINE


async def test_a_worker_whose_tether_is_killed_starts_another_and_lives(
    sqlite_stage: Scene,
) -> None:
    one = await probed(sqlite_stage)
    (tether,) = [each for each in one.worker.tree() if is_tether(each)]
    tether.kill()
    await sqlite_stage.told(one.worker, "tether_restarted")
    assert await one.ask("livez") == (200, "live")


def is_tether(process: psutil.Process) -> bool:
    return str(Path(outlast.runner.tether.__file__)) in process.cmdline()
