"""The duty that fires schedules, on a real file and a clock of the test's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlast.model.job import State
from outlast.model.limits import LimitSpec
from outlast.model.schedule import Spec
from outlast.model.schedule_plan import CatchUp, Overlap
from outlast.store import batches
from outlast.store.limits import CodeLimits, DeclaredTask, NewLimit
from outlast.store.schedules import DECLARED_SECONDS, DUE_MAX, DueSchedule, Firing, Put
from outlast.store.values import NewJob
from outlast.worker.maintenance import scheduler
from outlast.worker.maintenance.scheduler import DECLARE_SECONDS, HELD_SECONDS, Scheduler, firing_of
from tests.manual_clock import ManualClock
from tests.unit.worker.maintenance import scheduler_kit
from tests.unit.worker.maintenance.scheduler_kit import HOUR, NOON, Code, Team, schedule
from tests.unit.worker.worker_kit import FakeOwner, heard, heard_fields

team = scheduler_kit.team


async def test_ticks_are_fired_as_they_come_once_for_all_workers(team: Team) -> None:
    await team.store.put_schedules([schedule(overlap=Overlap.ALLOW)])
    for _ in range(3):
        team.add()
    await team.work(3 * HOUR)
    assert await team.ticks() == [1.0, 2.0, 3.0]
    assert (await team.row()).fired == 3


async def test_a_worker_waits_until_the_tick_and_no_longer(team: Team) -> None:
    await team.store.put_schedules([schedule()])
    worker = team.add()
    await team.work()
    pause = await worker.run_once()
    assert pause is not None
    assert HOUR - 1 <= pause <= HOUR - 1 + 0.02
    team.clock.advance(pause)
    await worker.run_once()
    assert await team.ticks() == [1.0]


MANY = """
INSERT INTO outlast_schedules
    (name, call, spec, overlap, catch_up, grace, origin, version, revision, since, next_tick)
SELECT name || n, call, spec, overlap, catch_up, grace, origin, version, revision, since, next_tick
FROM outlast_schedules, (
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 100000)
    SELECT n FROM numbers)"""


async def test_a_hundred_thousand_schedules_that_are_not_due_cost_no_statement(team: Team) -> None:
    worker = team.add()
    await team.work()
    idle = await statements_of_looks(team, worker)
    await team.store.put_schedules([schedule()])
    await team.work()
    await team.store._connection.write(lambda cursor, _: cursor.execute(MANY))
    team.asked.clear()
    assert await statements_of_looks(team, worker) == idle
    assert team.asked == []
    look = await team.store.observe()
    assert look.next_tick is not None
    assert 0 < look.next_tick <= HOUR


async def statements_of_looks(team: Team, worker: Scheduler) -> list[str]:
    """The statements of ten looks and what the duty makes of them."""
    seen: list[str] = []
    connection = team.store._connection.connect()
    connection.set_trace_callback(lambda text: seen.append(text.split(" ")[0]))
    for _ in range(10):
        worker.take_look(await team.store.observe())
        await worker.run_once()
        team.clock.advance(1.0)
    connection.set_trace_callback(None)
    return seen


async def test_a_tick_is_skipped_and_told_while_the_last_job_is_unfinished(team: Team) -> None:
    await team.store.put_schedules([schedule()])
    team.add()
    await team.work(HOUR)
    (first,) = await team.jobs()
    with heard_fields() as told:
        await team.work(HOUR)
    fields = {"schedule": "hourly", "tick": NOON + 2 * HOUR, "in_the_way": first.id, "ticks": 1}
    assert told == [("schedule_skipped", fields)]
    await team.finish_all()
    await team.work(HOUR)
    assert await team.ticks() == [1.0, 3.0]
    row = await team.row()
    assert (row.fired, row.skipped, row.last_skip_job) == (2, 1, first.id)


async def test_skips_are_told_once_a_minute_with_their_number(team: Team) -> None:
    await team.store.put_schedules([schedule(spec=Spec(every=1))])
    team.add()
    await team.work(1.0, step=1.0)
    with heard_fields() as told:
        await team.work(200.0, step=1.0)
    assert {name for name, _ in told} == {"schedule_skipped"}
    assert [fields["ticks"] for _, fields in told] == [1, 60, 60, 60]
    assert (await team.row()).skipped == 200
    await team.finish_all()
    await team.work(600.0, step=1.0)
    assert len(team.workers[0]._throttles) <= 2, "what is long past is forgotten"


@pytest.mark.parametrize(
    ("catch_up", "ticks"),
    [(CatchUp.LAST, [5.0]), (CatchUp.ALL, [1.0, 2.0, 3.0, 4.0, 5.0]), (CatchUp.NONE, [])],
)
async def test_after_an_outage_ticks_are_caught_up_as_asked(
    team: Team, catch_up: CatchUp, ticks: list[float]
) -> None:
    await team.store.put_schedules([schedule(catch_up=catch_up, overlap=Overlap.ALLOW)])
    team.clock.advance(5.5 * HOUR)
    team.add()
    await team.work()
    assert await team.ticks() == ticks
    row = await team.row()
    assert (row.fired, row.missed) == (len(ticks), 5 - len(ticks))


@pytest.mark.parametrize("step", [-HOUR, -0.5 * HOUR, HOUR, 10 * HOUR])
async def test_a_step_of_the_stores_clock_fires_nothing_twice(team: Team, step: float) -> None:
    await team.store.put_schedules([schedule(overlap=Overlap.ALLOW)])
    team.add()
    team.add()
    await team.work(2 * HOUR)
    team.clock.step_wall(step)
    await team.work(3 * HOUR)
    ticks = await team.ticks()
    assert ticks == sorted(set(ticks))
    row = await team.row()
    assert row.fired + row.missed == max(2, int(5 + step / HOUR))


async def test_a_schedule_of_the_code_is_fired_only_by_workers_that_declare_it(team: Team) -> None:
    theirs = team.add(schedule(overlap=Overlap.ALLOW))
    team.add()
    await team.work(HOUR)
    assert await team.ticks() == [1.0]
    team.workers.remove(theirs)
    with heard() as told:
        await team.work(3 * HOUR)
    assert await team.ticks() == [1.0]
    assert told == ["schedules_asleep"]
    team.asked.clear()
    await team.work(HOUR)
    assert team.asked == [], "an undeclared one costs no further statement"
    team.workers.append(theirs)
    await team.work(1.0)
    assert await team.ticks() == [1.0, 5.0]


async def test_during_a_rolling_deploy_the_newest_declaration_fires_once(team: Team) -> None:
    old = schedule("nightly", Spec(cron="0 3 * * *"))
    new = schedule("nightly", Spec(cron="0 4 * * *"))
    team.add(old)
    await team.work(HOUR, step=60.0)
    team.add(new)
    for _ in range(8):  # workers of both releases start again and again, up to noon
        await team.work(3 * HOUR, step=49.0)
        team.workers[:] = []
        team.add(old)
        team.add(new)
    assert await team.ticks() == [16.0]


async def test_an_old_declaration_returns_once_the_newer_is_declared_no_more(team: Team) -> None:
    team.add(schedule(spec=Spec(every=60)))
    await team.work()
    newer = team.add(schedule(spec=Spec(every=90)))
    await team.work(DECLARED_SECONDS)
    before = await team.row()
    team.workers.remove(newer)
    await team.work(DECLARED_SECONDS - DECLARE_SECONDS)
    assert (await team.row()).spec == before.spec
    await team.work(2 * DECLARE_SECONDS)
    assert (await team.row()).spec != before.spec


async def test_a_declaration_that_is_not_used_is_told_once(team: Team) -> None:
    await team.store.put_schedules([schedule()])
    team.add(schedule(spec=Spec(every=60)))
    with heard_fields() as told:
        await team.work(5 * DECLARE_SECONDS)
    assert told == [("schedule_not_declared", {"schedule": "hourly", "reason": "taken"})]


async def test_a_declaration_whose_row_was_held_is_repeated_soon(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [Put.HELD, Put.SAME]

    async def put_schedules(*_: Any) -> list[Put]:
        return [answers.pop(0)]

    monkeypatch.setattr(team.store, "put_schedules", put_schedules)
    worker = team.add(schedule())
    with heard_fields() as told:
        assert await worker.run_once() == HELD_SECONDS
        team.clock.advance(HELD_SECONDS)
        assert await worker.run_once() == DECLARE_SECONDS
    assert told == [("schedule_not_declared", {"schedule": "hourly", "reason": "held"})]


async def test_a_worker_that_leaves_or_is_not_trusted_fires_nothing(team: Team) -> None:
    await team.store.put_schedules([schedule()])
    worker = team.add(schedule("own"))
    owner: Any = worker._owner
    for owner.trusted, owner.draining in ((False, False), (True, True)):
        await team.work(HOUR)
    assert team.asked == []
    owner.draining = False
    await team.work()
    assert (await team.row("own")).fired == 0
    assert await team.ticks() == [2.0]


BAD: dict[str, str] = {
    "spec": '{"every":0}',
    "call": "[1]",
    "overlap": "later",
    "catch_up": "never",
}


@pytest.mark.parametrize("column", [*BAD, "zone", "priority"])
async def test_one_that_cannot_be_fired_holds_up_no_other_and_is_told_once_a_minute(
    team: Team, column: str
) -> None:
    bad = schedule("bad", call=NewJob(task="t", priority=101 if column == "priority" else 0))
    await team.store.put_schedules([bad, *[schedule(f"s{n}") for n in range(5)]])
    text = BAD.get(column, '{"cron":"0 * * * *","zone":"Mars/Base"}')
    what = {"zone": "spec", "priority": "origin"}.get(column, column)
    if column != "priority":
        row = f"UPDATE outlast_schedules SET {what} = ? WHERE name = 'bad'"
        await team.store._connection.write(lambda cursor, _: cursor.execute(row, (text,)))
    team.add()
    await team.work()
    team.clock.advance(HOUR)
    with heard() as told:
        await team.work(50.0, step=5.0)
    assert told.count("schedule_fired") == 5
    assert (
        told.count("schedule_failed") == 1
        if column == "priority"
        else told.count("schedule_failed") <= 1
    )
    assert (await team.row("bad")).fired == 0
    assert {job.state for job in await team.jobs()} == {State.QUEUED}


async def test_more_than_a_page_that_is_due_at_once_is_fired_in_one_run(team: Team) -> None:
    names = [f"s{n}" for n in range(2 * DUE_MAX + 7)]
    await team.store.put_schedules([schedule(name) for name in names])
    worker = team.add()
    await team.work()
    team.clock.advance(HOUR)
    worker.take_look(await team.store.observe())
    await worker.run_once()
    rows = await team.store.inspector.schedules(limit=10_000)
    assert [row.fired for row in rows] == [1] * len(names)
    assert {row.next_tick for row in rows} == {NOON + 2 * HOUR}


async def test_other_duties_have_their_turn_while_many_ticks_are_counted(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: list[int] = []  # at which turn

    def note(due: DueSchedule, now: float) -> Firing:
        decided.append(turns)
        return firing_of(due, now)

    monkeypatch.setattr(scheduler, "firing_of", note)
    minutely = Spec(cron="* * * * *")
    await team.store.put_schedules([schedule(f"s{n}", minutely) for n in range(20)])
    worker = team.add()
    team.clock.advance(4 * HOUR)
    worker.take_look(await team.store.observe())
    firing = asyncio.create_task(worker.run_once())
    turns = 0
    while not firing.done():
        turns += 1
        await asyncio.sleep(0)
    await firing
    assert len(decided) == 20
    assert decided == sorted(set(decided))
    assert len(await team.jobs()) == 20


async def test_what_is_fired_at_once_is_stored_in_parts_of_a_bounded_size(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "ENQUEUE_MAX", 8)
    monkeypatch.setattr(batches, "ENQUEUE_BYTES", 1_000)
    large = NewJob(task="t", args='{"x":"' + "x" * 600 + '"}')
    every_tick: dict[str, Any] = {"overlap": Overlap.ALLOW, "catch_up": CatchUp.ALL}
    await team.store.put_schedules(
        [schedule(f"s{n}", **every_tick) for n in range(5)]
        + [schedule(f"t{n}", call=large) for n in range(3)]
    )
    team.clock.advance(3 * HOUR)
    team.add()
    await team.work()
    assert team.asked.count("fire") == 5  # s0 s1, s2 s3, s4 t0, t1, t2
    assert len(await team.jobs()) == 5 * 3 + 3


async def test_limits_are_declared_soon_if_they_were_held_and_then_again_and_again() -> None:
    """Else those of an older release, whose worker has started last, would stay for good."""
    code, asked = CodeLimits([NewLimit("a", LimitSpec(running=1))], [DeclaredTask("t", ("a",))]), []
    clock = ManualClock()

    class Holding:
        async def declare_limits(self, *told: object) -> bool:
            asked.append(told)
            return len(asked) > 1

    store: Any = Holding()
    told_by = Code([], code)
    duty = Scheduler(FakeOwner(), store, told_by, clock)  # type: ignore[arg-type]
    assert await duty.run_once() == pytest.approx(HELD_SECONDS)
    for _ in range(2):
        assert await duty.run_once() == pytest.approx(DECLARE_SECONDS)
    assert asked == [(code.limits, code.tasks)] * 2
    clock.advance(DECLARE_SECONDS)
    assert await duty.run_once() == pytest.approx(DECLARE_SECONDS)
    told_by.limits = code = CodeLimits(tasks=[DeclaredTask("t")])
    for _ in range(2):
        assert await duty.run_once() is None, "none holds a job up: once is enough"
    assert asked[2:] == [asked[0], ([], code.tasks)]
