"""What tests of limits on PostgreSQL share: the laws of limits, read in one snapshot."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from outlast.base.clock import SYSTEM
from outlast.errors import StoreUnavailable
from outlast.model.lifecycle import OutcomeKind
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import Claimed
from tests.conformance.kit import Hands, ended

LAWS = """
WITH run AS (
    SELECT u.permit, count(*) AS number
    FROM outlast_jobs j JOIN outlast_streams s ON s.id = j.stream
    CROSS JOIN LATERAL unnest(s.permits) AS u (permit) WHERE j.state = 'running' GROUP BY u.permit
), note AS (
    SELECT u.permit, sum(n.ended) AS number
    FROM outlast_notices n JOIN outlast_streams s ON s.id = n.stream
    CROSS JOIN LATERAL unnest(s.permits) AS u (permit) GROUP BY u.permit
), permit AS (
    SELECT p.*, coalesce(r.number, 0) AS running, coalesce(n.number, 0) AS noted,
           coalesce(p.own_running, l.running) AS cap, l.name IS NOT NULL AS is_known,
           date_part('epoch', clock_timestamp()) AS now, l.held_until AS limit_held, l.spacing,
           l.burst
    FROM outlast_permits p LEFT JOIN run r ON r.permit = p.id LEFT JOIN note n ON n.permit = p.id
    LEFT JOIN outlast_limits l ON l.name = p.name
)
SELECT ARRAY(SELECT format('%s %s: %s - %s <> %s', p.name, p.key, p.used, p.noted, p.running)
             FROM permit p WHERE p.used - p.noted <> p.running) AS "L1",
       ARRAY(SELECT format('%s %s: %s of %s run', p.name, p.key, p.running, p.cap)
             FROM permit p WHERE p.running > p.cap) AS "L2",
       ARRAY(SELECT format('%s: idle with jobs', s.id) FROM outlast_streams s
             WHERE s.idle AND EXISTS (
                 SELECT FROM outlast_jobs j WHERE j.stream = s.id AND j.position IS NOT NULL)
               AND NOT EXISTS (SELECT FROM outlast_notices n WHERE n.stream = s.id AND n.arrived)
             UNION ALL
             SELECT format('%s: unknown, with jobs', j.stream) FROM outlast_jobs j
             WHERE j.stream IS NOT NULL AND j.position IS NOT NULL
               AND NOT EXISTS (SELECT FROM outlast_streams s WHERE s.id = j.stream)
               AND NOT EXISTS (
                   SELECT FROM outlast_notices n WHERE n.stream = j.stream AND n.arrived)
             UNION ALL
             SELECT format('%s %s: has room and blocks %s', p.name, p.key, s.id)
             FROM permit p JOIN outlast_streams s ON s.blocked = p.id
             WHERE p.is_known AND (p.cap IS NULL OR p.used < p.cap) AND p.opens_at IS NULL
               AND greatest(p.held_until, p.limit_held, 0) <= p.now
               AND (p.spacing IS NULL OR s.costs[array_position(s.permits, p.id)] <= p.burst)
               AND NOT EXISTS (SELECT FROM outlast_notices n WHERE n.permit = p.id)) AS "L3",
       ARRAY(SELECT format('%s: has job %s below its floor', s.id, j.id)
             FROM outlast_jobs j JOIN outlast_streams s ON s.id = j.stream
             WHERE coalesce(j.aged, j.position) < s.floor AND j.position IS NOT NULL
               AND NOT EXISTS (
                   SELECT FROM outlast_notices n
                   WHERE n.stream = s.id AND n.arrived
                     AND coalesce(n.place, 0) <= coalesce(j.aged, j.position))
             UNION ALL
             SELECT format('%s has %s rows', t.id, count(*))
             FROM (SELECT id FROM outlast_streams UNION ALL SELECT id FROM outlast_permits) t
             GROUP BY t.id HAVING count(*) > 1) AS "L4"
"""


async def broken_laws(session: Any) -> dict[str, list[str]]:
    """Return what breaks a law at this moment."""
    async with session.transaction(isolation="repeatable_read", readonly=True):
        row = await session.fetchrow(LAWS)
    return {law: found for law, found in row.items() if found}


class Fleet:
    """Workers that end and claim at random, each on sessions of its own, which may be killed."""

    def __init__(self, store: PostgresStore, seed: int, places: int = 8) -> None:
        self._store = store
        self._url = store.url
        self._dice = random.Random(seed)
        self._places = places
        self.stopped = False
        self.ended = 0
        self.broken = 0
        self.errors: list[str] = []

    async def work(self, name: str) -> None:
        """Claim and end until stopped; then hand in what is left."""
        store = PostgresStore(self._url, connections=2, application=f"fleet-{name}")
        registered = await Hands.on(self._store, name, lease=600.0, heartbeat=100.0)
        hands = Hands(store, registered.me)
        held: list[Claimed] = []
        try:
            while not (self.stopped and not held):
                held = await self._trip(store, hands, held)
        finally:
            await store.close()

    async def _trip(self, store: PostgresStore, hands: Hands, held: list[Claimed]) -> list[Claimed]:
        count = len(held) if self.stopped else self._dice.randint(0, len(held))
        done = [self._end(one) for one in held[:count]]
        limit = 0 if self.stopped else self._places - len(held) + count
        limit = limit and self._dice.randint(1, limit)
        try:
            reply = await hands.exchange(*done, limit=limit)
        except StoreUnavailable as error:
            self.errors.append(str(error))
            self.broken += 1
            return await self._recover(store, hands, held)
        self.ended += count
        if not reply.claimed:
            await asyncio.sleep(self._dice.random() * 0.01)
        return [*held[count:], *reply.claimed]

    def _end(self, one: Claimed) -> Any:
        kind = self._dice.choices(
            [OutcomeKind.COMPLETED, OutcomeKind.RELEASED, OutcomeKind.SNOOZED], [8, 1, 1]
        )[0]
        if kind is OutcomeKind.RELEASED:
            return ended(one, kind, began=self._dice.random() < 0.5)
        return ended(one, kind, delay=0.0) if kind is OutcomeKind.SNOOZED else ended(one)

    async def _recover(
        self, store: PostgresStore, hands: Hands, held: list[Claimed]
    ) -> list[Claimed]:
        """Reconnect, as a worker does after a broken session, and release all that it held."""
        while True:
            try:
                me = await store.reconnect(hands.me, 0)
                assert me is not None
                hands.me = me
                await store.reconcile(me, [])
            except StoreUnavailable:
                continue
            return []


async def drained(store: PostgresStore, session: Any, seconds: float = 60.0) -> None:
    """Return once all jobs have completed, by one worker that ends all that it gets."""
    hands = await Hands.on(store, "last", lease=600.0, heartbeat=100.0)
    until = SYSTEM.boot() + seconds
    held: list[Claimed] = []
    while await session.fetchval("SELECT count(*) FROM outlast_jobs WHERE ended_at IS NULL"):
        if SYSTEM.boot() > until:
            left = await session.fetch(
                "SELECT j.id, j.state, j.position, s.blocked, s.idle, s.turn FROM outlast_jobs j"
                " LEFT JOIN outlast_streams s ON s.id = j.stream WHERE j.ended_at IS NULL LIMIT 10"
            )
            raise AssertionError(f"stuck: {[dict(row) for row in left]}")
        reply = await hands.exchange(*map(ended, held), limit=100)
        held = reply.claimed
        if not held:
            await asyncio.sleep(0.005)


async def watched(session: Any, is_over: Callable[[], bool], seen: list[dict[str, Any]]) -> None:
    """Look at the laws again and again."""
    while not is_over():
        found = await broken_laws(session)
        if found:
            seen.append(found)
        await asyncio.sleep(0.02)
