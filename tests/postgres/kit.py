"""What tests with real concurrent sessions on PostgreSQL share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib import resources
from typing import Any

from outlast.base.clock import SYSTEM
from outlast.store.postgres.exchange import AskedClaim, ClaimFloors, request_columns
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
    """Return once that many sessions of this database wait for a lock that another one holds for
    long: not to make a file longer, and not autovacuum's."""
    waiting = """SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event_type = 'Lock'
                   AND wait_event <> 'extend' AND backend_type = 'client backend'"""
    async with asyncio.timeout(25):
        while await watcher.fetchval(waiting) < count:
            await asyncio.sleep(0.01)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(25):
        while not await condition():
            await asyncio.sleep(0.01)


async def exchange_on(session: Any, hands: Hands, limit: int) -> None:
    me = hands.me
    lanes, _ = ClaimFloors().ask(SYSTEM.boot())
    asked = AskedClaim(
        **request_columns([ClaimRequest([TASK], limit)]),
        **lanes,
        look_from=None,
        look_to=None,
        notify=False,
        claims_max=500,
        bytes_max=10**9,
        firsts='{""}',
        wakes=None,
        kind=None,
        not_queues="{}",
        not_tenants="{}",
        streams_from="",
    )
    ends = ("{}", "{}", "{}", None, 1000)
    statement = statements("postgres", "exchange")["exchange"]
    worker = (me.worker_id, me.epoch, me.registration)
    reply = await session.fetch(statement, *worker, *ends, *asked)
    assert len(reply) == limit + 1  # with the head
