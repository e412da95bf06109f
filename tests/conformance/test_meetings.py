"""Jobs that wait for a time, for others or for an event, and that keep steps, meet all else that
moves a job, in an order at random: none starts before it may, and none is left behind."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from itertools import combinations, product
from typing import Any

import pytest

from outlast.errors import JobNotFound, LostLease, UsageError
from outlast.insight import bulk
from outlast.insight.acting import By, Verb
from outlast.insight.bulk import BulkFilter
from outlast.insight.verify import verify
from outlast.model.crash import CrashKind
from outlast.model.job import ENDED, Policy, State
from outlast.model.lifecycle import OutcomeKind, Transition
from outlast.store.logs import JobLog, LogLine
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter
from outlast.store.values import (
    Answer,
    Claimed,
    ClaimRequest,
    NamedStep,
    NewEvent,
    NewJob,
    OnKey,
    Requeued,
    Save,
    Spawn,
    Upstream,
    Wants,
)
from outlast.worker.claims.until_empty import UntilEmpty
from tests.app.in_process_kit import run_sql, transaction
from tests.conformance.kit import TASK, Hands, crashed, ended, lost_worker, on
from tests.conformance.limits_kit import declare, limited, need
from tests.conformance.test_aging import aging

SOON, LATER = 0.02, 3_600.0  # seconds
LEAST, MOST = 3, 30  # rounds
ACTS = {
    "enqueue": 12, "trip": 16, "act": 3, "bulk": 0.3, "death": 1, "complete_in": 1, "save": 3,
    "send": 0.5, "prune": 1, "limit": 1, "wait": 1, "trips": 2,
}  # fmt: skip
ENDS = {
    "completed": 5, "crashed": 2, "timeout": 1, "bystander": 1, "released": 1, "unbegun": 1,
    "snoozed": 1, "event": 3, "blocks": 1.5, "cancelled": 0.3,
}  # fmt: skip
MEANS = {
    "crashed": "budgets", "timeout": "limits", "bystander": "suspects", "released": "drain",
    "unbegun": "claimed ahead", "snoozed": "due times", "event": "events", "blocks": "flows",
    "cancelled": "cancel",
}  # fmt: skip
GOOD = {
    Wants.COMPLETED: {State.COMPLETED}, Wants.DEAD: {State.DEAD}, Wants.ENDED: ENDED,
}  # fmt: skip
ACTED_ON = {
    "cancel": [State.QUEUED, State.BLOCKED, State.RUNNING], "requeue": [State.DEAD],
    "skip": [State.DEAD, State.BLOCKED], "discard": [State.DEAD],
}  # fmt: skip
UNFINISHED = "SELECT id, state, position, run_at, stream FROM outlast_jobs WHERE ended_at IS NULL"
NO_EVENT = "id NOT IN (SELECT w.job_id FROM outlast_waits AS w WHERE w.token = outlast_jobs.token)"
STRAY = "SELECT '{0}', job_id FROM outlast_{0} WHERE job_id NOT IN (SELECT id FROM outlast_jobs)"
LEFT = " UNION ALL ".join(
    [
        *map(STRAY.format, ("steps", "waits", "dependencies", "logs")),
        "SELECT 'notice', job_id FROM outlast_upstream_notices",
        "SELECT 'permit', used FROM outlast_permits WHERE used <> 0",
    ]
)
WAITS = ("flows", "steps", "events", "due times")
OTHERS = (
    "expiry", "keys", "keep", "logs", "pauses", "claimed ahead", "suspects", "drain", "deaths",
    "budgets", "limits", "bulk acts", "checkpoints", "complete_in", "cancel", "until empty",
    "permits", "streams", "order", "ageing", "fair turns", "windows",
)  # fmt: skip
# the names of tests/pairs.md; jobs that wait for others take no window, and an end is the last
NEVER = {frozenset(pair) for pair in [("flows", "windows"), ("until empty", "complete_in")]}
PAIRS = [*combinations(WAITS, 2), *product([*WAITS, "until empty"], OTHERS)]
WANTED = {frozenset(pair) for pair in PAIRS if len({*pair}) > 1} - NEVER


class Play:
    """Acts at random. ``met``: what each job has met, by its id."""

    def __init__(self, stores: list[Store], url: str, seed: int) -> None:
        self.stores = stores
        self._url = url
        self._dice = random.Random(seed)
        self.met = defaultdict[int, set[str]](set)
        self._held: dict[Hands, list[Claimed]] = {}
        self._workers = 0
        self._steps = defaultdict[int, set[str]](set)
        self._saved: dict[int, str] = {}
        self._jobs: dict[int, NewJob] = {}
        self._upstream: dict[int, list[tuple[int, Wants]]] = {}
        self._ended: dict[int, State] = {}
        self._waits: dict[int, str] = {}  # for an event, for long
        self._sent: set[str] = set()
        self._freed: set[int] = set()  # jobs that a person has changed
        self.rounds = 0

    async def begin(self) -> None:
        store = self.stores[0]
        await declare(store, "a", running=3)
        await declare(store, "r", spacing=0.005, burst=2.0)
        await declare(store, "k", running=1, per="limit_key")
        await declare(store, "o", running=1, per="limit_key", ordered=True)
        for store in self.stores:
            await self._join(store)

    async def _join(self, store: Store) -> None:
        self._workers += 1
        hands = await Hands.on(store, f"w{self._workers}", lease=600.0, heartbeat=100.0)
        self._held[hands] = []

    async def act_once(self) -> None:
        name = self._dice.choices([*ACTS], [*ACTS.values()])[0]
        await getattr(self, f"_{name}")()

    # ---------------------------------------------------------------------------- enqueue

    def _draw_job(self, place: int, upstream: list[int]) -> tuple[NewJob, set[str]]:
        dice, met, own = self._dice, set[str](), dict[str, Any]()

        def chance(name: str, share: float) -> bool:
            if dice.random() >= share:
                return False
            met.add(name)
            return True

        pool = [*upstream, *range(-1, -1 - place, -1)]
        if pool and chance("flows", 0.35):
            wants = dice.choice([Wants.COMPLETED, Wants.COMPLETED, Wants.ENDED, Wants.DEAD])
            chosen = dice.sample(pool, min(len(pool), dice.randint(1, 3)))
            own["after"] = tuple(Upstream(each, wants) for each in chosen)
        if chance("due times", 0.3):
            own["delay"] = dice.choice([SOON, SOON, LATER])
        if chance("expiry", 0.2):
            own["expires"] = dice.choice([0.03, 5.0])
        if chance("keys", 0.2):
            own["key"] = f"k{dice.randint(0, 5)}"
            if "after" not in own and chance("windows", 0.6):
                own["on_key"] = OnKey(window=0.5)
            elif "after" not in own:
                on_key = [None, OnKey(replaces=True), OnKey(until_start=True)]
                own["on_key"] = dice.choice(on_key)
        keep = 0.0 if chance("keep", 0.15) else None
        retries = dice.choice([0, 1, 3])
        policy = Policy(retries=retries, backoff_first=SOON, backoff_max=SOON, keep=keep)
        own["policy"] = policy
        if chance("ageing", 0.15):
            own["waited"] = -own.pop("delay", 0.0)
            priority = dice.randint(-5, 5)
            met |= {"streams", "permits"}
            return aging(need("a"), now=time.time(), priority=priority, **own), met
        own |= {"queue": dice.choice(["default", "other"]), "priority": dice.choice([0, 0, 3])}
        needs = []
        if chance("order", 0.15):
            needs = [need("o", dice.choice(["p", "q"]))]
        elif chance("permits", 0.4):
            needs = [dice.choice([need("a"), need("r"), need("k", "x1"), need("k", "x2")])]
        tenant = dice.choice(["t1", "t2"]) if chance("fair turns", 0.3) else None
        if needs or tenant:
            met.add("streams")
            return limited(*needs, fair=tenant, **own), met
        return NewJob(task=TASK, **own), met

    async def _enqueue(self) -> None:
        upstream = [n for n in [*self._jobs][-30:] if n not in self._ended]
        drawn = [self._draw_job(n, upstream) for n in range(self._dice.choice([1, 2, 5, 12]))]
        if any(job.on_key for job, _ in drawn):
            drawn = [(job, met) for job, met in drawn if not job.after]
        try:
            found = await self._dice.choice(self.stores).enqueue([job for job, _ in drawn])
        except (JobNotFound, UsageError):  # one upstream was deleted, or is kept for no time
            return
        for (job, met), one in zip(drawn, found, strict=True):
            if not one.created:  # it may have got the new arguments and place
                self._jobs.pop(one.job_id, None)
                continue
            self._jobs[one.job_id] = job
            self.met[one.job_id] |= met
            self._upstream[one.job_id] = [
                (up.job if up.job >= 0 else found[-1 - up.job].job_id, up.wants) for up in job.after
            ]

    # ------------------------------------------------------------------------------ trips

    async def _trips(self) -> None:
        """Two workers at once, on sessions of their own."""
        one, other = self._dice.sample([*self._held], 2)
        await asyncio.gather(self._trip(one), self._trip(other))

    async def _trip(self, hands: Hands | None = None) -> None:
        dice = self._dice
        hands = hands or dice.choice([*self._held])
        held = self._held[hands]
        count = dice.randint(0, len(held))
        given, self._held[hands] = held[:count], held[count:]
        ends = [await self._draw_end(hands.store, one) for one in given]
        request: dict[str, Any] = {"limit": dice.choice([0, 1, 3, 20])}
        request["not_tenants"] = ("t1",) if dice.random() < 0.2 else ()
        request["not_queues"] = ("other",) if dice.random() < 0.2 else ()
        request["solo"] = int(dice.random() < 0.3)
        reply = await hands.exchange(*ends, **request)
        for one, end, answer in zip(given, ends, reply.answers, strict=True):
            self._note_end(hands, one, end, answer)
        for job_id, job in self._jobs.items():
            if job.tenant in request["not_tenants"] or job.queue in request["not_queues"]:
                self.met[job_id].add("pauses")
        for one in reply.claimed:
            assert one.tenant not in request["not_tenants"]
            assert one.queue not in request["not_queues"]
            await self._check_start(hands.store, one)
            self._held[hands].append(one)

    async def _check_start(self, store: Store, one: Claimed) -> None:
        """Check that this attempt may begin now."""
        running = [each.job_id for held in self._held.values() for each in held]
        assert one.job_id not in running
        assert one.expires_in is None or one.expires_in > 0
        needs = self._jobs[one.job_id].needs if one.job_id in self._jobs else None
        if needs and '"o"' in needs:
            others = [self._jobs[n].needs for n in running if n in self._jobs]
            assert needs not in others, "its ordered key is held"
        event = self._waits.pop(one.job_id, None)
        if one.job_id not in self._freed:
            assert one.waited > -0.001
            assert event is None or event in self._sent
            for up, wants in self._upstream.get(one.job_id, ()):
                assert up in self._freed or self._ended.get(up) in {None, *GOOD[wants]}
        assert one.checkpoint == self._saved.get(one.job_id)
        for name in self._steps[one.job_id]:
            (step,) = await store.find_steps([NamedStep(one.job_id, one.token, name, None)])
            assert step.answer is Answer.ALREADY, f"step {name} is lost"
        self._ended.pop(one.job_id, None)

    async def _draw_end(self, store: Store, one: Claimed) -> Transition:
        """Choose an end, and do what comes before it."""
        dice = self._dice
        kind = dice.choices([*ENDS], [*ENDS.values()])[0]
        delay = dice.choice([0.0, SOON])
        if kind == "event":
            name = self._draw_event()
            await self._keep_step(store, one, f"end {name}")
            delay = dice.choice([SOON, LATER])
            self.met[one.job_id] |= {"events", "due times"}
            return ended(one, OutcomeKind.SNOOZED, delay=delay, event=name)
        if kind == "blocks" and not await self._spawn(store, one):
            return ended(one, result="2")
        self.met[one.job_id].add(MEANS.get(kind, "flows"))
        if kind in {"crashed", "timeout", "bystander"}:
            self.met[one.job_id].add("due times")
            incident = dice.randint(1, 3) if kind == "bystander" else None
            crash = {"timeout": CrashKind.TIMEOUT, "bystander": CrashKind.BYSTANDER}
            return crashed(one, crash.get(kind, CrashKind.ERROR), incident=incident)
        if kind in {"released", "unbegun"}:
            return ended(one, OutcomeKind.RELEASED, began=kind == "released", delay=delay)
        if kind in {"snoozed", "blocks"}:
            return ended(one, OutcomeKind.SNOOZED, delay=delay, blocks=kind == "blocks")
        return ended(one, OutcomeKind(kind), result="1" if kind == "completed" else None)

    async def _spawn(self, store: Store, one: Claimed) -> bool:
        """Let an attempt wait for children of its own."""
        number = len(self._steps[one.job_id])
        step = NamedStep(one.job_id, one.token, f"spawn {number}", "1")
        policy = Policy(retries=self._dice.choice([0, 1]), backoff_first=SOON, backoff_max=SOON)
        try:
            children = await store.spawn(
                [NewJob(task=TASK, policy=policy)] * 2, Spawn(step, number * 9)
            )
        except LostLease:
            return False
        self._steps[one.job_id].add(step.name)
        self.met[one.job_id] |= {"flows", "steps"}
        ids = [each.job_id for each in children]
        for each in ids:
            self.met[each].add("flows")
        return await store.watch_children(one.job_id, one.token, ids)

    def _note_end(self, hands: Hands, one: Claimed, end: Transition, answer: Answer) -> None:
        if answer is Answer.BUSY:
            self._held[hands].append(one)
        elif answer is Answer.ACCEPTED and end.state in ENDED:
            self._ended[one.job_id] = end.state
        elif answer is Answer.ACCEPTED and end.event is not None and end.delay == LATER:
            self._waits[one.job_id] = end.event

    # ------------------------------------------------------------------------- other acts

    async def _keep_step(self, store: Store, one: Claimed, name: str) -> None:
        (answer,) = await store.keep_steps([NamedStep(one.job_id, one.token, name, '"v"')])
        if answer in {Answer.ACCEPTED, Answer.ALREADY}:
            self._steps[one.job_id].add(name)
            self.met[one.job_id].add("steps")

    async def _save(self) -> None:
        hands = self._dice.choice([*self._held])
        for one in self._held[hands][:3]:
            kind = self._dice.choice(["steps", "checkpoints", "logs"])
            self.met[one.job_id].add(kind)
            if kind == "steps":
                await self._keep_step(hands.store, one, f"s{self._dice.randint(0, 3)}")
            elif kind == "checkpoints":
                number = len(self.met)  # rises
                save = Save(one.job_id, one.token, number, str(number))
                if await hands.store.checkpoint([save]) == [Answer.ACCEPTED]:
                    self._saved[one.job_id] = save.value
            else:
                log = JobLog(one.job_id, one.token, one.number, [LogLine(1.0, "line")])
                await hands.store.keep_logs([log])

    async def _complete_in(self) -> None:
        """Complete the job that has met most: one that waited for an event seldom runs."""
        running = [(hands, one) for hands, held in self._held.items() for one in held]
        if not running:
            return
        hands, one = max(running, key=lambda pair: len(self.met[pair[1].job_id]))
        async with transaction(self._url) as connection:
            done = await on(connection).complete(one.job_id, one.token, "1")
        assert done
        self._held[hands].remove(one)
        self.met[one.job_id].add("complete_in")
        self._ended[one.job_id] = State.COMPLETED

    async def _send(self, name: str | None = None) -> None:
        name = name or self._draw_event()
        self._sent.add(name)
        await self._dice.choice(self.stores).send_event(NewEvent(name, "[1]"))

    async def _death(self) -> None:
        hands = next(iter(self._held))
        for one in self._held.pop(hands):
            self.met[one.job_id].add("deaths")
        await hands.vanish()
        await hands.store.reclaim(lost_worker)
        await self._join(hands.store)

    async def _prune(self) -> None:
        store = self.stores[0]
        await store.prune(jobs_older_than=0.2, workers_older_than=1e6, dead_older_than=0.2)
        await store.prune(jobs_older_than=1e6, workers_older_than=1e6, events_older_than=0.1)

    async def _limit(self) -> None:
        await declare(self.stores[0], "a", running=self._dice.choice([1, 3, 5]))

    async def _wait(self) -> None:
        await asyncio.sleep(2 * SOON)  # what was delayed is due, or has expired

    async def _act(self) -> None:
        dice, store = self._dice, self._dice.choice(self.stores)
        verb = dice.choice([*ACTED_ON])
        rows = await store.inspector.jobs(JobFilter(state=dice.choice(ACTED_ON[verb]), limit=100))
        ids = [row.id for row in dice.sample(rows, min(len(rows), 3))]
        self._change(ids, "cancel")
        if verb == "requeue" and dice.random() < 0.3:
            answers = await store.requeue(ids, from_scratch=True)
            for each, answer in answers.items():
                if answer is Requeued.REQUEUED:
                    self._steps.pop(each, None)
                    self._saved.pop(each, None)
        else:
            await getattr(store, verb)(ids)

    async def _bulk(self, verb: Verb | None = None) -> None:
        store = self._dice.choice(self.stores)
        verb = verb or self._dice.choice([Verb.CANCEL, Verb.REQUEUE])
        state = State.QUEUED if verb is Verb.CANCEL else State.DEAD
        rows = await store.inspector.jobs(JobFilter(state=state, limit=1_000))
        self._change([row.id for row in rows], "bulk acts")
        if (seen := await bulk.preview(store, verb, BulkFilter())).count:
            action_id = await bulk.begin(store, seen, By("ada@desk", "a test"))
            async for _ in bulk.go_on(store, action_id):
                pass

    def _change(self, ids: list[int], act: str) -> None:
        self._freed.update(ids)
        for each in ids:
            self.met[each].add(act)
            self._ended.pop(each, None)

    # ---------------------------------------------------------------------------- the end

    def _draw_event(self) -> str:
        return f"e{self._dice.randint(1, 3)} of {self.rounds}"

    async def end_round(self) -> None:
        """End all that runs, send all events, and let what is due later be due soon."""
        for hands, held in self._held.items():
            await hands.follow(*map(ended, held), limit=0)
            self._held[hands] = []
        for name in {*self._waits.values()}:
            await self._send(name)
        if self.rounds % 2:
            await self._bulk(Verb.REQUEUE)  # for the worker that leaves
        self.rounds += 1
        now = "date_part('epoch', clock_timestamp())"
        if self._url.startswith("sqlite"):
            now = "(julianday('now') - 2440587.5) * 86400.0"
        async with transaction(self._url) as connection:
            sql = (
                f"UPDATE outlast_jobs SET run_at = {now} WHERE position IS NULL AND run_at > {now}"
            )
            await run_sql(connection, f"{sql} AND state IN ('queued', 'blocked') AND {NO_EVENT}")

    async def leave_when_empty(self) -> None:
        """Work as a worker does that leaves once there is nothing left."""
        hands, asked, ends = [*self._held][-1], list[bool](), list[Transition]()
        until = UntilEmpty(lambda: asked.append(True))
        async with asyncio.timeout(60):
            while not asked:
                requests = [ClaimRequest([TASK], 20, solo=solo) for solo in (2, 1, 0)]
                requests = until.narrow(requests)
                reply = await hands.store.exchange(hands.me, ends, requests)
                for one in reply.claimed:
                    self.met[one.job_id].add("until empty")
                ends = [ended(one) for one in reply.claimed]
                until.take_reply(requests, reply, is_idle=not ends)
                if not ends:
                    await asyncio.sleep(0.002)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
async def test_jobs_that_wait_meet_all_else_and_none_is_left_behind(
    store: Store, other_store: Store, store_url: str, seed: int
) -> None:
    play, missing = Play([store, other_store], store_url, seed), WANTED
    await play.begin()
    while missing or play.rounds < LEAST:
        for _ in range(200):
            await play.act_once()
        await play.end_round()
        await play.leave_when_empty()
        async with transaction(store_url) as connection:
            assert await run_sql(connection, UNFINISHED) == []
            assert await run_sql(connection, LEFT) == []
        met = {frozenset(pair) for each in play.met.values() for pair in combinations(each, 2)}
        missing = WANTED - met
        assert play.rounds < MOST or not missing, f"never met: {[*map(sorted, missing)]}"
    assert (await verify(store.inspector)).violations == []
