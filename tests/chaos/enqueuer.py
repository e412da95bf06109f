"""``python -m tests.chaos.enqueuer NAME FOLDER SEED``: a program that enqueues until SIGTERM, and
that looks now and then whether the permits of limits count what runs.

What the store has accepted goes to the program's ledger. What got no answer is enqueued again; the
key makes that safe. While there is a file ``brake`` in the folder it waits.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sqlite3
import sys
from collections import deque
from pathlib import Path
from typing import Any

import asyncpg

import outlast
from harness.journal import boot
from tests.chaos.tasks import (
    BUSY,
    KEYED,
    KEYS,
    PACED,
    TURN,
    answer_to,
    any_call,
    any_flow,
    app,
    asks,
)
from tests.crash.payments import transaction

ANSWER_SECONDS = 5.0  # how long it waits for the store
PAUSE = 0.35  # seconds between two deeds, at most
BRAKE = "brake"
PAUSED = ("quick", "plain", "steps", "pays")  # tasks that are paused now and then
KEPT, ROLLED_BACK = "kept", "rolled back"  # in a job's tenant: the fate of its transaction
UNANSWERED = (outlast.StoreUnavailable, TimeoutError)
# What the program's own connection also raises when the database is away or busy.
BROKEN = (
    *UNANSWERED, OSError, asyncpg.PostgresError, asyncpg.InterfaceError,
    asyncpg.InternalClientError, sqlite3.Error,
)  # fmt: skip


class Enqueuer:
    """Enqueues one by one, many at once and in transactions; cancels, requeues and pauses."""

    def __init__(self, name: str, folder: Path, seed: int) -> None:
        self._name = name
        self._folder = folder
        self._rng = random.Random(f"{seed}-{name}")
        self._number = 0
        self._known: deque[int] = deque(maxlen=60)
        self._flows: deque[outlast.FlowRun] = deque(maxlen=10)
        self._asked: deque[int] = deque(maxlen=10)

    async def go_on(self) -> None:
        """Do one thing after the other until cancelled."""
        deeds = {
            self.one: 70,
            self.flow: 8,
            self.end_flow: 2,
            self.answer: 8,
            self.shared_key: 6,
            self.many: 6,
            self.in_transaction: 10,
            self.cancel: 5,
            self.requeue: 5,
            self.pause: 2,
            self.look_at_limits: 5,
            self.change_limit: 3,
        }
        await self.one()  # also with the brake on: a rehearsal waits for its first job
        while True:
            await asyncio.sleep(self._rng.uniform(0, PAUSE))
            if not (self._folder / BRAKE).exists():
                await self._rng.choices(list(deeds), list(deeds.values()))[0]()

    async def one(self) -> None:
        """Enqueue one job."""
        await self._until_accepted([self._call(key=self._key())])

    async def many(self) -> None:
        """Enqueue some at once."""
        number = self._rng.randint(2, 8)
        await self._until_accepted([self._call(key=self._key()) for _ in range(number)])

    async def shared_key(self) -> None:
        """Enqueue one under a key that others of its task use, too."""
        await self._until_accepted([self._call(shares_key=True)])

    async def in_transaction(self) -> None:
        """Enqueue as part of a transaction, and now and then roll it back."""
        kept = self._rng.random() < 0.7
        tenant = KEPT if kept else ROLLED_BACK
        asked_at = boot()
        try:
            async with asyncio.timeout(ANSWER_SECONDS), transaction() as connection:
                call = self._call(key=self._key(), tenant=tenant, connection=connection)
                (job,) = await app.enqueue_many([call])
                if not kept:
                    raise _RollBack
        except (*BROKEN, _RollBack):
            return  # whether it was committed is unknown, so it is not noted as accepted
        self._accepted([job], [call], asked_at)

    async def flow(self) -> None:
        """Enqueue a flow; one that got no answer is left alone, whether it is there or not."""
        flow, number = any_flow(self._rng)
        name = f"flow-of-{number}" if self._rng.random() < 0.5 else None
        asked_at = boot()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                run = await app.enqueue(flow, name=name)
        except UNANSWERED:
            return
        self._flows.append(run)
        self._note([(job, None) for job in run.jobs], asked_at)

    async def end_flow(self) -> None:
        """Cancel a flow, or one of its jobs, or retry it; a job that a person requeues would not
        wait for others."""
        if not self._flows:
            return
        run = self._rng.choice(list(self._flows))
        deeds = [run.cancel, run.retry, self._rng.choice(run.jobs).cancel]
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._rng.choices(deeds, [1, 3, 1])[0]()
        except (*UNANSWERED, outlast.JobNotFound):  # the judge says whether it may be missing
            return

    async def answer(self) -> None:
        """Send the event for which a job waits, perhaps; now and then in a transaction."""
        if not self._asked:
            return
        name, value = answer_to(self._asked.popleft()), self._rng.random()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if self._rng.random() < 0.7:
                    await app.send_event(name, value)
                    return
                async with transaction() as connection:
                    await app.send_event(name, value, connection=connection)
                    if not app.url.startswith("sqlite"):  # there it holds the one write lock
                        await asyncio.sleep(self._rng.uniform(0, 0.5))
        except BROKEN:
            return

    async def cancel(self) -> None:
        """Cancel some job."""
        await self._operate(app.cancel)

    async def requeue(self) -> None:
        """Requeue some job, if it is dead or cancelled."""
        await self._operate(app.requeue)

    async def pause(self) -> None:
        """Pause a task for a moment; now and then what runs of it is asked to stop."""
        task, stop = self._rng.choice(PAUSED), self._rng.random() < 0.3
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await app.pause(task=task, stop=stop, wait=self._rng.uniform(0, 1))
        except UNANSWERED:
            pass  # it may be in force all the same
        await asyncio.sleep(self._rng.uniform(0.3, 3))
        while not await self._resumes(task):
            await asyncio.sleep(0.2)

    async def look_at_limits(self) -> None:
        """Look whether a permit counts other attempts than those that run, or more than it may.
        Each statement reads one snapshot."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                wrong = await app.stores.ask(lambda store: store.inspector.miscounted())
                permits = [
                    (permit, limit.spec.running or 0)
                    for limit in (KEYED, TURN)
                    for permit in await app.limits.permits(limit.name)
                ]
        except UNANSWERED:
            return
        above = [each for each, most in permits if each.used - each.noted > most]
        if wrong or above:
            with (self._folder / f"limits-{self._name}").open("a") as file:
                file.write(json.dumps({"wrong": str(wrong), "above": str(above)}) + "\n")

    async def change_limit(self) -> None:
        """Change a limit, reset it, or hold another one for a moment."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                which = self._rng.random()
                if which < 0.5:
                    await app.limits.set(BUSY.name, running=self._rng.randint(2, 12))
                elif which < 0.7:
                    await app.limits.reset(BUSY.name)
                else:
                    await app.limits.hold(PACED.name, self._rng.choice([0, 0.5, 2]))
        except (*UNANSWERED, outlast.LimitNotFound):
            return

    async def _resumes(self, task: str) -> bool:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await app.resume(task=task)
        except UNANSWERED:
            return False
        return True

    async def _operate(self, verb: Any) -> None:
        if not self._known:
            return
        job_id = self._rng.choice(list(self._known))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await verb(job_id)
        except (*UNANSWERED, outlast.JobNotFound):  # the judge says whether it may be missing
            return

    async def _until_accepted(self, calls: list[Any]) -> None:
        while True:
            asked_at = boot()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    jobs = await app.enqueue_many(calls)
            except UNANSWERED:
                await asyncio.sleep(0.2)
            else:
                self._accepted(jobs, calls, asked_at)
                return

    def _call(self, *, shares_key: bool = False, **placement: Any) -> Any:
        task, arguments = any_call(self._rng)
        if shares_key:
            placement["key"] = f"{task.name}-{self._rng.randint(1, 2)}"
        if self._rng.random() < 0.1:
            placement["delay"] = self._rng.uniform(0.1, 3)
        if self._rng.random() < 0.15:
            placement["expires"] = placement.get("delay", 0) + self._rng.uniform(0.5, 8)
        if self._rng.random() < 0.1 and TURN not in task.limits:
            placement["priority"] = self._rng.randint(-5, 5)
        if keyed := [each for each in (KEYED, TURN) if each in task.limits]:
            key = str(self._rng.randrange(KEYS))
            placement["limit_keys"] = {each.name: key for each in keyed}
        return task.using(**placement).call(*arguments)

    def _key(self) -> str:
        self._number += 1
        return f"{self._name}-{self._number}"

    def _accepted(self, jobs: list[Any], calls: list[Any], asked_at: float) -> None:
        self._known.extend(job.id for job in jobs)
        self._asked.extend(
            job.id for job, call in zip(jobs, calls, strict=True) if call.job.task == asks.name
        )
        self._note([(job, call.job.key) for job, call in zip(jobs, calls, strict=True)], asked_at)

    def _note(self, jobs: list[tuple[Any, str | None]], asked_at: float) -> None:
        times = {"asked_at": asked_at, "at": boot()}
        lines = [
            json.dumps({"job": job.id, "key": key, "created": job.created, **times})
            for job, key in jobs
        ]
        with (self._folder / f"ledger-{self._name}").open("a") as ledger:
            ledger.write("".join(f"{line}\n" for line in lines))


class _RollBack(Exception):
    pass


async def main(name: str, folder: Path, seed: int) -> None:
    """Go on until SIGTERM."""
    going = asyncio.create_task(Enqueuer(name, folder, seed).go_on())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, going.cancel)
    await asyncio.wait([going])
    await app.close()
    if not going.cancelled():
        going.result()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
