"""A store with one job of every kind, made by the store's own functions, without a worker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from outlast.model.crash import Crash, CrashKind, Progress
from outlast.model.job import Policy
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition, decide
from outlast.store import open_store
from outlast.store.protocol import Store
from outlast.store.rows import WorkerStatus
from outlast.store.values import Claimed, NewJob, Report, Save
from tests.conformance.kit import Hands, ended, enqueued, facts_of

TASKS = ["analyze", "mail", "render"]

TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/jobs.py", line 41, in mail
    send(address)
  File "/srv/shop/smtp.py", line 17, in send
    raise Refused(f"{address}: mailbox unknown")
shop.smtp.Refused: ada@example.org: mailbox unknown
"""

STACKS = """Fatal Python error: Segmentation fault

Current thread 0x00007f0aaa400740 (most recent call first):
  File "/srv/shop/picture.py", line 88 in resize
  File "/srv/shop/jobs.py", line 12 in render
"""

OUTPUT = ["page 1 of 400", "\x1b[31mred\x1b[0m and a NUL \ufffd", "page 2 of 400: " + "x" * 300]

FAILED = Crash(
    kind=CrashKind.ERROR,
    message="ada@example.org: mailbox unknown",
    exception="shop.smtp.Refused",
    traceback=TRACEBACK,
    progress=Progress(0.4, "sending", "part 2 of 5"),
    worker="host-1",
    host="host",
    pid=4712,
    release="2026.1",
    python="3.12.1",
)

SEGFAULT = Crash(
    kind=CrashKind.SIGNALLED,
    message="the runner was ended by SIGSEGV",
    signal="SIGSEGV",
    rss_peak_bytes=734 * 1024 * 1024,
    cpu_seconds=12.34,
    stacks=STACKS,
    output=OUTPUT,
    checkpoint_age_seconds=3.2,
    neighbours=[3, 4],
    worker="host-1",
    host="host",
    pid=4713,
)

LOST = Crash(kind=CrashKind.LOST_WORKER, message="its worker is gone (lock file free)")


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    """Open the store at a URL, and make it if there is none."""
    store = open_store(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


class Rows:
    """Makes jobs in each state; ``ids`` has their ids by name."""

    def __init__(self, store: Store, hands: Hands) -> None:
        self.store = store
        self.hands = hands
        self.ids: dict[str, int] = {}

    async def make(self) -> dict[str, int]:
        """Make all jobs; return their ids by name."""
        await self.completed()
        await self.dead()
        await self.running()
        await self.retrying()
        await self.suspect()
        await self.waiting()
        return self.ids

    async def add(self, name: str, **fields: Any) -> int:
        """Enqueue one job under a name."""
        (self.ids[name],) = await enqueued(self.store, NewJob(**fields))
        return self.ids[name]

    async def claim(self, task: str) -> Claimed:
        """Claim the one waiting job of a task."""
        (claimed,) = await self.hands.claim(1, tasks=[task])
        return claimed

    async def crash(self, claimed: Claimed, crash: Crash, delay: float | None = 0.0) -> None:
        """Fail an attempt; its job is due again after ``delay`` seconds."""
        outcome = Outcome(kind=OutcomeKind.CRASHED, crash=crash, delay=delay, pid=4712)
        await self.end(decide(facts_of(claimed), outcome, lambda: 0.5))

    async def end(self, transition: Transition) -> None:
        """Hand in an end, which the store must accept."""
        assert await self.hands.hand_in(transition) == ["accepted"]

    async def completed(self) -> None:
        """Make a job whose second attempt has completed."""
        await self.add("completed", task="mail", args='{"to":"ada@example.org","copies":2}')
        await self.crash(await self.claim("mail"), FAILED)
        await self.end(ended(await self.claim("mail"), result='{"sent":2}'))

    async def dead(self) -> None:
        """Make a job that used up its failures, with a checkpoint."""
        policy = Policy(retries=1, timeout=3600.0)
        await self.add("dead", task="mail", queue="post", args="{}", policy=policy, tenant="acme")
        claimed = await self.claim("mail")
        await self.store.checkpoint([Save(claimed.job_id, claimed.token, 1, '{"sent":[1,2,3]}')])
        await self.crash(claimed, SEGFAULT)
        await self.crash(await self.claim("mail"), FAILED)

    async def running(self) -> None:
        """Make a running job, at 40 %, with a large checkpoint."""
        await self.add("running", task="analyze", args='{"repo":"/srv/git/linux","depth":100}')
        claimed = await self.claim("analyze")
        progress = Progress(0.4, "counting", "commit 400 of 1000")
        value = '{"commit":400,"lines":{' + ",".join(f'"lang{n}":{n}' for n in range(60)) + "}}"
        await self.store.progress([Report(claimed.job_id, claimed.token, progress)])
        await self.store.checkpoint([Save(claimed.job_id, claimed.token, 1, value)])

    async def retrying(self) -> None:
        """Make a job that was lost, then failed, and waits."""
        await self.add("retrying", task="render", priority=5, key="book:emma")
        lost = await self.claim("render")
        await self.crash(lost, LOST)
        assert await self.store.checkpoint([Save(lost.job_id, lost.token, 1, "1")]) == ["refused"]
        await self.crash(await self.claim("render"), FAILED, delay=90.0)

    async def suspect(self) -> None:
        """Make a job that shared a runner which died."""
        await self.add("suspect", task="mail")
        claimed = await self.claim("mail")
        crash = Crash(kind=CrashKind.BYSTANDER, message="its runner died", neighbours=[3, 4])
        outcome = Outcome(kind=OutcomeKind.CRASHED, crash=crash, incident=claimed.token)
        await self.end(decide(facts_of(claimed), outcome, lambda: 0.5))

    async def waiting(self) -> None:
        """Make jobs that have not run, and a cancelled one."""
        await self.add("scheduled", task="render", delay=7200.0)
        await self.add("queued", task="render", args='{"book":"Emma \\u202e\\u0007"}')
        await self.add("unservable", task="old.name")
        await self.add("cancelled", task="render")
        await self.store.cancel([self.ids["cancelled"]])


async def populate(url: str) -> dict[str, int]:
    """Make the store and its rows; return the ids of the jobs by name."""
    async with opened(url) as store:
        gone = await Hands.on(store, "host-0", tasks=TASKS, host="host")
        await store.set_status(gone.me, WorkerStatus.STOPPED)
        hands = await Hands.on(store, "host-1", tasks=TASKS, host="host", lease=600.0)
        return await Rows(store, hands).make()


def populated(url: str) -> dict[str, int]:
    """Call ``populate`` from plain code."""
    return asyncio.run(populate(url))
