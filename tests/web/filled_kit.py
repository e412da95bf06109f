"""A store with something for each page, under names that try to break out of it."""

from __future__ import annotations

import asyncio

import msgspec

from outlast.model.crash import Crash, CrashKind
from outlast.model.job import Policy
from outlast.model.lifecycle import OutcomeKind
from outlast.model.pause import PauseKind
from outlast.store import open_store
from outlast.store.protocol import Store
from outlast.store.values import NewPause, Upstream
from tests.conformance.kit import Hands, crashed, ended, enqueued, job
from tests.conformance.limits_kit import declare
from tests.conformance.schedules_kit import put_one

SCRIPT = "</script><script>alert(1)</script>"
NAMES = [
    SCRIPT,
    "../../../etc/passwd",
    "x" * 10_000,
    "'\"><img src=x onerror=alert(1)>",
    "a\u202eb\x1b[31m",
    "%2e%2e/&#x27;",
]
TRACEBACK = """Traceback (most recent call last):
  File "/srv/shop/jobs.py", line 41, in charge
    card.pay()
shop.Refused: no
"""
FINAL = Policy(retries=0)
LEASE = 3_600.0  # seconds: these are alive for as long as a browser looks at them


async def fill(store: Store, names: list[str] | None = None, tenant: str | None = None) -> None:
    """Put dead, due, running and suspected jobs, a lost worker, pauses, schedules, limits and a
    refusal of each name into the store."""
    for number, name in enumerate(names or NAMES):
        about = {"host": name, "release": f"r{number}", "queues": [], "tasks": []}
        worker = await Hands.on(store, name, lease=LEASE, **about)
        tasks = [name]
        await store.announce(worker.me, tasks, {f"lacking {name}": [name]})
        where = {"task": name, "queue": name, "tenant": tenant or f"of {name}"}
        await enqueued(store, *[job(policy=FINAL, **where)] * 3)
        crash = Crash(
            kind=CrashKind.ERROR,
            exception=name,
            message=name,
            traceback=TRACEBACK.replace("jobs.py", "a.py" if number % 2 else "b.py"),
        )
        claimed = await worker.claim(3, tasks=tasks)
        assert len(claimed) == 3
        ends = [ended(one, OutcomeKind.CRASHED, crash=crash) for one in claimed]
        await worker.hand_in(*ends)
        await worker.hand_in(msgspec.structs.replace(ends[0], token=ends[0].token - 1))
        await enqueued(store, *[job(**where)] * 5)
        together = await worker.claim(5, tasks=tasks)
        await worker.hand_in(
            *[
                msgspec.structs.replace(
                    crashed(one, CrashKind.BYSTANDER), solo=1, incident=together[0].token
                )
                for one in together
            ]
        )
        await enqueued(store, *[job(**where)] * 2)
        await worker.claim(1, tasks=tasks)
        await store.pause(NewPause(kind=PauseKind.TASK, name=name, paused_by=name, reason=name))
        await put_one(store, name)
        await declare(store, name, running=number, per="tenant")
    lost = await Hands.on(store, "lost one", tasks=[])
    await lost.vanish()


def make_store(url: str, names: list[str] | None = None) -> None:
    """Make such a store, for a server in a process of its own."""

    async def make() -> None:
        store = open_store(url)
        await store.open()
        try:
            await fill(store, names)
        finally:
            await store.close()

    asyncio.run(make())


def make_flow(url: str, names: list[str]) -> int:
    """Put a flow of these tasks into a store, which has a fan-out and a fan-in; return a job."""

    async def put() -> int:
        store = open_store(url)
        await store.open()
        first = len(names) + 1
        fan = [job(task=name, after=(Upstream(-1),)) for name in names]
        last = job(after=tuple(Upstream(-n) for n in range(2, first + 1)))
        ids = await enqueued(store, job(), *fan, last)
        await store.close()
        return ids[0]

    return asyncio.run(put())
