"""A task in the worker's own process can unlock its lock file, at most until the next beat."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

import pytest

import outlast
from outlast.store import lockfile, open_store
from outlast.store.lockfile import Probe
from tests.crash.odd_ends import lock_files

DEADLINE = 30.0  # seconds until the test fails because it did not happen


async def test_a_lock_file_that_a_task_unlocks_is_locked_again(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_RUN_DIR", str(tmp_path / "run"))
    app, store = outlast.App(store_url), open_store(store_url)
    await store.open()

    @app.task
    async def unlocks() -> int:
        for fd in lock_files():
            fcntl.flock(fd, fcntl.LOCK_UN)
        return len(lock_files())

    async with app.worker(heartbeat=0.1, lease=30.0), asyncio.timeout(DEADLINE):
        assert await (await unlocks.enqueue()).result()
        (row,) = await store.inspector.workers()
        named = (row.lock_path, row.lock_device, row.lock_inode)
        assert os.stat(row.lock_path or "").st_ino == row.lock_inode
        while lockfile.probe(*named) is not Probe.HELD:
            await asyncio.sleep(0.01)
    await store.close()
    await app.close()
