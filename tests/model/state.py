"""The state of the model, of the store and its workers: values that can be hashed.

Names do not matter, only their order: tokens are counted again from 1 in each state, jobs are in
the order of their tokens, and the two workers may change places. So states that differ by nothing
else are one state.
"""

from __future__ import annotations

from itertools import repeat
from typing import NamedTuple

LOST, SILENT, LEFT = 3, 4, 5  # owners that are gone: death proven, silent, stopped; 1, 2: alive
ENDED = frozenset({"completed", "dead", "cancelled"})


class Job(NamedTuple):
    """A job's row. 0 stands for none. ``place`` orders those that wait in the same line; ``kills``
    is its nature: whether it takes its runner down."""

    token: int = 0
    place: int = 0
    state: str = "queued"
    owner: int = 0
    failures: int = 0
    losses: int = 0
    cancel: bool = False
    solo: int = 0
    incident: int = 0
    value: int = 0
    saved: int = 0
    kills: bool = False


class End(NamedTuple):
    """A decided end, as a worker hands it in; ``clears`` 0: none."""

    token: int
    job: int
    state: str
    outcome: str
    charge: str
    failures: int
    losses: int
    solo: int
    incident: int
    clears: int = 0


class Db(NamedTuple):
    """The store: jobs, the status of each worker's row ('' where it has none alive), and the
    evidence on closed attempts that a request may still name, as (token, job, outcome)."""

    jobs: tuple[Job, ...]
    rows: tuple[str, ...] = ("", "")
    closed: tuple[tuple[int, int, str], ...] = ()


class Me(NamedTuple):
    """The identity that a worker asks under: ``live``: its present row; ``current``: its epoch."""

    slot: int
    live: bool
    current: bool


class Held(NamedTuple):
    """An attempt in a worker's ledger, with the facts it was claimed with; ``end``: it is over."""

    token: int
    job: int
    failures: int
    losses: int
    solo: int
    incident: int
    value: int = 0
    saved: int = 0
    end: End | tuple[()] = ()


class Late(NamedTuple):
    """A request that its sender has given up and that may still arrive."""

    verb: str
    live: bool
    current: bool
    solo: int = 0
    end: End | tuple[()] = ()
    held: tuple[int, ...] = ()
    save: tuple[int, int, int, int] | tuple[()] = ()  # job, token, number, value


class Slot(NamedTuple):
    """A worker: a process (``up``) and what it believes. ``me``: 0 not registered, 1 under its
    live row, 2 under a row that is gone. ``broken``: 1 has to reconnect, 2 to reconcile. ``reply``:
    to a claim, under way; ``since``: it has registered again since it asked."""

    up: bool = False
    me: int = 0
    current: bool = True
    trusts: bool = False
    draining: bool = False
    broken: int = 0
    held: tuple[Held, ...] = ()
    reply: tuple[Held, ...] = ()
    since: bool = False
    late: tuple[Late, ...] = ()


class World(NamedTuple):
    """Everything. ``pending``: a reaper's decision on an orphan, on its way to the store."""

    db: Db
    slots: tuple[Slot, ...] = (Slot(), Slot())
    pending: tuple[End, ...] = ()


def tokens_of(world: World) -> set[int]:
    """Return every token that a request may still name, and 0."""
    found = {0}
    for job in world.db.jobs:
        found.update((job.token, job.incident))
    for slot in world.slots:
        for held in slot.held + slot.reply:
            found.update((held.token, held.incident))
            if held.end:
                _tokens_of_end(held.end, found)
        for late in slot.late:
            found.update(late.held)
            found.update(late.save[1:2])
            if late.end:
                _tokens_of_end(late.end, found)
    for end in world.pending:
        _tokens_of_end(end, found)
    return found


def _tokens_of_end(end: End, found: set[int]) -> None:
    found.update((end.token, end.incident, end.clears))


def canonical(world: World) -> World:
    """Return the one state that stands for all that differ by names only."""
    world = _tidied(world)
    spoken = sorted(tokens_of(world))
    tokens = {token: place for place, token in enumerate(spoken)}
    order = sorted(range(len(world.db.jobs)), key=lambda index: world.db.jobs[index])
    if spoken[-1] != len(spoken) - 1 or order != [*range(len(order))]:
        jobs = {before: after for after, before in enumerate(order)}
        world = _Renaming(tokens, jobs).world(world, order)
    if world.slots[1] < world.slots[0]:
        world = _swapped(world)
    return world


def _tidied(world: World) -> World:
    """Forget what no request can name any more."""
    db = world.db
    jobs = placed(tuple(map(_plain, db.jobs)))
    closed = db.closed
    if closed:
        spoken = _named(world)
        closed = tuple(sorted(each for each in closed if each[0] in spoken))
    if jobs == db.jobs and closed == db.closed:
        return world
    return World(Db(jobs, db.rows, closed), world.slots, world.pending)


def _named(world: World) -> set[int]:
    """Return the tokens under which a worker may still write."""
    spoken = {held.token for slot in world.slots for held in slot.held + slot.reply}
    for slot in world.slots:
        for late in slot.late:
            spoken.update(late.save[1:2])
            if late.end:
                spoken.add(late.end.token)
    spoken.update(end.token for end in world.pending)
    return spoken


def _plain(job: Job) -> Job:
    if job.state in ENDED:
        return Job(token=job.token, state=job.state, value=job.value, kills=job.kills)
    return job._replace(saved=0) if job.saved and job.state == "queued" else job


def placed(jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    """Count the places of each line from 1."""
    if all(job.place == 0 for job in jobs):
        return jobs
    lines: dict[int, list[int]] = {}
    for job in jobs:
        if job.place:
            lines.setdefault(job.solo, []).append(job.place)
    return tuple(map(_in, jobs, repeat(lines)))


def _in(job: Job, lines: dict[int, list[int]]) -> Job:
    if not job.place:
        return job
    place = sum(other <= job.place for other in lines[job.solo])
    return job if job.place == place else job._replace(place=place)


def _swapped(world: World) -> World:
    owners = {1: 2, 2: 1}
    jobs = tuple(
        job._replace(owner=owners[job.owner]) if job.owner in owners else job
        for job in world.db.jobs
    )
    db = world.db._replace(jobs=jobs, rows=world.db.rows[::-1])
    return world._replace(db=db, slots=world.slots[::-1])


class _Renaming:
    def __init__(self, tokens: dict[int, int], jobs: dict[int, int]) -> None:
        self._token = tokens
        self._job = jobs

    def world(self, world: World, order: list[int]) -> World:
        db = world.db
        named = tuple(self._named(db.jobs[index]) for index in order)
        closed = tuple(sorted((self._token[t], self._job[j], word) for t, j, word in db.closed))
        return World(
            Db(named, db.rows, closed),
            tuple(map(self._slot, world.slots)),
            tuple(map(self._end, world.pending)),
        )

    def _named(self, job: Job) -> Job:
        token = self._token
        return job._replace(token=token[job.token], incident=token[job.incident])

    def _slot(self, slot: Slot) -> Slot:
        return slot._replace(
            held=tuple(map(self._held, slot.held)),
            reply=tuple(map(self._held, slot.reply)),
            late=tuple(map(self._late, slot.late)),
        )

    def _held(self, held: Held) -> Held:
        token = self._token
        return held._replace(
            token=token[held.token],
            job=self._job[held.job],
            incident=token[held.incident],
            end=self._end(held.end) if held.end else (),
        )

    def _end(self, end: End) -> End:
        token = self._token
        return end._replace(
            token=token[end.token],
            job=self._job[end.job],
            incident=token[end.incident],
            clears=token[end.clears],
        )

    def _late(self, late: Late) -> Late:
        save = late.save
        if save:
            save = (self._job[save[0]], self._token[save[1]], save[2], save[3])
        return late._replace(
            end=self._end(late.end) if late.end else (),
            held=tuple(sorted(self._token[token] for token in late.held)),
            save=save,
        )
