"""The tasks of the chaos runs: every way to run, to save, to fail and to end.

Each attempt writes to the journal when it began, what it saved and when it was done, and returns
its own token: a result that was accepted under any other token is seen by that.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import subprocess
import time
from typing import Any

import outlast
from harness.journal import boot, note
from harness.rounds import MOST, lowered_constants
from tests.crash.payments import transaction, write

for patch in lowered_constants(MOST):
    patch.start()
WAKEUP = os.environ.get("OUTLAST_TEST_WAKEUP")
MORE: dict[str, Any] = {"wakeup": WAKEUP} if WAKEUP else {}
KEY = os.environ.get("OUTLAST_TEST_KEY")
PAYLOADS = [outlast.Encryption({"chaos": KEY})] if KEY else []
app = outlast.App(payloads=PAYLOADS, **MORE)
BULK = (
    20_000 if app.url.startswith("sqlite") else 700_000
)  # bytes: a file is on a small disk, and base64 needs a third more
SOON: dict[str, Any] = {"backoff_first": 0.1, "backoff_max": 1.0}
KEYED = app.limit("keyed", running=2, per="limit_key")
BUSY = app.limit("busy", running=8)  # changed while the storm goes on
TURN = app.limit("turn", running=1, per="limit_key", ordered=True)
PACED = app.limit("paced", rate="60/s", burst=5)
KEYS = 6
UNTIL_ANSWERED = (
    3_600.0  # seconds: what waits for so long is answered, at the latest when all is quiet
)


class Unlucky(Exception):
    """What ``fails`` raises."""


def begin(**fields: object) -> tuple[outlast.Attempt, int]:
    """Journal the start; return the attempt, and how many steps are done."""
    attempt = outlast.current()
    step = (attempt.checkpoint or {"step": 0})["step"]
    tell("start", attempt, pid=os.getpid(), step=step, **fields)
    return attempt, step


def tell(event: str, attempt: outlast.Attempt, **fields: object) -> None:
    note(event, job=attempt.job_id, token=attempt.token, number=attempt.number, **fields)


def done(attempt: outlast.Attempt) -> dict[str, Any]:
    """Journal the end, as an effect outside the store; return the result."""
    tell("done", attempt)
    return {"token": attempt.token}


@app.task(limits=[KEYED], **SOON)
async def quick(seconds: float) -> dict[str, Any]:
    attempt, _ = begin()
    await asyncio.sleep(seconds)
    return done(attempt)


@app.task(**SOON)
def plain(seconds: float) -> dict[str, Any]:
    attempt, _ = begin()
    time.sleep(seconds)
    return done(attempt)


@app.task(limits=[TURN, BUSY], **SOON)
async def steps(upto: int, pause: float) -> dict[str, Any]:
    attempt, step = begin()
    for number in range(step + 1, upto + 1):
        await asyncio.sleep(pause)
        asked_at = boot()
        await attempt.save({"step": number})
        tell("saved", attempt, step=number, asked_at=asked_at)
    return done(attempt)


@app.task(limits=[BUSY], **SOON)
def plain_steps(upto: int, pause: float) -> dict[str, Any]:
    return go_on(upto, pause)


@app.task(retries=10_000, max_losses=10_000, **SOON)
def endless(pause: float) -> dict[str, Any]:
    """Goes on until it is cancelled, also through an hour of kills. Rehearsals use it."""
    return go_on(1_000_000, pause)


def go_on(upto: int, pause: float) -> dict[str, Any]:
    attempt, step = begin()
    for number in range(step + 1, upto + 1):
        attempt.check()
        attempt.report(number / upto, f"step {number}")
        time.sleep(pause)
        asked_at = boot()
        attempt.save_sync({"step": number})
        tell("saved", attempt, step=number, asked_at=asked_at)
    return done(attempt)


@app.task(**SOON)
async def deaf_steps(upto: int, pause: float) -> dict[str, Any]:
    """Goes on and saves when it is asked to stop: it ends only by itself."""
    attempt, step = begin()
    for number in range(step + 1, upto + 1):
        try:
            await asyncio.sleep(pause)
            asked_at = boot()
            await attempt.save({"step": number})
            tell("saved", attempt, step=number, asked_at=asked_at)
        except (asyncio.CancelledError, outlast.LostLease):
            continue
    return done(attempt)


@app.task(limits=[PACED], timeout=3, retries=0, **SOON)
async def brief(seconds: float) -> dict[str, Any]:
    """Ends well within its timeout, unless its runner is stopped meanwhile."""
    attempt, _ = begin()
    await asyncio.sleep(seconds)
    return done(attempt)


@app.task(limits=[KEYED], **SOON)
async def bulky(data: str, seconds: float) -> dict[str, Any]:
    """Its arguments are more than what the kernel keeps for a client that does not read."""
    attempt, _ = begin()
    await asyncio.sleep(seconds)
    return done(attempt)


@app.task(limits=[PACED, TURN], **SOON)
async def snoozes(seconds: float) -> dict[str, Any]:
    attempt, _ = begin()
    if attempt.number % 3 == 1 and random.random() < 0.3:
        raise outlast.Throttled(PACED, after=seconds / 3)
    if attempt.number % 3 == 1:
        raise outlast.Snooze(seconds)
    return done(attempt)


@app.task(limits=[KEYED], **SOON)
async def pays(seconds: float) -> dict[str, Any]:
    """Its effect and its completion are one transaction.

    Where that holds the one write lock of a file, nothing else in this loop may run meanwhile.
    """
    attempt, _ = begin()
    async with transaction() as connection:
        await write(connection, attempt.job_id, attempt.token)
        if not app.url.startswith("sqlite"):
            await asyncio.sleep(seconds)
        await attempt.complete_in(connection, {"token": attempt.token})
        if not app.url.startswith("sqlite") and random.random() < 0.2:
            await asyncio.sleep(seconds * 10)  # its end gives back its permit with the commit
    return done(attempt)


@app.task(fair="tenant", aging=5, retries=4, **SOON)
async def fails(chance: float) -> dict[str, Any]:
    attempt, _ = begin()
    await asyncio.sleep(0.05)
    if random.random() < chance:
        raise Unlucky
    if random.random() < chance:
        raise outlast.Retry(after=0.3)
    return done(attempt)


@app.task(limits=[BUSY], retries=4, **SOON)
async def crashes(chance: float) -> dict[str, Any]:
    """Kills its runner, and so all attempts in it."""
    attempt, _ = begin()
    await asyncio.sleep(0.1)
    if random.random() < chance:
        ctypes.string_at(0)
    return done(attempt)


@app.task(timeout=3, **SOON)
def forks(seconds: float, hangs: bool) -> dict[str, Any]:
    """Its work is done by children; the first attempt may hang until its timeout."""
    attempt, _ = begin()
    children = [subprocess.Popen(["sleep", str(seconds)]) for _ in range(2)]
    for child in children:
        child.wait()
    if hangs and attempt.number == 1:
        time.sleep(60)
    return done(attempt)


@app.task(batch=6, batch_wait=0.3, **SOON)
async def batched(seconds: list[float]) -> list[dict[str, Any]]:
    """Many jobs in one call, which fails for one of them now and then."""
    attempts = outlast.current_batch()
    for attempt in attempts:
        tell("start", attempt, pid=os.getpid(), step=0)
    await asyncio.sleep(max(seconds))
    results = [done(attempt) for attempt in attempts]
    if random.random() < 0.2:
        raise outlast.ItemErrors({0: Unlucky()}, results)
    return results


@app.task(**SOON)
async def asks(timeout: float) -> dict[str, Any]:
    """Keeps a step, waits for an event, and fails now and then once it knows the outcome."""
    attempt, _ = begin()
    drawn = await attempt.step("draw", random.random)
    said: object = None
    try:
        said = await attempt.wait_event(answer_to(attempt.job_id), timeout=timeout)
    except TimeoutError:
        said = "nothing"
    tell("outcome", attempt, said=[drawn, said])
    await asyncio.sleep(0.05)
    if random.random() < 0.3:
        raise Unlucky
    return done(attempt)


def answer_to(job_id: int) -> str:
    """Return the name of the event for which a job of ``asks`` waits."""
    return f"answer-{job_id}"


@app.task(limits=[KEYED], **SOON)
async def part(seconds: float, child: tuple[int, int] | None = None) -> dict[str, Any]:
    """Begins a flow. ``child``: the job that has spawned it, and its number there."""
    attempt, _ = begin(child=child)
    await asyncio.sleep(seconds)
    return done(attempt)


@app.task(limits=[TURN], **SOON)
async def link(given: dict[str, Any] | None) -> dict[str, Any]:
    """Journals the result that it gets from the job before it."""
    return await gather([given])


@app.task(retries=4, **SOON)
async def gather(given: list[dict[str, Any] | None]) -> dict[str, Any]:
    """Journals the results that it gets from the jobs before it; fails now and then."""
    attempt, _ = begin()
    tell("given", attempt, tokens=[each and each["token"] for each in given])
    await asyncio.sleep(0.05)
    if random.random() < 0.1:
        raise Unlucky
    return done(attempt)


@app.task(retries=6, **SOON)
async def parent(children: int, seconds: float) -> dict[str, Any]:
    """Spawns a group and a chain, and waits for both in turn; their rows are not kept."""
    attempt, _ = begin()

    def child(number: int) -> Any:
        keys = {KEYED.name: str(number % KEYS)}
        call = part.using(limit_keys=keys, keep=1)
        return call.call(seconds, (attempt.job_id, number))

    side_by_side = await attempt.spawn(outlast.group(child(n) for n in range(children)))
    ordered = link.using(limit_keys={TURN.name: "children"})
    in_turn = await attempt.spawn(outlast.chain(child(children), ordered.call(outlast.RESULT)))
    spawned = [job.id for run in (side_by_side, in_turn) for job in run.jobs]
    tell("spawned", attempt, children=spawned)
    results = [*await attempt.wait_for(side_by_side), await attempt.wait_for(in_turn)]
    tell("gathered", attempt, missing=children + 1 - sum(each is not None for each in results))
    return done(attempt)


def any_flow(rng: random.Random) -> tuple[outlast.Flow, int]:
    """Return a flow, and how many jobs it has."""

    def one() -> Any:
        expires = rng.uniform(0.5, 8) if rng.random() < 0.1 else None
        call = part.using(limit_keys={KEYED.name: str(rng.randrange(KEYS))}, expires=expires)
        return call.call(rng.uniform(0.05, 0.5))

    width, length = rng.randint(1, 4), rng.randint(1, 3)
    ordered = link.using(limit_keys={TURN.name: "flows"})
    rest = [ordered.call(outlast.RESULT) for _ in range(length)]
    last = gather.call(outlast.RESULTS)
    if rng.random() < 0.3:
        on_dead = gather.using(on_dead=part.using(limit_keys={KEYED.name: "dead"}).call(0.05))
        return outlast.group(one() for _ in range(width)).then(
            on_dead.call(outlast.RESULTS)
        ), width + 2
    if rng.random() < 0.5:
        return outlast.chain(one(), *rest), 1 + length
    sides = [outlast.chain(one(), *rest) for _ in range(width)]
    return outlast.group(sides).then(last), width * (1 + length) + 1


def any_call(rng: random.Random) -> Any:
    """Return a call of some task."""
    which = rng.choices(list(_CALLS), [weight for weight, _ in _CALLS.values()])[0]
    return which, _CALLS[which][1](rng)


_CALLS = {
    quick: (30, lambda rng: (rng.random() * rng.choice([0.3, 0.3, 0.3, 6]),)),
    plain: (12, lambda rng: (rng.uniform(0.05, 1),)),
    steps: (12, lambda rng: (rng.randint(2, 30), rng.uniform(0.05, 0.3))),
    plain_steps: (8, lambda rng: (rng.randint(2, 20), rng.uniform(0.05, 0.3))),
    deaf_steps: (5, lambda rng: (rng.randint(2, 30), rng.uniform(0.05, 0.3))),
    snoozes: (7, lambda rng: (rng.uniform(0.1, 3),)),
    pays: (14, lambda rng: (rng.uniform(0, 0.3),)),
    fails: (5, lambda rng: (rng.uniform(0.1, 0.6),)),
    crashes: (3, lambda rng: (0.3,)),
    brief: (5, lambda rng: (rng.uniform(0.1, 1),)),
    bulky: (4, lambda rng: ("x" * BULK, rng.uniform(0.05, 0.5))),
    batched: (8, lambda rng: (rng.uniform(0.05, 0.5),)),
    asks: (6, lambda rng: (rng.choice([rng.uniform(0.1, 3), UNTIL_ANSWERED]),)),
    parent: (5, lambda rng: (rng.randint(1, 5), rng.uniform(0.05, 0.5))),
    forks: (4, lambda rng: (rng.uniform(0.05, 1), rng.random() < 0.2)),
}  # task: (how often, its arguments)
