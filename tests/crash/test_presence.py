"""Presence with real workers: it finds dead ones from any host, and reaps no live one."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from harness.pgbouncer import PgBouncerServer
from harness.scene import Scene, WorkerProcess
from harness.servers import PostgresServer
from outlast.model.job import State
from outlast.model.lease import DeathCause
from outlast.store.rows import WorkerStatus
from tests.crash.kit import goes_on, row_of, scene
from tests.postgres.test_presence import RESTARTS

HELD = """
SELECT count(*) FROM outlast_workers w, pg_locks l, outlast_schema s
WHERE s.number = 1 AND w.status = 'active'
  AND starts_with(w.presence, outlast_incarnation_v1() || '/')
  AND l.locktype = 'advisory' AND l.granted
  AND (l.classid::bigint << 32) | l.objid::bigint =
    outlast_presence_key_v1(s.store_id, w.id, w.registration)
"""
SESSIONS = """
SELECT pid FROM pg_stat_activity
WHERE application_name = 'outlast presence' AND datname = current_database()
"""
END_PRESENCE = f"SELECT pid, pg_terminate_backend(pid) FROM ({SESSIONS}) AS presence"


async def elsewhere(stage: Scene, name: str, *options: str) -> WorkerProcess:
    """A worker as on a host of its own: no other worker sees its lock file."""
    before = set(stage.lock_files())
    run_dir = {"OUTLAST_RUN_DIR": str(stage.folder / name)}
    worker = await stage.worker(*options, env=run_dir)
    for lock in set(stage.lock_files()) - before:
        lock.unlink()
    return worker


async def held(stage: Scene, url: str, count: int) -> None:
    """Wait until ``count`` active workers hold their presence under the present incarnation."""

    async def all_hold() -> bool:
        try:
            connection = await asyncpg.connect(url)
        except (OSError, asyncpg.PostgresError):
            return False
        try:
            return bool(await connection.fetchval(HELD) == count)
        finally:
            await connection.close()

    await stage.until(all_hold, f"the presence of {count} workers")


async def beats(stage: Scene, worker: WorkerProcess, times: int) -> None:
    """Wait until the worker was seen to beat ``times`` times."""
    registered = await stage.told(worker, "worker_registered")
    seen: set[int] = set()

    async def beaten() -> bool:
        rows = await stage.worker_rows()  # none while this looks for the database, too
        seen.update(row.beat for row in rows if row.id == registered["worker_id"])
        return len(seen) > times

    await stage.until(beaten, f"{times} beats")


def no_live_worker_was_reaped(stage: Scene) -> bool:
    return not any(worker.told("worker_reaped") for worker in stage.workers)


# ---------------------------------------------------------------------------- the dead


@pytest.mark.short("presence")
async def test_a_tree_killed_on_another_host_is_found_by_its_presence(pg_stage: Scene) -> None:
    dead = await elsewhere(pg_stage, "one")
    job = await pg_stage.enqueue("first_hangs_in_python")
    await pg_stage.started(1)
    await held(pg_stage, pg_stage.url, 1)
    await elsewhere(pg_stage, "two")
    dead.kill_tree()
    second = await pg_stage.started(2)
    assert second["still_alive"] == []
    row = await row_of(pg_stage, dead)
    assert (row.status, row.cause) == (WorkerStatus.LOST, DeathCause.PRESENCE)
    (closed,) = await pg_stage.attempts(job)
    assert DeathCause.PRESENCE.sentence in closed.message


async def test_a_worker_without_presence_is_left_to_its_lease(pg_stage: Scene) -> None:
    short = ("--heartbeat", "1", "--lease", "3")
    dead = await elsewhere(pg_stage, "one", *short, "--no-presence")
    await pg_stage.enqueue("first_hangs")
    await pg_stage.started(1)

    async def said() -> bool:
        return (await row_of(pg_stage, dead)).presence_off is not None

    await pg_stage.until(said, "the reason on the row")
    await elsewhere(pg_stage, "two")
    dead.kill_tree()
    await pg_stage.started(2)
    assert (await row_of(pg_stage, dead)).cause == DeathCause.SILENCE


async def test_a_worker_that_leaves_is_not_taken_for_dead(pg_stage: Scene) -> None:
    leaver, other = await elsewhere(pg_stage, "one"), await elsewhere(pg_stage, "two")
    await held(pg_stage, pg_stage.url, 2)
    await leaver.left(signal.SIGTERM)
    row = await row_of(pg_stage, leaver)
    assert (row.status, row.cause) == (WorkerStatus.STOPPED, None)
    assert not other.told("worker_reaped")


# --------------------------------------------------------------------------- the living


async def test_a_presence_session_that_is_cut_repeatedly_is_retaken_without_loss(
    pg_stage: Scene,
) -> None:
    for name in ("one", "two"):
        await elsewhere(pg_stage, name)
    job = await pg_stage.enqueue("counts")
    await pg_stage.started(1)
    hangman = await asyncpg.connect(pg_stage.url)
    for _ in range(5):
        await held(pg_stage, pg_stage.url, 2)
        ended = {row["pid"] for row in await hangman.fetch(END_PRESENCE)}
        assert len(ended) == 2

        async def gone(ended: set[int] = ended) -> bool:
            rows = await hangman.fetch(SESSIONS)
            return not ended & {row["pid"] for row in rows}

        await pg_stage.until(gone, "the end of the sessions")
    await held(pg_stage, pg_stage.url, 2)
    await goes_on(pg_stage, job, 2)
    assert no_live_worker_was_reaped(pg_stage)
    assert (await pg_stage.job(job)).attempt_count == 1
    await hangman.close()


@pytest.mark.parametrize("restart", RESTARTS.values(), ids=RESTARTS)
async def test_a_database_restart_makes_no_worker_absent(
    tmp_path: Path, restart: Callable[[PostgresServer], None]
) -> None:
    with PostgresServer() as server:
        async with scene(server.create_database("again"), tmp_path) as stage:
            await elsewhere(stage, "one")
            await elsewhere(stage, "two")
            job = await stage.enqueue("counts")
            await stage.started(1)
            await held(stage, stage.url, 2)
            restart(server)
            await held(stage, stage.url, 2)
            await goes_on(stage, job, 2)
            assert no_live_worker_was_reaped(stage)
            assert (await stage.job(job)).attempt_count == 1


@pytest.mark.parametrize("restart", list(RESTARTS.values())[1:], ids=list(RESTARTS)[1:])
async def test_a_database_restart_makes_no_slow_worker_absent(
    tmp_path: Path, restart: Callable[[PostgresServer], None]
) -> None:
    """It neither beats nor takes its lock while another sees the new database in many looks."""
    often = ("--heartbeat", "0.5", "--lease", "60")
    with PostgresServer() as server:
        async with scene(server.create_database("late"), tmp_path) as stage:
            late = await elsewhere(stage, "one", *often)
            job = await stage.enqueue("counts")
            await stage.started(1)
            other = await elsewhere(stage, "two", *often)
            await held(stage, stage.url, 2)
            late.signal(signal.SIGSTOP)
            restart(server)
            await held(stage, stage.url, 1)
            await beats(stage, other, 8)
            late.signal(signal.SIGCONT)
            await held(stage, stage.url, 2)
            await goes_on(stage, job, 2)
            assert no_live_worker_was_reaped(stage)
            assert (await stage.job(job)).attempt_count == 1


async def test_a_promoted_standby_does_not_reap_live_workers(tmp_path: Path) -> None:
    with PostgresServer() as primary:
        primary.create_database("failover")
        with PostgresServer(standby_of=primary) as standby:
            both = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
            url = f"postgresql://postgres@{both}/failover?target_session_attrs=read-write"
            async with scene(url, tmp_path) as stage:
                await elsewhere(stage, "one")
                await elsewhere(stage, "two")
                job = await stage.enqueue("counts")
                await stage.started(1)
                await held(stage, primary.url("failover"), 2)
                before = {row.presence for row in await stage.worker_rows()}
                loses_nothing(primary)
                await goes_on(stage, job)
                primary.kill()
                standby.promote()
                await held(stage, standby.url("failover"), 2)
                await goes_on(stage, job, 2)
                assert no_live_worker_was_reaped(stage)
                row = await stage.job(job)
                assert (row.state, row.attempt_count) == (State.RUNNING, 1)
                after = {each.presence for each in await stage.worker_rows()}
                assert {each.status for each in await stage.worker_rows()} == {"active"}
                assert before.isdisjoint(after)


def loses_nothing(primary: PostgresServer) -> None:
    """From now on a commit waits for the standby."""
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    primary.sql("SELECT pg_reload_conf()")


# --------------------------------------------------------------------- behind a pooler


@pytest.mark.pgbouncer
@pytest.mark.parametrize("busy", [False, True], ids=["quiet", "busy"])
async def test_behind_a_pooler_presence_is_off_and_visible_and_jobs_run(
    pg_stage: Scene, pgbouncer: PgBouncerServer, busy: bool
) -> None:
    direct = pg_stage.url
    pg_stage.url = pgbouncer.through(direct)
    workers = [await elsewhere(pg_stage, f"w{n}") for n in range(1 + busy)]
    jobs = [await pg_stage.enqueue("counts", upto=10) for _ in range(20 if busy else 1)]
    for job in jobs:
        row = await pg_stage.ended(job)
        assert (row.state, row.attempt_count) == (State.COMPLETED, 1)

    async def off() -> bool:
        rows = await pg_stage.worker_rows()
        return all(row.presence_off == "a pooler or proxy stands between" for row in rows)

    await pg_stage.until(off, "the reason on every row")
    for worker in workers:
        off_for = (await pg_stage.told(worker, "presence_off"))["reason"]
        assert off_for == "a pooler or proxy stands between"
        assert not worker.told("presence_taken")
    await held(pg_stage, direct, 0)
