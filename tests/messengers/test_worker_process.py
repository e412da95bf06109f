"""``outlast worker --wakeup``: a real worker with runners, woken by NATS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.nats_server import NatsServer
from harness.scene import ROOT
from outlast.model.job import State
from outlast.wakeup import open_messenger
from outlast.wakeup.notice import Notice
from tests.crash.kit import scene


async def test_a_worker_process_is_woken_and_its_runners_know_the_messenger(
    pg_url: str, nats_server: NatsServer, tmp_path: Path
) -> None:
    async with scene(pg_url, tmp_path) as stage:
        await stage.worker("--wakeup", nats_server.url, "--runners", "1")

        async def ready() -> bool:
            return any(row.wakeup == "nats" for row in await stage.worker_rows())

        await stage.until(ready, "a worker that NATS wakes")
        job_id = await stage.enqueue("noop")
        messenger = open_messenger(nats_server.url, pg_url, await stage.store.store_id())
        await messenger.start()
        assert await messenger.announce([Notice(job_id=job_id, queue="default", task="noop")])
        await messenger.close()
        assert (await stage.ended(job_id)).state is State.COMPLETED


@pytest.mark.slow_but("not the URL of a messenger")
@pytest.mark.parametrize(
    ("url", "wakeup", "said"),
    [
        ("postgresql://127.0.0.1:1/x", "nats://broker?replicas=many", "whole number"),
        ("postgresql://127.0.0.1:1/x", "kafka://broker", "not the URL of a messenger"),
        ("sqlite:///jobs.db", "nats://broker", "for jobs on a server"),
    ],
)
def test_a_wakeup_that_cannot_work_ends_the_worker_at_once(
    tmp_path: Path, url: str, wakeup: str, said: str
) -> None:
    command = [sys.executable, "-m", "outlast", "worker", "tests.crash.tasks:app", "--url", url]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        cwd=ROOT,
        env={**os.environ, "OUTLAST_WAKEUP": wakeup, "OUTLAST_TEST_JOURNAL": str(tmp_path / "j")},
    )
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert not (ROOT / "jobs.db").exists()
