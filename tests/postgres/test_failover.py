"""Failover to a standby that lags: the last claims are lost, and with them the tokens they drew.

No such token may be drawn again: otherwise the end of one attempt would be taken for another's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from harness.proxy import Proxy
from harness.servers import PostgresServer
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import Answer, Claimed, NewJob, Save
from tests.conformance.kit import Hands, ended, enqueued, eventually, job

LOG_COUNT = "SELECT log_cnt FROM outlast_token_seq"  # tokens that the log has ahead of the sequence


class Lagging:
    """A primary and standbys that receive nothing more once ``cut_off`` is called."""

    def __init__(
        self, primary: PostgresServer, standbys: list[PostgresServer], proxy: Proxy
    ) -> None:
        self.primary = primary
        self.standbys = standbys
        self._proxy = proxy
        self._open: list[PostgresStore] = []

    async def store(self, server: PostgresServer) -> PostgresStore:
        store = PostgresStore(server.url())
        self._open.append(store)
        await store.open()
        return store

    async def cut_off(self) -> None:
        """Let the standbys receive everything up to now, and nothing after it."""
        here = await asyncio.to_thread(self.primary.sql, "SELECT pg_current_wal_lsn()")
        replayed = f"SELECT pg_last_wal_replay_lsn() >= '{here}'"
        for standby in self.standbys:

            async def is_there(standby: PostgresServer = standby) -> bool:
                return await asyncio.to_thread(standby.sql, replayed) == "t"

            await eventually(is_there, 60.0)
        self._proxy.hold()

    async def fail_over(self, number: int = 0) -> PostgresStore:
        """Kill the current primary and promote one of the standbys."""
        old = self.primary if number == 0 else self.standbys[number - 1]
        await asyncio.to_thread(old.kill)
        await asyncio.to_thread(self.standbys[number].promote)
        return await self.store(self.standbys[number])

    async def close(self) -> None:
        for store in self._open:
            await store.close()


@contextlib.asynccontextmanager
async def lagging(standbys: int = 1) -> AsyncIterator[Lagging]:
    with contextlib.ExitStack() as servers:
        primary = servers.enter_context(PostgresServer())
        proxy = Proxy("127.0.0.1", primary.port)
        await proxy.start()
        source = {"primary_conninfo": f"host=127.0.0.1 port={proxy.port} user=postgres"}

        def follow() -> PostgresServer:
            return servers.enter_context(PostgresServer(standby_of=primary, settings=source))

        pair = Lagging(primary, [await asyncio.to_thread(follow) for _ in range(standbys)], proxy)
        try:
            yield pair
        finally:
            await pair.close()
            await proxy.stop()


async def draw_until(hands: Hands, primary: PostgresServer, *, logged: bool) -> Claimed:
    """Run jobs until the log does (or does not) hold the next token; return the last job."""
    for ran in range(80):
        await enqueued(hands.store)
        last = await hands.claim_one()
        await hands.hand_in(ended(last))
        ahead = int(await asyncio.to_thread(primary.sql, LOG_COUNT))
        if ran > 1 and (ahead > 0) == logged:
            return last
    raise AssertionError("the sequence was never there")


@pytest.mark.slow_but("to the last token")
@pytest.mark.parametrize("logged", [False, True], ids=["to the last token", "some tokens ahead"])
async def test_a_token_that_was_lost_in_a_failover_is_not_drawn_again(logged: bool) -> None:
    async with lagging() as servers:
        store = await servers.store(servers.primary)
        loser, other = await Hands.on(store, "loser"), await Hands.on(store, "other")
        seen = await draw_until(other, servers.primary, logged=logged)
        await enqueued(store)
        await servers.cut_off()
        lost = await loser.claim_one()

        other.store = loser.store = await servers.fail_over()
        early = await other.exchange(limit=1)
        assert (early.valid, early.claimed) == (False, []), "no claim before tokens have jumped"
        me = await other.store.reconnect(other.me, seen.token)
        assert me is not None
        other.me = me
        again = await other.claim_one()
        assert again.job_id == lost.job_id
        assert again.token > lost.token

        save = Save(lost.job_id, lost.token, 1, '"lost"')
        assert await loser.store.checkpoint([save]) == [Answer.REFUSED]
        assert await loser.hand_in(ended(lost)) == [Answer.REFUSED]
        assert await loser.store.superseded([(lost.job_id, lost.token)]) == [lost.token]
        assert await other.hand_in(ended(again)) == [Answer.ACCEPTED]


@pytest.mark.slow
async def test_enqueuers_and_new_workers_need_not_notice_a_failover() -> None:
    async with lagging() as servers:
        store = await servers.store(servers.primary)
        loser = await Hands.on(store, "loser")
        await draw_until(loser, servers.primary, logged=False)
        await enqueued(store)
        await servers.cut_off()
        lost = await loser.claim_one()

        after = await servers.fail_over()
        await after.enqueue([NewJob(task=job().task)])
        fresh = await Hands.on(after, "fresh")
        assert min(each.token for each in await fresh.claim()) > lost.token


@pytest.mark.slow
async def test_a_token_that_was_lost_in_a_second_failover_is_not_drawn_again() -> None:
    """To a standby that has received nothing from the primary in between."""
    async with lagging(standbys=2) as servers:
        await enqueued(await servers.store(servers.primary))
        await servers.cut_off()
        tokens = []
        for number in range(2):
            hands = await Hands.on(await servers.fail_over(number))
            tokens.append((await hands.claim_one()).token)
        assert tokens[1] > tokens[0]
