"""Copies that take the place of what they were made of: no token is issued twice."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.servers import PostgresServer
from outlast.errors import StoreUnavailable
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import Answer, Claimed
from tests.conformance.kit import Hands, ended, enqueued, eventually, job


async def claim(url: str, *, first: bool = False) -> Claimed:
    """Claim the one job by a worker of its own, as long as it is there."""
    store = PostgresStore(url)
    try:
        await store.open()
        if first:
            await enqueued(store)
        hands = await Hands.on(store)
        return await hands.claim_one()
    finally:
        await store.close()


async def run(program: str | Path, *options: str | Path) -> None:
    command = [str(each) for each in (program, *options)]
    await asyncio.to_thread(subprocess.run, command, check=True, timeout=60)


async def in_thread(work: Callable[..., object], *values: Any) -> None:
    await asyncio.to_thread(work, *values)


def assert_later(lost: Claimed, again: Claimed) -> None:
    assert again.job_id == lost.job_id
    assert again.token > lost.token


async def prepared(url: str) -> None:
    """Make a database with a job, in which tokens were drawn."""
    store = PostgresStore(url)
    await store.open()
    await enqueued(store)
    hands = await Hands.on(store)
    await hands.hand_in(ended(await hands.claim_one()))
    await enqueued(store)
    await store.close()


@pytest.mark.slow
async def test_a_copy_of_the_files_of_a_stopped_server_is_put_back() -> None:
    """Nothing is recovered at such a start."""
    with PostgresServer() as server:
        await prepared(server.url())
        backup = server.folder / "backup"
        await in_thread(server.stop, "fast")
        await run("cp", "-a", server.data, backup)
        await in_thread(server.start)
        lost = await claim(server.url())
        await in_thread(server.stop, "fast")
        shutil.rmtree(server.data)
        await run("cp", "-a", backup, server.data)
        await in_thread(server.start)
        assert_later(lost, await claim(server.url()))


async def test_a_copy_of_the_database_takes_its_name(pg_server: PostgresServer) -> None:
    url = pg_server.create_database("outlast_original")
    try:
        await prepared(url)
        pg_server.sql("CREATE DATABASE outlast_copy TEMPLATE outlast_original")
        lost = await claim(url)
        pg_server.drop_database("outlast_original")
        pg_server.sql("ALTER DATABASE outlast_copy RENAME TO outlast_original")
        assert_later(lost, await claim(url))
    finally:
        pg_server.drop_database("outlast_original")


@pytest.mark.slow
async def test_a_dump_of_a_restored_dump_is_restored(tmp_path: Path) -> None:
    """Into a new server each time, where the same tables have the same oids."""

    async def dump(server: PostgresServer, name: str) -> Path:
        await run(server.bin / "pg_dump", f"--file={tmp_path / name}", server.url())
        return tmp_path / name

    async def restore(server: PostgresServer, path: Path) -> None:
        quiet = ("--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1", "--output=/dev/null")
        await run(server.bin / "psql", *quiet, f"--file={path}", server.url())

    with PostgresServer() as first:
        await prepared(first.url())
        one = await dump(first, "one")
    with PostgresServer() as second:
        await restore(second, one)
        store = PostgresStore(second.url())
        await Hands.on(store)
        await store.close()
        two = await dump(second, "two")
        lost = await claim(second.url())
    with PostgresServer() as third:
        await restore(third, two)
        assert_later(lost, await claim(third.url()))


async def test_a_database_is_dropped_and_made_again(pg_server: PostgresServer) -> None:
    """Under an attempt that goes on: its job's id is given out again, its token is not."""
    url = pg_server.create_database("outlast_again")
    try:
        lost = await claim(url, first=True)
        pg_server.drop_database("outlast_again")
        pg_server.create_database("outlast_again")
        assert_later(lost, await claim(url, first=True))
        store = PostgresStore(url)
        hands = await Hands.on(store, "late")
        assert await hands.hand_in(ended(lost)) == [Answer.REFUSED]
        await store.close()
    finally:
        pg_server.drop_database("outlast_again")


async def test_two_copies_are_started_while_the_clock_is_behind_the_tokens(
    pg_server: PostgresServer,
) -> None:
    """Then the time of day keeps nothing apart."""
    ahead = 2**52
    url = pg_server.create_database("outlast_early")
    tokens = set()
    try:
        await prepared(url)
        pg_server.sql(f"SELECT setval('outlast_token_seq', {ahead})", "outlast_early")
        for number in range(3):
            pg_server.sql(f"CREATE DATABASE outlast_early_{number} TEMPLATE outlast_early")
            tokens.add((await claim(pg_server.url(f"outlast_early_{number}"))).token)
    finally:
        for name in ("outlast_early", *(f"outlast_early_{number}" for number in range(3))):
            pg_server.drop_database(name)
    assert len(tokens) == 3
    assert min(tokens) > ahead + 1_000_000


@pytest.mark.slow
async def test_a_worker_goes_on_after_the_server_was_stopped_and_started() -> None:
    """It keeps what it runs; what it claims next has a token above."""
    with PostgresServer() as server:
        store = PostgresStore(server.url())
        await store.open()
        await enqueued(store, job(), job())
        hands = await Hands.on(store)
        held = await hands.claim_one()
        await in_thread(server.stop, "fast")
        await in_thread(server.start)

        async def claims() -> Sequence[Claimed]:
            try:
                reply = await hands.exchange(limit=1)
                if not reply.valid and (me := await store.reconnect(hands.me, held.token)):
                    hands.me = me
            except StoreUnavailable:  # the connection was cut
                return []
            return reply.claimed

        (later,) = await eventually(claims, 30.0)
        assert later.token > held.token
        assert await hands.hand_in(ended(held), ended(later)) == [Answer.ACCEPTED] * 2
        await store.close()
