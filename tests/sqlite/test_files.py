"""Files that cannot be used, foreign locks, forks, and a connection of the caller's own."""

# ruff: noqa: ASYNC222  (these tests play with files and processes)

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from subprocess import PIPE
from unittest import mock

import pytest

import outlast
from outlast.errors import ConfigError, StoreCorrupt, StoreUnavailable
from outlast.model.job import State
from outlast.store import open_store
from outlast.store.backend import StoreOptions, resolve_url
from outlast.store.sqlite import connection as sqlite_connection
from outlast.store.sqlite import library
from outlast.store.sqlite.checks import SqliteFacts
from outlast.store.sqlite.store import SqliteStore
from outlast.store.sqlite.url import parse
from outlast.store.values import NewJob
from tests.cases import each_case
from tests.conformance.kit import Hands, enqueued, job, on
from tests.sqlite import files_kit

path = files_kit.path
url = files_kit.url
store = files_kit.store
foreign = files_kit.foreign


# --- a foreign lock


async def test_a_foreign_lock_is_reported_with_the_remedy(
    store: SqliteStore, foreign: sqlite3.Connection
) -> None:
    with pytest.raises(StoreUnavailable, match=r"stayed locked.*transaction"):
        await enqueued(store)
    foreign.execute("ROLLBACK")
    assert len(await enqueued(store)) == 1


async def test_the_process_that_holds_the_lock_is_named(store: SqliteStore, path: Path) -> None:
    assert store.find_writer() is None
    program = (
        "import sqlite3, sys; file = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "file.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE) as holder:  # noqa: ASYNC220
        assert holder.stdout is not None
        holder.stdout.readline()
        assert store.find_writer() == holder.pid
        with pytest.raises(StoreUnavailable, match=rf"locked by process {holder.pid} \(python"):
            await enqueued(store)
        facts = await store.inspector.environment()
        assert isinstance(facts, SqliteFacts)
        assert facts.writer == f"process {holder.pid} (python)"
        holder.communicate()
    assert len(await enqueued(store)) == 1


async def test_a_call_that_waits_for_a_lock_outlives_a_close(
    url: str, foreign: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may close the application, which opens again at its next call."""
    waiting, store = threading.Semaphore(0), SqliteStore(url)
    await store.open()

    class Pause:
        def wait(self, seconds: float) -> None:
            waiting.release()

    monkeypatch.setattr(sqlite_connection, "_PAUSE", Pause())
    call = asyncio.create_task(enqueued(store))
    await asyncio.to_thread(waiting.acquire, timeout=20)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    while waiting.acquire(blocking=False):
        pass
    waits = asyncio.create_task(asyncio.to_thread(waiting.acquire, timeout=20))
    await asyncio.wait({call, waits}, return_when=asyncio.FIRST_COMPLETED)
    waiting.release()
    foreign.execute("ROLLBACK")
    assert len(await call) == 1
    await asyncio.gather(closing, waits)


# --- files that cannot be used


async def test_open_returns_whether_it_created_the_file(url: str) -> None:
    for made in (True, False):
        store = SqliteStore(url)
        await store.open()
        assert store.created_file is made
        await store.close()
        await store.close()


async def test_a_missing_directory_is_reported(tmp_path: Path) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}/none/jobs.db")
    with pytest.raises(StoreUnavailable, match=r"directory .*none does not exist"):
        await store.open()
    await store.close()


async def test_a_directory_is_not_a_database(tmp_path: Path) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}")
    with pytest.raises(ConfigError, match="is a directory"):
        await store.open()
    await store.close()


async def test_a_file_that_is_not_a_database_is_reported_and_left_alone(
    path: Path, url: str
) -> None:
    path.write_text("this is a letter to my aunt, not a database at all\n" * 50)
    before = path.read_bytes()
    store = SqliteStore(url)
    with pytest.raises(StoreCorrupt, match="not a SQLite database"):
        await store.open()
    with pytest.raises(StoreCorrupt):
        await store.migrations()
    await store.close()
    assert path.read_bytes() == before


async def test_a_damaged_file_is_reported(path: Path, url: str) -> None:
    store = SqliteStore(url)
    await store.open()
    await enqueued(store, *[job(args="[" + "1," * 500 + "1]") for _ in range(100)])
    await store.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    with pytest.raises(StoreCorrupt, match="damaged"):
        await store.open()
        await store.inspector.counts()
    await store.close()


async def test_a_vanished_file_is_not_silently_created_again(
    path: Path, store: SqliteStore
) -> None:
    await store.drop_connections()
    path.unlink()
    with pytest.raises(StoreUnavailable, match="does not exist"):
        await enqueued(store)
    assert not path.exists()


async def test_reading_only_never_makes_or_writes(path: Path, url: str) -> None:
    store = SqliteStore(url, read_only=True)
    with pytest.raises(StoreUnavailable, match="does not exist"):
        await store.open()
    assert not path.exists()
    writer = SqliteStore(url)
    await writer.open()
    await enqueued(writer)
    await store.open()
    assert await store.inspector.counts() == {("default", State.QUEUED): 1}
    with pytest.raises(StoreUnavailable, match="read-only"):
        await enqueued(store)
    await store.close()
    await writer.close()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everything")
async def test_a_read_only_file_is_reported(path: Path, url: str) -> None:
    store = SqliteStore(url)
    await store.open()
    await store.close()
    path.chmod(0o444)
    with pytest.raises(StoreUnavailable, match="read-only"):
        await store.open()
    await store.close()


@each_case(
    ("bad", "said"),
    [
        ("sqlite://jobs.db", "sqlite:///jobs.db"),
        ("sqlite:///:memory:", "in memory"),
        ("sqlite:///", "names no file"),
        ("sqlite:////", "names no file"),
        ("sqlite:///\ud8ff", "names no file"),
        ("sqlite:///~no-such-user/x.db", "names the home of a user who does not exist"),
        ("sqlite:///a.db?cache=shared", "unsafe_filesystem=1"),
        ("mysql://h/d", "write sqlite:///jobs.db"),
        ("jobs.db", "write sqlite:///jobs.db"),
        ("", "write sqlite:///jobs.db"),
    ],
)
def test_a_wrong_url_is_refused_with_a_right_one(bad: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_store(bad)


def test_urls_may_be_relative_absolute_or_in_the_home_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    assert SqliteStore("sqlite:///a%20b.db").path == tmp_path / "a b.db"
    assert SqliteStore("sqlite:////var/x.db").path == Path("/var/x.db")
    assert SqliteStore("sqlite:///~/x.db").path == Path("/home/ada/x.db")


@pytest.mark.parametrize("given", ["sqlite:///jobs.db", None])
def test_a_program_that_changes_its_directory_stays_on_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    """Another event loop opens the store again, and so does a runner whose task changed folder."""
    monkeypatch.delenv("OUTLAST_URL", raising=False)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    app = outlast.App(given)
    mail = app.task(name="mail")(lambda: None)
    if given is None:  # which is resolved at first use
        mail.enqueue_sync()
    monkeypatch.chdir(elsewhere)
    jobs = [mail.enqueue_sync(), asyncio.run(mail.enqueue()), mail.enqueue_sync()]
    assert (len({job.id for job in jobs}), os.listdir(elsewhere)) == (3, [])


@pytest.mark.parametrize(
    "relative", ["a.db", "a%20b%3F%23.db", "c/../a.db?unsafe_filesystem=1", "%25.db", "\udcff.db"]
)
def test_a_resolved_url_names_the_same_file_from_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: str
) -> None:
    (odd := tmp_path / "100% of what?").mkdir()
    monkeypatch.chdir(odd)
    url = f"sqlite:///{relative}"
    there, resolved = parse(url), resolve_url(url)
    monkeypatch.chdir(tmp_path)
    assert parse(resolved) == there
    assert resolve_url(resolved) == resolved


def test_old_and_faulty_libraries_are_named() -> None:
    with pytest.raises(ConfigError, match=r"3\.36\.0 is too old"):
        library.check((3, 36, 0))
    assert "3.45.1" in library.check((3, 45, 1))[0]
    for mended in [(3, 44, 6), (3, 50, 7), (3, 51, 3), (3, 60, 0)]:
        assert library.check(mended) == []


# --- forks and threads


async def test_a_fork_leaves_parent_and_child_with_connections_of_their_own(
    store: SqliteStore,
) -> None:
    await enqueued(store)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        asyncio.events._set_running_loop(None)
        made = asyncio.new_event_loop().run_until_complete(store.enqueue([job()]))
        os.write(writer, str(made[0].job_id).encode())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reader, 20) == b"2"
    os.close(reader)
    os.close(writer)
    assert len(await enqueued(store)) == 1
    assert await store.inspector.counts() == {("default", State.QUEUED): 3}


async def test_a_store_that_becomes_garbage_closes_its_file(path: Path) -> None:
    """Before Python finds that it is open: it warns, since 3.13."""
    connection = sqlite_connection.SqliteConnection(path, StoreOptions())
    await connection.run(connection.create_now)
    circle: list[object] = [connection]
    circle.append(circle)
    connection.path = circle  # type: ignore[assignment]
    with mock.patch.object(sys, "unraisablehook", mock.Mock()) as warned:
        del connection, circle
        gc.collect()
    assert not warned.called


async def test_threads_that_fork_at_once_do_not_block_each_other(store: SqliteStore) -> None:
    """Each fork releases the connections that it locked; else the next call would wait forever."""

    def forks() -> None:
        for _ in range(200):
            sqlite_connection._before_fork()
            sqlite_connection._after_fork_in_parent()

    threads = [threading.Thread(target=forks, daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join, 60)
    assert not any(thread.is_alive() for thread in threads)
    async with asyncio.timeout(25):
        await enqueued(store)


# --- a connection of the caller's own


@pytest.mark.parametrize("isolation_level", [None, "", "DEFERRED", "IMMEDIATE"])
@pytest.mark.parametrize("text_factory", [str, bytes])
async def test_jobs_are_enqueued_and_completed_in_the_callers_transaction(
    store: SqliteStore, path: Path, isolation_level: str | None, text_factory: type
) -> None:
    hands = await Hands.on(store)
    await enqueued(store)
    claimed = await hands.claim_one()
    with contextlib.closing(
        sqlite3.connect(path, isolation_level=isolation_level)  # type: ignore[arg-type]
    ) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = text_factory
        caller = on(connection)
        assert await caller.store_id() == await store.store_id()
        for end in ("ROLLBACK", "COMMIT"):
            if isolation_level is None:
                connection.execute("BEGIN")
            made = await caller.enqueue([NewJob(task="t", key="k"), NewJob(task="t")])
            again = await caller.enqueue([NewJob(task="t", key="k")])
            assert [one.created for one in made + again] == [True, True, False]
            assert await caller.complete(claimed.job_id, claimed.token, "1")
            assert not await caller.complete(claimed.job_id, claimed.token + 1, "1")
            assert connection.in_transaction
            connection.execute(end)
            counts = await store.inspector.counts()
            if end == "ROLLBACK":
                assert counts == {("default", State.RUNNING): 1}
    assert counts == {("default", State.COMPLETED): 1, ("default", State.QUEUED): 2}
