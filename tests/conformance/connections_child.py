"""Works and completes on several connections at once, commits nothing, and waits to be killed.

The first argument is JSON: a list of [kind, url, job id, token]. Says "ready" when all are done.
"""

from __future__ import annotations

import asyncio
import json
import sys

from outlast.client.attempt import Attempt
from outlast.model.job import Policy
from outlast.store import open_store
from outlast.store.values import Claimed
from tests.conformance import connections_kit


class Link:
    worker_id = 1

    def __init__(self, store_id: str) -> None:
        self.store_id = store_id


async def store_id_of(url: str) -> str:
    store = open_store(url)
    try:
        return await store.store_id()
    finally:
        await store.close()


async def work(kind: str, url: str, job_id: int, token: int) -> connections_kit.Caller:
    claimed = Claimed(
        job_id=job_id,
        token=token,
        task="mail",
        queue="default",
        args="{}",
        number=1,
        failures=0,
        losses=0,
        policy=Policy(),
    )
    attempt = Attempt(Link(await store_id_of(url)), claimed)  # type: ignore[arg-type]
    caller: connections_kit.Caller = getattr(connections_kit, kind)(url)
    await caller.call(caller.open)
    await caller.call(caller.begin)
    await caller.call(caller.execute, "INSERT INTO orders VALUES (1)")
    await caller.complete(attempt, "paid")
    return caller


async def main() -> None:
    held = [await work(*one) for one in json.loads(sys.argv[1])]
    print("ready", len(held), flush=True)
    await asyncio.to_thread(sys.stdin.read)


asyncio.run(main())
