"""The only worker was killed: every command that reads says so at once."""

from __future__ import annotations

import asyncio
import functools
import json
import sqlite3
from pathlib import Path

import pytest

from outlast.store.lockfile import LockFile, boot_id, directory_for
from outlast.store.values import ClaimRequest, NewWorker
from tests.cli.conftest import Outlast
from tests.cli.rows import opened
from tests.conformance.kit import job


async def _claims(url: str, lock: LockFile) -> None:
    """Be a worker that has claimed a job, with this lock file."""
    async with opened(url) as store:
        await store.enqueue([job(task="mail")])
        new = NewWorker(
            name="victim",
            host="h",
            pid=7,
            boot_id=boot_id(),
            heartbeat=2.0,
            lease=60.0,
            tasks=["mail"],
            lock_path=str(lock.path),
            lock_device=lock.device,
            lock_inode=lock.inode,
        )
        me = await store.register(new)
        assert (await store.exchange(me, [], [ClaimRequest(["mail"], 1)])).claimed


def locks_of(store_url: str, tmp_path: Path) -> Path:
    """Return where the commands look for the lock files of this store."""
    if store_url.startswith("sqlite:"):
        return directory_for(Path(store_url.removeprefix("sqlite:///")))
    return tmp_path / "run"


@pytest.fixture
def outlast(outlast: Outlast, tmp_path: Path) -> Outlast:
    """Run commands whose lock files are the test's own."""
    return functools.partial(outlast, OUTLAST_RUN_DIR=str(tmp_path / "run"))


@pytest.fixture
def killed(store_url: str, tmp_path: Path) -> str:
    """A store whose only worker was killed a moment ago: its lock file is there, and free."""
    lock = LockFile.create(locks_of(store_url, tmp_path), "victim")
    asyncio.run(_claims(store_url, lock))
    lock.release(unlink=False)
    return store_url


def test_each_command_says_that_the_worker_is_dead(outlast: Outlast, killed: str) -> None:
    url = ("--url", killed)
    workers = outlast("workers", *url).out
    assert "victim  dead" in workers
    assert (
        "victim is dead: its lock file is free; no worker is alive to return its 1 job" in workers
    )
    assert workers.endswith("\n1 active (of these 1 dead)\n")
    (row,) = outlast("workers", *url, "--json").json()["workers"]
    assert (row["status"], row["health"]) == ("active", "dead")
    jobs = outlast("jobs", *url).out
    assert "orphaned" in jobs
    assert "1 job is marked as running, but nothing runs it: `outlast why 1`" in jobs
    (shown,) = outlast("jobs", *url, "--json").json()["jobs"]
    assert (shown["state"], shown["phase"]) == ("running", "orphaned")
    one = outlast("job", 1, *url).out
    assert (
        "that worker is dead (its lock file on this machine is free): the job is an orphan" in one
    )
    assert "next        Any live worker returns it to the queue. No worker is alive" in one
    assert outlast("job", 1, *url, "--json").json()["phase"] == "orphaned"
    why = outlast("why", 1, *url).out
    assert "job 1: orphaned" in why
    assert "that worker is dead (its lock file on this machine is free)" in why
    assert "No worker is alive: start one" in why
    stats = outlast("stats", *url, "--json").json()
    assert stats["ill"] == {"dead": 1, "silent": 0, "failing": 0, "running": 1}
    assert "orphans    1 of the running jobs" in outlast("stats", *url).out
    found = {f["name"]: f for f in json.loads(outlast("doctor", *url, "--json").out)["findings"]}
    assert found["workers"]["level"] == "problem"
    assert "Start a worker" in found["dead_workers"]["fix"]


def test_a_worker_whose_lock_is_held_is_well(
    outlast: Outlast, store_url: str, tmp_path: Path
) -> None:
    lock = LockFile.create(locks_of(store_url, tmp_path), "victim")
    asyncio.run(_claims(store_url, lock))
    (row,) = outlast("workers", "--url", store_url, "--json").json()["workers"]
    assert row["health"] == "well"
    (shown,) = outlast("jobs", "--url", store_url, "--json").json()["jobs"]
    assert shown["phase"] == "running"
    lock.release()


def test_a_worker_past_its_lease_is_presumably_lost(
    outlast: Outlast, sqlite_url: str, tmp_path: Path
) -> None:
    lock = LockFile.create(locks_of(sqlite_url, tmp_path), "victim")
    asyncio.run(_claims(sqlite_url, lock))
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as file:
        file.execute("UPDATE outlast_workers SET heartbeat_at = heartbeat_at - 120, boot_id = 'b'")
    file.close()
    said = outlast("workers", "--url", sqlite_url).out
    assert "victim has been silent for 2 min" in said
    assert "and is presumably lost; no worker is alive" in said
    (shown,) = outlast("jobs", "--url", sqlite_url, "--json").json()["jobs"]
    assert shown["phase"] == "silent"
    assert "job 1: silent" in outlast("why", 1, "--url", sqlite_url).out
    lock.release()
