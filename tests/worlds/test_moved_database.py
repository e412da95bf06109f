"""A database that has moved: rows without the numbers of their server, and a renamed schema.

The old server is Debian's PostgreSQL, the new one the wheel's, which is newer.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import outlast
from harness.scene import ROOT
from harness.servers import PostgresServer
from outlast.insight.verify import verify
from outlast.store.postgres.checks import PostgresFacts
from outlast.store.postgres.store import PostgresStore

pytestmark = [pytest.mark.timeout(300), pytest.mark.debian_postgres]
PAGE = (ROOT / "docs" / "backups.md").read_text()
WITHIN = 60.0  # seconds
COPIED = """
SELECT relname FROM pg_class
WHERE relkind = 'r' AND relpersistence = 'p' AND relname LIKE 'outlast\\_%'
  AND relname <> 'outlast_schema'"""
COPY = """psql "$OLD_URL" -c "COPY {0} TO STDOUT" | psql "$NEW_URL" -c "COPY {0} FROM STDIN" """
FAMILIAR = (
    "INSERT INTO outlast_tasks (name, limits, fair, priority) VALUES ('ship', '[]', false, 0)"
)
PRODUCE = "SELECT shop.outlast_enqueue_v1('ship')"


class Side:
    """A store, and a program that works on it."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self.server, self.database = server, database
        self.url = server.create_database(database)
        self.app = outlast.App(self.url)
        self.store = PostgresStore(self.url)
        self.ran: list[str] = []
        self.note = self.app.task(name="note")(self._note)

    async def _note(self, name: str) -> None:
        self.ran.append(name)

    async def enqueue(self, *names: str) -> None:
        for name in names:
            await self.note.enqueue(name)

    async def work(self) -> list[str]:
        """Let a worker run all that waits, one job after the other; return the names."""
        self.ran.clear()
        waits = "SELECT count(*) FROM outlast_jobs WHERE state IN ('queued', 'running')"
        async with self.app.worker(concurrency=1):
            await self.until(waits, "0")
        return self.ran

    async def until(self, query: str, answer: str) -> None:
        async with asyncio.timeout(WITHIN):
            while await self.sql(query) != answer:
                await asyncio.sleep(0.05)

    async def sql(self, statement: str) -> str:
        return await asyncio.to_thread(self.server.sql, statement, self.database)

    async def facts(self) -> PostgresFacts:
        found = await self.store.inspector.environment()
        assert isinstance(found, PostgresFacts)
        return found

    async def close(self) -> None:
        await self.store.close()
        await self.app.close()
        await asyncio.to_thread(self.server.drop_database, self.database)


class Move:
    """A store on the old server, in which jobs have ended and two wait, and the new server."""

    def __init__(self, servers: tuple[PostgresServer, PostgresServer], folder: Path) -> None:
        self.folder = folder
        self.old, self.new = (Side(each, "moves") for each in servers)
        (folder / "outlast").write_text(f'#!/bin/sh\nexec {sys.executable} -m outlast "$@"\n')
        (folder / "outlast").chmod(0o755)

    async def run(self, commands: str) -> None:
        """Run commands of the page in a shell."""
        path = f"{self.folder}:{self.new.server.bin}:{os.environ['PATH']}"
        urls = {"OLD_URL": self.old.url, "NEW_URL": self.new.url}
        done = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-eu", "-o", "pipefail", "-c", commands],
            env={**os.environ, "PATH": path, **urls},
            check=False, cwd=self.folder, capture_output=True, text=True, timeout=WITHIN,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    async def copy_rows(self) -> None:
        """Copy the rows of all tables but the schema's own, as a migration service does."""
        await self.new.store.open()
        tables = (await self.old.sql(COPIED)).split()
        await self.run("\n".join(COPY.format(table) for table in tables))

    async def goes_on(self) -> None:
        """What comes after the move runs after what waited; what operators do works, too."""
        await self.new.enqueue("new-1", "new-2")
        assert await self.new.work() == ["old-1", "old-2", "new-1", "new-2"]
        job = await self.new.note.using(delay=3600, key="k").enqueue("never")
        await self.new.app.cancel(job.id)
        await self.new.app.pause(everything=True)
        assert not (await verify(self.new.store.inspector)).findings
        assert not (await self.new.facts()).behind


@pytest.fixture(scope="module")
def servers(older_binaries: Path) -> Iterator[tuple[PostgresServer, PostgresServer]]:
    logical = {"wal_level": "logical"}
    with PostgresServer(logical, binaries=older_binaries) as old, PostgresServer() as new:
        yield old, new


@pytest.fixture
async def moving(
    servers: tuple[PostgresServer, PostgresServer], tmp_path: Path
) -> AsyncIterator[Move]:
    move = Move(servers, tmp_path)
    await move.old.enqueue("first", "second", "third")
    assert await move.old.work() == ["first", "second", "third"]
    await move.old.enqueue("old-1", "old-2")
    yield move
    await move.old.close()
    await move.new.close()


async def test_a_store_moves_by_logical_replication_as_the_page_says(moving: Move) -> None:
    section = PAGE.partition("\n## Move to another server\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    prepares, looks, cuts_over = block.split("\n\n")
    await moving.run(prepares)
    await moving.new.until("SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'", "0")
    await moving.run(looks)
    late = await moving.old.note.enqueue("late")  # while the rows follow
    await moving.old.app.cancel(late.id)
    await moving.new.until(f"SELECT state FROM outlast_jobs WHERE id = {late.id}", "cancelled")
    await moving.run(cuts_over)
    await moving.goes_on()


@pytest.mark.parametrize("step", ["worker", "command"])
async def test_after_rows_were_copied_a_worker_or_the_command_raises_the_numbers(
    moving: Move, step: str
) -> None:
    await moving.copy_rows()
    assert "outlast_jobs_id_seq" in (await moving.new.facts()).behind
    if step == "command":
        await moving.run('outlast migrate --after-restore --url "$NEW_URL"')
    else:
        async with moving.new.app.worker(queues=["none"]):
            pass
    await moving.goes_on()


async def test_an_operator_has_set_the_sequences_that_errors_named(moving: Move) -> None:
    """Those of positions, turns, actions and pauses lag, in a home that is known already."""
    await moving.old.sql("UPDATE outlast_jobs SET position = position + 1000 WHERE position > 0")
    await moving.copy_rows()
    async with moving.new.app.worker(queues=["none"]):
        pass
    for sequence in ("position", "turn", "actions_id", "pauses_id", "refusals_id"):
        await moving.new.sql(f"ALTER SEQUENCE outlast_{sequence}_seq RESTART")
    async with moving.new.app.worker(queues=["none"]):
        pass
    await moving.goes_on()


async def test_a_schema_is_renamed_under_a_producer(moving: Move) -> None:
    """As blue and green: the next one gets the name that the first one had."""
    new = moving.new

    async def migrate(schema: str) -> dict[str, list[str]]:
        store = PostgresStore(f"{new.url}?options=-csearch_path%3D{schema}")
        await store.migrate()
        facts = await store.inspector.environment()
        await store.close()
        assert isinstance(facts, PostgresFacts)
        return facts.misled

    await new.sql("CREATE SCHEMA blue")
    assert await migrate("blue") == {}
    await new.sql(f"SET search_path = blue; {FAMILIAR}")
    await new.sql("ALTER SCHEMA blue RENAME TO shop")
    with pytest.raises(RuntimeError, match="outlast_jobs"):
        await new.sql(PRODUCE)
    place = '--url "$NEW_URL?options=-csearch_path%3Dshop"'
    done = "applied 0000 functions as they were made"
    await moving.run(f"! outlast migrate --check {place}; outlast migrate {place} | grep '{done}'")
    await moving.run(f"outlast migrate --check {place}; outlast migrate {place} | grep nothing")
    assert await migrate("shop") == {}
    await new.sql("CREATE SCHEMA blue")
    await migrate("blue")
    assert await new.sql(PRODUCE) == "1"
    counts = "SELECT (SELECT count(*) FROM shop.outlast_jobs), count(*) FROM blue.outlast_jobs"
    assert await new.sql(counts) == "1|0"
