"""One schedule in the real SQLite store, two workers with the real plan, and a clock that steps.

A worker looks, and fires what it has planned at any later moment, or never (it is killed: moving
the schedule on and its job are one commit). Meanwhile the schedule is put, paused, resumed and
deleted, and the store's clock goes on or back. A state is written into an in-memory file, a
verb runs, and what the tables hold then is the next state.

Laws: the ticks of jobs rise, so that none has two, also if the schedule is deleted and put again;
what is counted as fired has a job; each tick that passes is fired, skipped, missed or owed, once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from outlast.model.schedule_plan import CatchUp, Overlap
from outlast.store.schedules import FIRST_PAGE, DueSchedule, NewSchedule, Origin
from outlast.store.sqlite import schedules as sqlite_schedules
from outlast.store.sqlite import schema as sqlite_schema
from outlast.store.sqlite.jobs import enqueue_unless_taken
from outlast.store.values import NewJob
from outlast.worker.maintenance.scheduler import firing_of
from tests.model.leases import reachable

END = 7  # seconds: what the clock shows at most
BACK = 3  # seconds of its step
NAME, KEY = "s", "outlast:schedule:s"
TWO, THREE = '{"every":2}', '{"every":3}'
EVERY = {TWO: 2, THREE: 3}

_ROW = """SELECT origin, spec, since, next_tick, revision, paused, owed, fired, skipped + missed
 FROM outlast_schedules"""
_INSERT = """INSERT INTO outlast_schedules (name, call, overlap, catch_up, grace, version, origin,
 declared, declared_at, spec, since, next_tick, revision, paused, owed)
 VALUES ('s', '{"task":"t"}', ?, ?, 86400, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_TICKS = """SELECT json_extract(policy, '$.tick') FROM outlast_jobs
 WHERE json_extract(policy, '$.schedule') IS NOT NULL ORDER BY id"""
_HELD = f"SELECT count(*) FROM outlast_jobs WHERE key = '{KEY}'"


class Row(NamedTuple):
    """The schedule; one that was deleted has only ``since``."""

    origin: str
    spec: str
    since: float
    next_tick: float | None
    revision: int
    paused: int
    owed: str


class Seen(NamedTuple):
    """What a worker has found due, and when."""

    due: DueSchedule
    now: float


class Timetable(NamedTuple):
    """At first the schedule has just fired. ``last``: the last tick that has a job; ``held``: one
    that has the key is unfinished; ``steps_back``: how often the clock may step yet."""

    now: int = 4
    row: Row | None = Row(Origin.RUN_TIME.value, TWO, 4.0, 6.0, 1, 0, "")
    seen: tuple[Seen | None, Seen | None] = (None, None)
    last: float = 4.0
    held: bool = True
    steps_back: int = 1


Move = tuple[str, Any, str]  # words, the next state, and what is wrong with it
Verb = Callable[[sqlite3.Cursor], object]


class ScheduleDesk:
    """Moves of a timetable on the code of the store."""

    def __init__(self, overlap: Overlap, catch_up: CatchUp) -> None:
        self._overlap, self._catch_up = overlap, catch_up
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._cursor = self._connection.cursor()
        self._cursor.execute("BEGIN")
        sqlite_schema.migrate(self._cursor, 0.0)
        self._cursor.execute("COMMIT")

    def close_connection(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def moves(self, state: Timetable) -> Iterator[Move]:
        """Yield what may happen next."""
        yield from _clock(state)
        if state.held:
            yield "the job ends", state._replace(held=False), ""
        yield from self._operators(state)
        if None in state.seen:
            yield from self._looks(state)
        for worker, seen in enumerate(state.seen):
            if seen is not None:
                yield from self._ends(state, worker, seen)

    def _operators(self, state: Timetable) -> Iterator[Move]:
        now = state.now
        for spec in EVERY:
            put = partial(
                sqlite_schedules.put,
                now=now,
                schedules=[self._schedule(spec)],
                origin=Origin.RUN_TIME,
            )
            yield self._done(state, f"put {spec}", put)
        for words, paused in (("pause", True), ("resume", False)):
            pause = partial(sqlite_schedules._pause, now=now, name=NAME, paused=paused)
            yield self._done(state, words, pause)
        yield self._done(state, "delete", lambda c: sqlite_schedules._delete(c, now, NAME))

    def _looks(self, state: Timetable) -> Iterator[Move]:
        for due in self._due(state):
            after = state._replace(seen=(Seen(due, state.now), state.seen[1]))  # None comes first
            yield LOOKS, _ranked(after), ""

    def _ends(self, state: Timetable, worker: int, seen: Seen) -> Iterator[Move]:
        left = state._replace(seen=(None, state.seen[1 - worker]))
        yield "a worker is killed", _ranked(left), ""
        firing = firing_of(seen.due, seen.now)
        fire = partial(sqlite_schedules._fire, now=state.now, firing=firing)
        yield self._done(left, f"a worker fires what it saw at {seen.now}", fire)

    # -- on the file

    def _schedule(self, spec: str) -> NewSchedule:
        rules = {"overlap": self._overlap, "catch_up": self._catch_up}
        return NewSchedule(name=NAME, call=NewJob(task="t"), spec=spec, **rules)  # type: ignore[arg-type]

    def _due(self, state: Timetable) -> list[DueSchedule]:
        self._cursor.execute("BEGIN")
        self._write(state)
        due = sqlite_schedules._due(self._cursor, state.now, 1, FIRST_PAGE).schedules
        self._cursor.execute("ROLLBACK")
        return due

    def _done(self, state: Timetable, words: str, verb: Verb) -> Move:
        self._cursor.execute("BEGIN")
        self._write(state)
        verb(self._cursor)
        found = self._cursor.execute(_ROW).fetchone()
        ticks = [float(tick) for (tick,) in self._cursor.execute(_TICKS)]
        held = self._cursor.execute(_HELD).fetchone()[0] > 0
        self._cursor.execute("ROLLBACK")
        row = None if found is None else Row(*found[:7])
        fired, passed = (0, 0) if found is None else found[7:]
        wrong = _broken(state, row, ticks, fired, passed)
        last = max([state.last, *ticks])
        return words, _ranked(state._replace(row=row, last=last, held=held)), wrong

    def _write(self, state: Timetable) -> None:
        """Put a state into the tables, which are empty."""
        self._cursor.execute("UPDATE outlast_sequences SET value = 100")
        if state.held:
            enqueue_unless_taken(self._cursor, 0.0, NewJob(task="t", key=KEY))
        if (row := state.row) is None:
            return
        there = row.origin == Origin.RUN_TIME
        version = self._schedule(row.spec).version if there else ""
        rules = (self._overlap, self._catch_up, version, row.origin)
        self._cursor.execute(_INSERT, (*rules, there, None if there else 0.0, *row[1:]))


def _clock(state: Timetable) -> Iterator[Move]:
    if state.now < END:
        yield SECOND, state._replace(now=state.now + 1), ""
    if state.steps_back and state.now >= BACK:
        back = state._replace(now=state.now - BACK, steps_back=state.steps_back - 1)
        yield f"the clock steps back by {BACK} s", back, ""


def _ranked(state: Timetable) -> Timetable:
    """Number revisions by their order, and let the workers be alike: so fewer states differ."""
    dues = [seen.due for seen in state.seen if seen is not None]
    known = {due.revision for due in dues} | ({state.row.revision} if state.row else set())
    rank = {revision: n for n, revision in enumerate(sorted(known), 1)}
    row = state.row and state.row._replace(revision=rank[state.row.revision])
    seen = sorted((_renumbered(each, rank) for each in state.seen), key=repr)  # None first
    return state._replace(row=row, seen=(seen[0], seen[1]))


def _renumbered(seen: Seen | None, rank: dict[int, int]) -> Seen | None:
    if seen is None:
        return None
    due = msgspec.structs.replace(seen.due, revision=rank[seen.due.revision])
    return Seen(due, seen.now)


# ------------------------------------------------------------------------------------- laws


def _broken(before: Timetable, row: Row | None, ticks: list[float], fired: int, passed: int) -> str:
    """Return what is wrong. Before the step no tick was counted."""
    rising = [before.last, *ticks]
    if any(tick <= earlier for earlier, tick in pairwise(rising)):
        return f"a tick has two jobs, or comes late: {rising}"
    if fired != len(ticks):
        return f"{fired} counted as fired, {len(ticks)} have jobs"
    if row is None or row.origin != Origin.RUN_TIME:
        return ""
    old = before.row
    if old is None or old.origin != Origin.RUN_TIME:
        return "" if row.owed == "" else "a new one owes ticks"
    if row.since < old.since:
        return f"accounted for up to {old.since}, and now up to {row.since}"
    there = _count(old.spec, old.since, row.since) + _count_owed(old.owed)
    counted = fired + passed + _count_owed(row.owed)
    return "" if there == counted else f"a tick is not counted once: {there} are {counted}"


def _count(spec: str, since: float, until: float) -> int:
    return sum(1 for tick in range(2 * END) if tick % EVERY[spec] == 0 and since < tick <= until)


def _count_owed(owed: str) -> int:
    lines = [line.split(" ", 2) for line in owed.splitlines()]
    return sum(_count(spec, float(since), float(until)) for since, until, spec in lines)


class Scene(NamedTuple):
    """The rules of the schedule, and the moves that have happened before."""

    overlap: Overlap
    catch_up: CatchUp
    begun: tuple[str, ...] = ()


SECOND, LOOKS = "a second passes", "a worker looks"
SCHEDULES = {
    "each tick": Scene(Overlap.ALLOW, CatchUp.ALL),
    "the last tick": Scene(Overlap.SKIP, CatchUp.LAST, (SECOND, SECOND, LOOKS, LOOKS)),
}


def explored(name: str, states_max: int) -> tuple[int, str, list[str]]:
    """Go through the first states of a scene; return what ``reachable`` does."""
    scene = SCHEDULES[name]
    desk = ScheduleDesk(scene.overlap, scene.catch_up)
    try:
        state = Timetable()
        for words in scene.begun:
            state = next(after for said, after, _ in desk.moves(state) if said == words)
        return reachable(state, desk.moves, states_max)
    finally:
        desk.close_connection()
