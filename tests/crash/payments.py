"""Tasks that complete in their own transaction, on both stores, and misbehave on request."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

import outlast
from harness.journal import begin
from tests.crash.tasks import app

PATIENCE = 10.0  # seconds for a server that does not answer, as one that has lost its power
EFFECTS = "CREATE TABLE IF NOT EXISTS effects (job bigint, token bigint)"


async def write(connection: Any, job: int, token: int) -> None:
    statement = f"INSERT INTO effects VALUES ({job}, {token})"
    if isinstance(connection, sqlite3.Connection):
        connection.execute(statement)
    else:
        await connection.execute(statement)


@asynccontextmanager
async def transaction() -> AsyncIterator[Any]:
    """Open a transaction on the application's database; commit unless the body raises."""
    if app.url.startswith("sqlite"):
        connection = sqlite3.connect(app.url.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute("PRAGMA busy_timeout = 10000")
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        finally:
            connection.close()
        return
    connection = await asyncpg.connect(app.url, timeout=PATIENCE, command_timeout=PATIENCE)
    try:
        async with connection.transaction():
            yield connection
    finally:
        connection.terminate()  # and not close(), which waits for a server that may be gone


class GaveUp(Exception):
    """Rolls the transaction back; the task then swallows it."""


@app.task(backoff_first=0.05, backoff_max=0.1)
async def pays() -> str:
    attempt = begin()
    async with transaction() as connection:
        await write(connection, attempt.job_id, attempt.token)
        await attempt.complete_in(connection, "paid")
    return "never stored"


@app.task(backoff_first=0.05, backoff_max=0.1)
async def pays_once_the_flag_is_up(flag: str) -> str:
    attempt = begin()
    while not Path(flag).exists():
        await asyncio.sleep(0.01)
    async with transaction() as connection:
        await write(connection, attempt.job_id, attempt.token)
        await attempt.complete_in(connection, "paid")
    return "never stored"


@app.task(backoff_first=0.05, backoff_max=0.1)
async def swallows_a_failed_commit() -> str:
    attempt = begin()
    try:
        async with transaction() as connection:
            await write(connection, attempt.job_id, attempt.token)
            await attempt.complete_in(connection, "paid")
            if attempt.number == 1:
                raise GaveUp
    except GaveUp:
        pass
    return "never stored"


@app.task(backoff_first=0.05, backoff_max=0.1)
async def dies_before_the_commit() -> str:
    attempt = begin()
    async with transaction() as connection:
        await write(connection, attempt.job_id, attempt.token)
        await attempt.complete_in(connection, "paid")
        if attempt.number == 1:
            os._exit(1)
    return "never stored"


@app.task
async def leaves_it_open(seconds: float = 0, flag: str | None = None) -> str:
    attempt = begin()
    async with transaction() as connection:
        await write(connection, attempt.job_id, attempt.token)
        await attempt.complete_in(connection, "paid")
        outlast.current().report(0.9, "open")
        await asyncio.sleep(seconds)
        while flag is not None and not Path(flag).exists():
            await asyncio.sleep(0.01)
    return "never stored"


@app.task
async def returns_before_its_commit(seconds: float) -> str:
    """The transaction is committed by a task that goes on after this one has returned."""
    attempt = begin()
    completed = asyncio.Event()

    async def commit_late() -> None:
        async with transaction() as connection:
            await write(connection, attempt.job_id, attempt.token)
            await attempt.complete_in(connection, "paid late")
            completed.set()
            await asyncio.sleep(seconds)

    _late.append(asyncio.create_task(commit_late()))
    await completed.wait()
    return "never stored"


@app.task(backoff_first=0.05, backoff_max=0.1)
async def forgets_its_transaction() -> str:
    """The first attempt keeps its connection, with the transaction open, beyond its end."""
    attempt = begin()
    connection = await asyncpg.connect(app.url)
    transaction = connection.transaction()
    await transaction.start()
    await write(connection, attempt.job_id, attempt.token)
    await attempt.complete_in(connection, "paid")
    if attempt.number == 1:
        _forgotten.append(connection)
        return "never stored"
    await transaction.commit()
    await connection.close()
    return "never stored"


_forgotten: list[Any] = []
_late: list[asyncio.Task[None]] = []

tasks = app.tasks
