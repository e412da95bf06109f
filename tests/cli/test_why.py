"""``outlast why``: a job's position in sentences, on both stores."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from outlast.model.crash import CrashKind
from outlast.model.job import ALONE_IN_RUNNER, ALONE_IN_WORKER
from outlast.model.lifecycle import OutcomeKind
from outlast.model.limits import LimitSpec, Per
from outlast.model.pause import PauseKind
from outlast.store.limits import Hold, NewLimit, SetLimit
from outlast.store.protocol import Store
from outlast.store.rows import WorkerStatus
from outlast.store.values import NewEvent, NewJob, NewPause
from tests.cli.conftest import Filled, Outlast
from tests.cli.rows import opened
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import TASK, Hands, crashed, ended, enqueued, job
from tests.conformance.limits_kit import declare, limited, need
from tests.conformance.test_dependencies import DIES, after


def test_an_unknown_job_is_not_so(rows: Filled) -> None:
    rows("why", 999).refused(1, "there is no job 999")


async def abandoned(url: str) -> int:
    """Return a job whose worker was found gone, with two more that it ran, and one that waits."""
    async with opened(url) as store:
        hands = await Hands.on(store, "w-gone")
        mine, *_ = await enqueued(store, *[job() for _ in range(4)])
        await hands.claim(3)
        await hands.vanish()
        return mine


def test_why_says_that_no_worker_can_reclaim_an_orphan(outlast: Outlast, store_url: str) -> None:
    number = asyncio.run(abandoned(store_url))
    said = outlast("why", number, "--url", store_url)
    assert f"job {number}: orphaned" in said.out
    assert "on worker w-gone (h1), but that worker is lost" in said.out
    assert "No worker is alive: start one" in said.out
    waiting = outlast("why", number + 3, "--url", store_url)
    assert f"job {number + 3}: no workers" in waiting.out


# -- to do what it says, word by word, lets the job run


Put = Callable[[Store, str], Awaitable[int]]


async def worker(store: Store, name: str = "w1", **fields: Any) -> Hands:
    """A worker that is not silent during a test."""
    return await Hands.on(store, name, heartbeat=100.0, lease=600.0, **fields)


async def ran(store: Store, job_id: int) -> bool:
    """Whether another worker begins the job; it ends all that it is given, until there is none,
    and obeys pauses, which are of all here."""
    hands = await worker(store, "w-new")
    begun = []
    await hands.exchange(limit=1, tasks=["app.none"])
    while not await store.inspector.pauses() and (
        got := [
            claimed
            for solo in (None, ALONE_IN_RUNNER, ALONE_IN_WORKER)
            for claimed in await hands.claim(9, **({"solo": solo} if solo else {}))
        ]
    ):
        begun += [claimed.job_id for claimed in got]
        await hands.hand_in(*map(ended, got))
    await store.set_status(hands.me, WorkerStatus.STOPPED)
    return job_id in begun


def paused(put: Put, *kinds: PauseKind) -> Put:
    """The same while these are paused."""

    async def put_paused(store: Store, url: str) -> int:
        job_id = await put(store, url)
        names = {PauseKind.QUEUE: "default", PauseKind.TASK: TASK, PauseKind.ALL: ""}
        for kind in kinds:
            await store.pause(NewPause(kind=kind, name=names[kind]))
        return job_id

    return put_paused


async def free(store: Store, _: str) -> int:
    return (await enqueued(store))[0]


async def event_sent(store: Store, _: str) -> int:
    (job_id,) = await enqueued(store)
    hands = await worker(store)
    waits = ended(await hands.claim_one(), OutcomeKind.SNOOZED, delay=3600, event="e")
    await hands.follow(waits, limit=0)
    await store.set_status(hands.me, WorkerStatus.STOPPED)
    await store.send_event(NewEvent("e", "[1]"))
    return job_id


async def expired(store: Store, url: str) -> int:
    (job_id,) = await enqueued(store, job(expires=600.0))
    async with raw(url) as file:
        await file.run("UPDATE outlast_jobs SET expires_at = 1")
    return job_id


def under(*before: NewJob, key: str = "", **spec: Any) -> Put:
    """A job of a key under a limit, behind running ones."""

    async def put(store: Store, _: str) -> int:
        await store.declare_limits([NewLimit("a", LimitSpec(**spec))])
        hands = await worker(store)
        await enqueued(store, *before)
        await hands.claim(9)
        (job_id,) = await enqueued(store, limited(need("a", key)))
        await hands.claim(9)
        return job_id

    return put


def under_two(held: float = 0.0, **spec: Any) -> Put:
    """A job under a full limit, ``a``, and ``b``, under which one runs if it allows that."""

    async def put(store: Store, _: str) -> int:
        await declare(store, running=1)
        await declare(store, "b", **spec)
        hands = await worker(store)
        await enqueued(store, limited(need("a")), limited(need("b")))
        await hands.claim(9)
        (job_id,) = await enqueued(store, limited(need("a"), need("b")))
        await hands.claim(9)
        if held:
            await store.hold_limit(Hold("b", "", held))
        return job_id

    return put


def of_key(seconds: float = 0.0, of_all: float = 0.0, running: int | None = None) -> Put:
    """A job of a key that a hold, or a count of the key's own, stops."""

    async def put(store: Store, url: str) -> int:
        await store.declare_limits([NewLimit("a", LimitSpec(running=5, per=Per.TENANT))])
        await enqueued(store, limited(need("a", "the k")))
        await store.cancel(await enqueued(store, limited(need("a", "the k"))))
        if running is not None:
            await store.set_limit(SetLimit(name="a", key="the k", running=running))
        for of, lasts in (("the k", seconds), ("", of_all)):
            if lasts:
                await store.hold_limit(Hold("a", of, lasts))
        return await under(key="the k", running=5, per=Per.TENANT)(store, url)

    return put


async def suspect(store: Store, url: str) -> int:
    await declare(store, running=1)
    (job_id,) = await enqueued(store, limited(need("a")))
    hands = await worker(store)
    await hands.hand_in(crashed(await hands.claim_one(), CrashKind.BYSTANDER, incident=1))
    await enqueued(store, limited(need("a")))
    await hands.claim_one()
    async with raw(url) as file:
        await file.run(f"UPDATE outlast_jobs SET run_at = 1 WHERE id = {job_id}")
    for _ in range(2):
        assert await hands.claim(1, solo=ALONE_IN_RUNNER) == []
    return job_id


def behind(*upstream: NewJob) -> Put:
    """The last of these; those that run first die."""

    async def put(store: Store, _: str) -> int:
        ids = await enqueued(store, *upstream)
        hands = await worker(store)
        await hands.hand_in(*map(crashed, await hands.claim(9)))
        for _look in range(3):
            await hands.exchange(limit=1, tasks=["app.none"])
        return ids[-1]

    return put


async def behind_one_that_has_ended(store: Store, _: str) -> int:
    (first,) = await enqueued(store)
    assert await ran(store, first)
    return (await enqueued(store, after(first)))[0]


async def turns(store: Store, _: str) -> int:
    hands = await worker(store)
    await enqueued(store, *[job()] * 3)
    ids = await enqueued(store, *[limited(fair=f"t{n}", tenant=f"t{n}") for n in range(3)])
    await hands.exchange(limit=1, tasks=["app.none"])
    return ids[-1]


async def beside_one_that_fails(store: Store, url: str) -> int:
    await worker(store)
    await worker(store, "w2")
    async with raw(url) as file:
        await file.run(
            "UPDATE outlast_workers SET failing = 'exchange: StoreError: x', failing_since = 1"
            " WHERE name = 'w1'"
        )
    return await free(store, url)


def asleep(**fields: Any) -> Put:
    """A job while a worker sleeps; if that could take it, beside another, which cannot."""

    async def put(store: Store, url: str) -> int:
        hands = await worker(store, **fields)
        await store.set_status(hands.me, WorkerStatus.STOPPED, asleep=600.0)
        if not fields:
            await worker(store, "w2", tasks=["app.none"])
        return await free(store, url)

    return put


RUNS: dict[str, tuple[Put, str, list[str]]] = {
    "two pauses": (
        paused(free, PauseKind.QUEUE, PauseKind.TASK),
        "paused",
        [f"`outlast resume queue default` and `outlast resume task {TASK}` let it start", "Start"],
    ),
    "its event was sent": (event_sent, "waiting", ["was sent", "Start a worker", "!outlast event"]),
    "sent while paused": (
        paused(event_sent, PauseKind.ALL),
        "waiting",
        ["was sent", "`outlast resume all`", "!outlast event"],
    ),
    "expired": (expired, "no_workers", ["`outlast requeue 1`", "start one", "!whose application"]),
    "a limit of none": (
        under(running=0),
        "limited",
        ["'a', which lets no job run: its count is 0.", "!once one of them has ended"],
    ),
    "a limit of none for a key": (of_key(running=0), "limited", ["'a' of 'the k', which lets no"]),
    "full": (under(limited(need("a")), running=1), "limited", ["1 of 1 is running"]),
    "full for a key": (
        under(limited(need("a", "the k")), key="the k", running=1, per=Per.TENANT),
        "limited",
        ["1 of 1 is running", "--key 'the k'"],
    ),
    "two full ones": (under_two(running=1), "limited", ["'a': 1 of 1", "also waits for 'b': 1 of"]),
    "a full one and one of none": (under_two(running=0), "limited", ["'a': 1", "'b', which lets"]),
    "a full one and a held one": (
        under_two(held=600, running=5),
        "limited",
        ["It waits for 'a': 1 of 1", "It also waits for 'b': nothing", "`outlast limits hold b 0`"],
    ),
    "a full one and one with room": (under_two(running=5), "limited", ["'a': 1 of 1", "!'b'"]),
    "held for a key": (of_key(600), "throttled", ["`outlast limits hold a --key 'the k' 0` ends"]),
    "held for all": (of_key(of_all=600), "throttled", ["`outlast limits hold a 0` ends that"]),
    "held for a key and all": (of_key(600, 900), "throttled", ["starts for 1", " 0` end that"]),
    "a suspect under a full limit": (suspect, "limited", ["1 of 1 is running", "alone in a run"]),
    "two of which died": (
        behind(job(policy=DIES), job(policy=DIES), after(-1, -2)),
        "upstream",
        ["`outlast requeue 1` and `outlast requeue 2` run those jobs again, and this one waits"],
    ),
    "a chain of which one died": (
        behind(job(policy=DIES), after(-1), after(-2)),
        "upstream",
        ["`outlast why 2` explains that job."],
    ),
    "one that has ended": (behind_one_that_has_ended, "blocked", ["No worker is alive: start"]),
    "turns": (turns, "in_line", ["nothing before it of its kind", "take turns", "!stream"]),
    "one of two workers fails": (beside_one_that_fails, "in_line", ["Worker w2 can", "!w1"]),
    "its worker sleeps": (asleep(), "unservable", ["worker w1 wakes within", "!Start a worker"]),
    "another sleeps": (
        asleep(tasks=["app.none"]),
        "no_workers",
        ["Start a worker", "!wakes within", "!Nothing"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_a_job_runs_once_what_is_advised_was_done(
    outlast: Outlast, store_url: str, name: str
) -> None:
    put, position, words = RUNS[name]

    async def begin() -> int:
        async with opened(store_url) as store:
            return await put(store, store_url)

    async def work(job_id: int) -> bool:
        async with opened(store_url) as store:
            return await ran(store, job_id)

    job_id = asyncio.run(begin())
    said = outlast("why", job_id, "--json", "--url", store_url).json()
    told = " ".join([*said["sentences"], "->", *said["moves"]])
    assert said["position"] == position, told
    for word in words:
        assert (word[1:] not in told) if word.startswith("!") else (word in told), told
    acts = re.findall("`outlast ([^`]+)`", " ".join(said["moves"]))
    assert asyncio.run(work(job_id)) == (not acts), told
    for act in acts:
        outlast(*shlex.split(act.replace(" N", " 9")), "--url", store_url)
    assert not acts or asyncio.run(work(job_id)), told
