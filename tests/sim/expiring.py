"""``python -m tests.sim.expiring FIRST LAST [TWIN]``: seeds in which most jobs expire soon.

Workers are drained, everything is paused at times (``pausing.py``, with its law), loops of runners
are blocked, some workers run an older release that cannot read each call, and clients and a
schedule go on with keys whose holders may have expired. The laws: an attempt that is claimed, and
code that begins, does so before its job expires; no job that is handed back before it has begun
waits for a time at which it has expired; one that has begun expires no more; none is ended as
expired before it is; and none that has expired stands in the way of a call or of a tick. They are
judged by the tables' own rows, at the moment of each call, by the store's clock, which may step.
One more is judged by what a worker holds: it takes back what has expired and has not begun,
wherever that lies, within ``BACK_LOOKS`` looks of its watchdog.
With the name of a twin, which lacks one guard, the first violation is printed instead.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import msgspec

import outlast
from outlast.store.schedules import NewSchedule
from outlast.store.sqlite import exchange as sqlite_exchange
from outlast.store.sqlite import jobs as sqlite_jobs
from outlast.store.values import NewJob
from outlast.worker.claims import exchange
from outlast.worker.runners import watchdog
from outlast.worker.runners.watchdog import Watchdog
from tests.sim.chunks import Twins, play_kind
from tests.sim.loop import AROUND
from tests.sim.pausing import PausingWorld
from tests.sim.schedules import schedule
from tests.sim.tasks import RUNNER, release
from tests.sim.twins import without
from tests.sim.witness import Verb, Witness
from tests.sim.worker_deeds import drain_worker

SHARE = 0.7  # of the jobs that expire
LEAST, MOST = 3.5, 20.0  # virtual seconds until they do; none is enqueued for later than 3 s
SWEPT = 1  # jobs that an exchange ends at most, so that claims meet others, too
CALLS, CALLED_KEYS = 60, 3
DEPLOYS = 6
BACK_LOOKS = 4  # of a watchdog, each 0.25 s
STEP_SECONDS = 0.1  # from the begin of code to its first step, and what clocks drift by meanwhile


async def _greet(name: str, lang: str) -> None:
    RUNNER.get().step(outlast.current())


async def _greet_before(name: str) -> None:
    RUNNER.get().step(outlast.current())


NEW, OLD = (
    [release(sealed=sealed, greet=greet) for sealed in (False, True)]
    for greet in (_greet, _greet_before)
)


class ExpiringWorld(PausingWorld):
    """A world whose jobs expire soon, and whose workers are drained and paused."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.most = seed % 4  # 0: as in production
        self.due: dict[int, float] = {}  # token -> when its code has to have begun, virtual
        self._ran: set[int] = set()  # jobs whose code has begun
        self._late: dict[Any, Counter[int]] = {}  # of a watchdog: token -> looks that found it so

    def app_of(self, owner: Any) -> outlast.App:
        """Return the application that a worker's runners have: each third one's is older."""
        return (NEW if int(owner.name[1:]) % 3 else OLD)[self.sealed]

    def _some_job(self, index: int) -> NewJob:
        new = super()._some_job(index)
        return self._expiring(new) if self._own_chance() < SHARE else new

    def _expiring(self, new: NewJob) -> NewJob:
        seconds = LEAST + (MOST - LEAST) * self._own_chance() ** 2
        return msgspec.structs.replace(new, expires=seconds)

    async def _enqueue(self) -> None:
        await self._insist(lambda: self.client.put_schedules([_tick()]))
        async with asyncio.TaskGroup() as group:
            group.create_task(super()._enqueue())
            group.create_task(self._call_again_and_again())
            group.create_task(self._deploy())

    async def _call_again_and_again(self) -> None:
        for index in range(CALLS):
            await asyncio.sleep(2.0 * self._own_chance() ** 2)
            if self._own_chance() < 0.5:
                await self._enqueue_one(_call(index))
            else:  # not among those that have to end: maybe only older workers are left
                new = self._expiring(NewJob(task="greet", args='{"name":"ada","lang":"en"}'))
                await self._insist(lambda new=new: self.client.enqueue([new]))  # type: ignore[misc]

    async def _deploy(self) -> None:
        for _ in range(DEPLOYS if self.faulty else 0):
            await asyncio.sleep(3.0 * self._own_chance())
            self._block_a_loop()
            await asyncio.sleep(3.0 * self._own_chance())
            self.plan.seen["worker drained"] += drain_worker(self)

    def _stand_ins(self) -> Iterator[Any]:
        yield from super()._stand_ins()
        yield mock.patch.object(sqlite_exchange, "EXPIRE_MAX", SWEPT)
        real, watch = Witness._exchanged, Witness.watch

        def exchanged(witness: Any, me: Any, ended: Any, reply: Any, before: Any) -> None:
            real(witness, me, ended, reply, before)
            _judge(witness, reply.claimed)

        async def watched(witness: Any, name: str, verb: Any, args: Any, kwargs: Any) -> Any:
            if name not in {"enqueue", "fire"}:
                return await watch(witness, name, verb, args, kwargs)
            mark = AROUND.set(Keyed(witness, name, args))
            try:
                return await verb(*args, **kwargs)
            finally:
                AROUND.reset(mark)

        look = Watchdog.run_once

        async def looked(dog: Any) -> float:
            self._judge_late(dog)
            return await look(dog)

        yield mock.patch.object(Watchdog, "run_once", looked)
        yield mock.patch.object(Witness, "_exchanged", exchanged)
        yield mock.patch.object(Witness, "watch", watched)

    def _judge_late(self, dog: Any) -> None:
        """Hold a worker to it that nothing lies unbegun in it long after its expiry, where the
        thread of its runner that reads goes on."""
        now, before = dog._clock.boot(), self._late.get(dog, Counter())
        late: Counter[int] = Counter()
        for token, running in dog._in_flight.running.items():
            by, runner = running.claimed.begin_by, dog._control.runner_of(token)
            stands = runner is not None and (runner.dead or runner.reader.stopped)
            begun = token in self._begun or (runner is not None and token in runner.begun)
            if by is not None and now >= by and not stands and not begun:
                late[token] = before[token] + 1
        self._late[dog] = late
        for token in (token for token, looks in late.items() if looks == BACK_LOOKS):
            told = f"attempt {token} has expired, has not begun, and its worker holds it"
            self.witness.wrong("what has expired is taken back where it lies", told)

    def stepped(self, runner: Any, attempt: Any) -> None:
        """User code has taken a step: its first one is where it begins."""
        late = self.loop.now - self.due.pop(attempt.token, self.loop.now)
        if late > STEP_SECONDS and self._is_held(attempt.token):
            told = f"the code of job {attempt.job_id} began {late:.3f} s late"
            self.witness.wrong("what has expired never begins", told)
        self._ran.add(attempt.job_id)
        super().stepped(runner, attempt)

    def ends(self) -> Counter[str]:
        """Return how the jobs that expire have ended; expired, where that was why."""
        return self._ends

    async def _end(self) -> None:
        await super()._end()
        sql = """SELECT id, CASE WHEN state = 'cancelled' AND started_at IS NULL
                                  AND cancel_requested = 0 THEN 'expired' ELSE state END,
                        ended_at - expires_at
                 FROM outlast_jobs WHERE expires_at IS NOT NULL"""
        rows = self.witness._rows.execute(sql).fetchall()
        self._ends = Counter(how for _, how, _ in rows)
        for job_id, how, late in rows:
            if how == "expired" and (late < 0 or self._has_run(job_id)):
                begun = "had begun" if self._has_run(job_id) else "had not begun"
                told = f"job {job_id}, which {begun}, was ended {late:.3f} s after it expires"
                self.witness.wrong("what has begun expires no more, and no pause ends a job", told)

    def _has_run(self, job_id: int) -> bool:
        return job_id in self._ran and self.witness.went_back_at < 0


def _tick() -> NewSchedule:
    """Return a schedule whose ticks skip each other, and expire before the next one."""
    new = schedule("brief", 2)
    return msgspec.structs.replace(new, call=msgspec.structs.replace(new.call, expires=1.0))


def _call(index: int) -> NewJob:
    args = '{"steps":1,"pause":0.1,"ending":"complete","saves":false}'
    return NewJob(task="work", args=args, key=f"call {index % CALLED_KEYS}", expires=1.0)


class Keyed(Verb):
    """A verb that stores jobs under keys."""

    def before(self) -> None:
        """Read which jobs have expired and are there still."""
        sql = """SELECT id FROM outlast_jobs WHERE state = 'queued' AND key IS NOT NULL
                 AND expires_at <= ?"""
        now = self._witness._world.store_clock.wall()
        self._expired = {row[0] for row in self._witness._rows.execute(sql, (now,))}

    def after(self, reply: Any) -> None:
        """Judge: a call is not given one of them, and no tick is skipped for it."""
        given = (each.job_id if self._name == "enqueue" else each.in_the_way for each in reply)
        for job_id in self._expired.intersection(given):
            told = f"job {job_id} had expired, and was in the way of {self._name}"
            self._witness.wrong("what has expired holds no key", told)


def _judge(witness: Any, claimed: list[Any]) -> None:
    """Hold what was claimed, and what waits, to the laws."""
    for each in claimed:
        sql = "SELECT started_at - expires_at FROM outlast_jobs WHERE id = ?"
        (late,) = witness._rows.execute(sql, (each.job_id,)).fetchone()
        if late is None:
            continue
        witness._world.due[each.token] = witness._world.loop.now - late
        if late >= 0:
            told = f"job {each.job_id} was claimed {late:.3f} s late"
            witness.wrong("what has expired never begins", told)
    sql = """SELECT j.id, j.run_at - j.expires_at, a.outcome FROM outlast_jobs AS j
             JOIN outlast_attempts AS a ON a.token = j.token
             WHERE j.state = 'queued' AND j.expires_at IS NOT NULL
               AND (j.run_at > max(j.expires_at, a.ended_at)
                    OR a.outcome NOT IN ('released', 'undecodable'))"""
    for job_id, late, outcome in witness._rows.execute(sql).fetchall():
        told = f"job {job_id} would begin {late:.3f} s after it expires, after it was {outcome}"
        witness.wrong("what has begun expires no more, and no pause ends a job", told)


_PAUSE = "ifnull(CASE WHEN NOT :began THEN max(0.0, expires_at - :now) / 2 END, 1e15)"
TWINS: Twins = {
    "nothing is ended before a claim": (
        lambda: [mock.patch.object(sqlite_exchange, "expire", return_value=0)],
        1,
    ),
    "claims do not look at what they meet": (
        lambda: [
            mock.patch.object(sqlite_exchange.Basket, "_keep_unexpired", lambda _, found: found)
        ],
        3,
    ),
    "what has begun expires all the same": (
        lambda: [
            without(sqlite_exchange._SQL, "end", "IN ('queued', 'blocked') AND :began", "IS NULL")
        ],
        1,
    ),
    "code that has waited begins all the same": (
        lambda: [mock.patch.object(exchange, "_expiring", lambda claimed, _: claimed)],
        18,
    ),
    "a pause of ours may outlast an expiry": (
        lambda: [without(sqlite_exchange._SQL, "end", _PAUSE, "1e15")],
        2,
    ),
    "what has expired keeps its key": (lambda: [mock.patch.object(sqlite_jobs, "free_keys")], 1),
    "what has expired is left where it lies": (
        lambda: [mock.patch.object(watchdog, "_has_expired", return_value=False)],
        19,
    ),
}


if __name__ == "__main__":
    play_kind(
        ExpiringWorld,
        TWINS,
        lambda world: world.ends(),
        lambda ends: f"{sum(each.get('expired', 0) for each in ends)} jobs expired",
    )
