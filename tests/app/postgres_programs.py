"""Tasks that write to a database on PostgreSQL, by each way to reach it.

The process of a crash test imports this file, but large libraries only for a task that needs them.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import psycopg

import outlast

app = outlast.App("sqlite:///own.db")
ORDERS = [1, 2]
INSERT = "INSERT INTO orders VALUES ({})"
ONCE = " ON CONFLICT DO NOTHING"


@app.task
def psycopg_plain(url: str, again: str) -> None:
    with psycopg.connect(url) as db:
        for order in ORDERS:
            db.execute(INSERT.format("%s") + again, [order])  # here
            db.commit()


@app.task
async def psycopg_async(url: str, again: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        for order in ORDERS:
            async with db.transaction():
                await db.execute(INSERT.format("%s") + again, [order])  # here


@app.task
async def asyncpg_alone(url: str, again: str) -> None:
    db = await asyncpg.connect(url)
    try:
        for order in ORDERS:
            async with db.transaction():
                await db.execute(INSERT.format("$1") + again, order)  # here
    finally:
        await db.close()


@app.task
async def asyncpg_pool(url: str, again: str) -> None:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        for order in ORDERS:
            await pool.execute(INSERT.format("$1") + again, order)  # here


@app.task
def sqlalchemy_engine(url: str, again: str) -> None:
    from sqlalchemy import create_engine, text

    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    for order in ORDERS:
        with engine.begin() as db:
            db.execute(text(INSERT.format(":number") + again), {"number": order})  # here
    engine.dispose()


@app.task
async def sqlalchemy_asyncpg(url: str, again: str) -> None:
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
    for order in ORDERS:
        async with engine.begin() as db:
            await db.execute(text(INSERT.format(":number") + again), {"number": order})  # here
    await engine.dispose()


@app.task
def leaves_its_transaction_open(url: str, again: str) -> None:
    assert outlast.current().checkpoint in {None, 1}
    db = psycopg.connect(url)
    KEPT.append(db)  # an attempt that is killed does not close it
    db.execute("SET lock_timeout = '20s'; LOCK TABLE orders")
    outlast.current().save_sync(1)
    db.commit()


KEPT: list[psycopg.Connection[Any]] = []


@app.task(retries=0)
def completes_in_it(url: str, again: str) -> None:
    with psycopg.connect(url) as db:
        outlast.current().complete_in_sync(db)


def call(name: str, url: str, again: str = "") -> outlast.Call[None]:
    if name.startswith("sqlalchemy"):
        import sqlalchemy.ext.asyncio  # noqa: F401  # once, and not in the process of each run
    task: outlast.Task[..., None] = app.find(name)
    return task.call(url, again)


def mail() -> outlast.Call[str]:
    from examples.lease_mail import app as lease_mail

    return lease_mail.send.call("ada")
