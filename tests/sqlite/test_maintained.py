"""An administrator works on the file while workers run: VACUUM, REINDEX, a copy, a check."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from outlast.store.sqlite.store import SqliteStore
from outlast.store.values import Answer
from tests.conformance.kit import Hands, ended, enqueued, job

JOBS = 200
ROUNDS = 20  # of the administrator's work, while jobs are run


@pytest.mark.parametrize(
    "work",
    [
        "VACUUM",
        "REINDEX",
        "ANALYZE",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA integrity_check",
        "VACUUM INTO '{copy}'",
    ],
)
async def test_maintenance_of_the_file_loses_and_doubles_no_job(tmp_path: Path, work: str) -> None:
    url, copy = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "copy.db"
    stores = [SqliteStore(url) for _ in range(3)]
    for each in stores:
        await each.open()
    ids = await enqueued(stores[0], *[job(args=f"[{n}]") for n in range(JOBS)])
    rounds = 0

    def maintain() -> None:
        with closing(sqlite3.connect(tmp_path / "jobs.db", timeout=60, isolation_level=None)) as db:
            db.execute(work.format(copy=copy)).fetchall()
        copy.unlink(missing_ok=True)

    async def maintains() -> None:
        nonlocal rounds
        for _ in range(ROUNDS):
            await asyncio.to_thread(maintain)
            rounds += 1

    async def works(name: str, each: SqliteStore) -> list[int]:
        hands, done = await Hands.on(each, name), []
        while claimed := await hands.claim(4):
            assert (await each.heartbeat(hands.me)).renewed
            assert set(await hands.hand_in(*map(ended, claimed))) == {Answer.ACCEPTED}
            done += [one.job_id for one in claimed]
            if rounds < ROUNDS:  # there is work until the administrator has done his
                ids.extend(await enqueued(each, *[job()] * 4))
        return done

    maintaining = asyncio.create_task(maintains())
    done = await asyncio.gather(*(works(f"w{n}", each) for n, each in enumerate(stores)))
    await maintaining
    assert rounds == ROUNDS
    assert sorted(one for each in done for one in each) == sorted(ids)
    for each in stores:
        await each.close()


async def test_a_copy_made_while_workers_run_is_a_whole_store(tmp_path: Path) -> None:
    """As ``outlast migrate --after-restore`` would find it: no job twice, none missing."""
    store = SqliteStore(f"sqlite:///{tmp_path}/jobs.db")
    await store.open()
    ids = await enqueued(store, *[job(args=f"[{n}]") for n in range(JOBS)])
    hands = await Hands.on(store)
    held = await hands.claim(50)
    with (
        closing(sqlite3.connect(tmp_path / "jobs.db")) as file,
        closing(sqlite3.connect(tmp_path / "copy.db")) as copy,
    ):
        file.backup(copy)
    await hands.hand_in(*map(ended, held))
    await store.close()
    restored = SqliteStore(f"sqlite:///{tmp_path}/copy.db")
    await restored.open()
    counts = await restored.inspector.counts()
    assert sum(counts.values()) == len(ids)
    await restored.close()
