"""What tests with real concurrent sessions on PostgreSQL share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import resources
from typing import Any

from outlast.base.clock import SYSTEM
from outlast.store.postgres.exchange import ClaimFloors, request_columns
from outlast.store.statements import statements
from outlast.store.values import ClaimRequest
from tests.conformance.kit import TASK, Hands


def change_function(name: str, text: str, instead: str) -> str:
    """Return the statement that recreates a function of the migration with another text in place of
    this one."""
    folder = resources.files("outlast.store").joinpath("postgres", "sql", "functions")
    whole = folder.joinpath(f"{name}.sql").read_text("utf-8")
    assert whole.count(text) == 1, f"{name} has changed: quote its present text instead of {text!r}"
    changed = whole.replace(text, instead)
    return changed.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")


async def blocked(watcher: Any, count: int = 1) -> None:
    """Return once that many sessions of this database wait for a lock."""
    waiting = """SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'"""
    async with asyncio.timeout(25):
        while await watcher.fetchval(waiting) < count:
            await asyncio.sleep(0.01)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(25):
        while not await condition():
            await asyncio.sleep(0.01)


async def exchange_on(session: Any, hands: Hands, limit: int) -> None:
    requests = request_columns([ClaimRequest([TASK], limit)])
    me = hands.me
    lanes, _ = ClaimFloors().ask(SYSTEM.boot())
    ends = ("{}", "{}", "{}", None)
    more = (
        *requests,
        *lanes,
        None,
        None,
        False,
        500,
        10**9,
        1000,
        me.registration,
        '{""}',
        None,
        None,
    )
    last = ("{}", "{}", "{2}", "{1}", "{}")
    statement = statements("postgres", "exchange")["exchange"]
    reply = await session.fetch(statement, me.worker_id, me.epoch, *ends, *more, *last)
    assert len(reply) == limit + 2  # with the heads of the claim and of the exchange
