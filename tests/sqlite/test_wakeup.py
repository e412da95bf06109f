"""A worker on SQLite notices a commit: by an inotify event, else by looks at the file."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from outlast.base.clock import SYSTEM
from outlast.store.sqlite import wakeup as module
from outlast.store.sqlite.store import SqliteStore
from outlast.store.sqlite.wakeup import POLL_SECONDS, FileWatch, Pace, SqliteWakeup
from tests.conformance.kit import Hands, enqueued, eventually
from tests.unit.worker.worker_kit import heard_fields

linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
WRITES = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as connection:
    connection.execute("UPDATE outlast_sequences SET value = value + 1")
connection.close()
"""


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[tuple[SqliteWakeup, list[str]]]:
    """A wake-up that listens, and what it has said so far."""
    heard: list[str] = []
    wakeup = SqliteWakeup(url, SYSTEM)
    await wakeup.start(heard.append)
    try:
        await until(lambda: wakeup.health.good)
        yield wakeup, heard
    finally:
        await wakeup.close()
        await wakeup.close()
    assert not wakeup.health.good


@pytest.fixture
async def wakes(store: SqliteStore) -> AsyncIterator[list[str]]:
    async with listening(store.url) as (_, heard):
        yield heard


async def until(is_so: Callable[[], object]) -> None:
    async def look() -> object:
        return is_so()

    await eventually(look, seconds=60)


class OnlyByWord(Pace):
    """The second look comes with the kernel's first event, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.pause, self.ignores_events = 3600.0, False


async def test_an_exchange_that_finds_nothing_wakes_no_worker(
    store: SqliteStore, wakes: list[str]
) -> None:
    hands = await Hands.on(store)

    async def no_worker_is_woken() -> bool:  # the first looks may still find that registration
        wakes.clear()
        for _ in range(5):
            await hands.claim()
        await asyncio.sleep(5 * POLL_SECONDS)
        return not wakes

    await eventually(no_worker_is_woken, seconds=60)


@linux
async def test_commits_of_another_process_wake_after_all_others_have_left(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last to leave would delete the log, and the next one make a new file."""
    monkeypatch.setattr(module, "Pace", OnlyByWord)
    async with listening(store.url) as (wakeup, heard):
        assert str(wakeup.health) == "file"
        await store.close()
        for _ in range(2):  # each process that writes is the last to leave, too
            heard.clear()
            await asyncio.to_thread(write_elsewhere, store.path)
            await until(lambda: heard)


@linux
async def test_commits_to_a_file_behind_a_link_wake(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Pace", OnlyByWord)
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.db"
    link.symlink_to(store.path)
    async with listening(f"sqlite:///{link}") as (wakeup, heard):
        assert str(wakeup.health) == "file"
        await enqueued(store)
        await until(lambda: heard)


@linux
async def test_commits_wake_after_the_log_was_recreated(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await enqueued(store)
    monkeypatch.setattr(module, "Pace", OnlyByWord)
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        async with listening(store.url) as (_, heard):
            await enqueued(store)
            await until(lambda: heard)


@linux
async def test_a_file_system_without_events_is_polled_often(
    store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "silent").touch()
    follow = FileWatch.follow
    monkeypatch.setattr(FileWatch, "follow", lambda self, _: follow(self, tmp_path / "silent"))
    monkeypatch.setattr(module, "REST_SECONDS", POLL_SECONDS)
    async with listening(store.url) as (wakeup, heard):
        assert str(wakeup.health) == "file"

        async def noted() -> bool:  # the first commits may come before the looks are at rest
            await enqueued(store)
            return wakeup.health.note is not None

        await eventually(noted, seconds=60)
        assert str(wakeup.health).startswith("file; looks every 15 ms: ")
        await asyncio.sleep(5 * POLL_SECONDS)
        heard.clear()
        await enqueued(store)
        await until(lambda: heard)


@linux
async def test_without_an_inotify_instance_it_polls_often_and_says_why(store: SqliteStore) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    wakeup = SqliteWakeup(store.url, SYSTEM)
    heard: list[str] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        await wakeup.start(heard.append)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        await until(lambda: wakeup.health.good)
        assert "15 ms: [Errno 24] inotify_init1: Too many open files" in str(wakeup.health)
        await enqueued(store)
        await until(lambda: heard)
    finally:
        await wakeup.close()


async def test_a_failed_look_is_reported_and_looks_go_on(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread must not end unnoticed."""
    look, fails = module._version, [MemoryError()]

    def version(connection: sqlite3.Connection) -> int:
        if fails:
            raise fails.pop()
        return look(connection)

    monkeypatch.setattr(module, "REOPEN_SECONDS", 0.01)
    monkeypatch.setattr(module, "_version", version)
    with heard_fields() as events:
        async with listening(store.url) as (_, heard):
            await enqueued(store)
            await until(lambda: heard)
    assert [name for name, _ in events][:2] == ["wakeup_lost", "wakeup_ready"]


async def test_a_commit_while_the_file_cannot_be_looked_at_wakes_afterwards(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker polls rarely, since a wake-up in good health misses no commit."""
    look, fails = module._version, threading.Event()

    def version(connection: sqlite3.Connection) -> int:
        if fails.is_set():
            raise sqlite3.OperationalError("disk I/O error")
        return look(connection)

    monkeypatch.setattr(module, "REOPEN_SECONDS", 0.01)
    monkeypatch.setattr(module, "_version", version)
    async with listening(store.url) as (wakeup, heard):
        fails.set()
        await until(lambda: not wakeup.health.good)
        heard.clear()
        await asyncio.to_thread(write_elsewhere, store.path)
        fails.clear()
        await until(lambda: heard)


@linux
def test_a_watch_reports_each_write_once_and_can_be_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    watch = FileWatch()
    try:
        watch.follow(path)
        assert not watch.has_events()
        for _ in range(3):
            path.write_text("x")
        assert watch.has_events(60)
        assert not watch.has_events()
        watch.interrupt()
        assert not watch.has_events(3600)
        with pytest.raises(OSError, match="inotify_add_watch: No such file"):
            watch.follow(tmp_path / "nothing")
    finally:
        watch.close()


def write_elsewhere(path: Path) -> None:
    subprocess.run([sys.executable, "-c", WRITES, str(path)], check=True, timeout=60)
