"""Carries out acts of people, for all stores: what an act means is written here and nowhere else.

A store gives a transaction in which its statements run by their names (``Acting``). An act locks
the rows that it changes and reads them, decides, and writes them, with its record.

Why an act on jobs is right against

* a claim, a sweep, another act, a completion in a caller's own transaction: jobs are locked in the
  order of their ids, so that no two acts deadlock, and are judged by what was committed before the
  lock was given. A claim and a reclaim pass over locked rows. A job that was claimed a moment
  before gets the request; one that has ended a moment before is left as it is.
* a late worker: a request on the row wins over every return to the queue, even by a reclaim, and a
  completion wins over the request. Tokens and the count of attempts only rise, so that the worker
  of an old attempt is refused after a requeue, and after a skip, which draws a token.
* an enqueue: the unique index on the keys of unfinished jobs decides who has a key.
* a row that stays locked, as by a completion whose caller's transaction is open: a cancel first
  takes the free ones, and waits for the others in a second transaction, which locks no more.

Each runs in a transaction of the store's own. PostgreSQL takes the locks; on SQLite the write lock
is held from the beginning, and each of these statements finds its rows as the one before left them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from outlast.model.job import State
from outlast.model.limits import LimitSpec, permit_id, spec_of
from outlast.model.pause import Pause, PauseKind
from outlast.model.schedule_plan import owe
from outlast.store.actions import (
    ACTIONS_KEPT,
    LEFT,
    BulkStep,
    Counts,
    More,
    Note,
    Record,
    Tokens,
    columns_of,
    moved,
)
from outlast.store.columns import pause_of
from outlast.store.limits import HOLD_MAX, Hold, SetLimit, with_own
from outlast.store.schedules import DECLARED_SECONDS, OWED_MAX, Deleted
from outlast.store.statements import Row, Rows
from outlast.store.values import Cancelled, Enqueued, NewEvent, NewJob, NewPause, Requeued

T = TypeVar("T")
_WAITING = (State.QUEUED, State.BLOCKED)
_RESOLVED_MAX = 20  # rounds of looks at what waits for jobs that were requeued


class Acting(Protocol):
    """A transaction of a store, with the settings that acts need."""

    @property
    def rows(self) -> Rows:
        """Runs a statement of the store."""
        ...

    async def draw(self, name: str, count: int) -> list[int]:
        """Return numbers of a sequence (``position``, ``token``), which rise."""
        ...

    async def revive(
        self, ids: Sequence[int], positions: Sequence[int], *, from_scratch: bool
    ) -> list[int]:
        """Queue locked jobs again; return the ones whose keys unfinished jobs have."""
        ...

    async def free_keys(self, keys: Sequence[str]) -> None:
        """End expired jobs that hold these keys and have not begun."""
        ...

    async def resolve(self) -> tuple[list[int], bool]:
        """Look at the dependents of changed jobs; return the jobs that can run now and have to be
        announced, and whether there may be more."""
        ...

    async def notify(self, ids: Sequence[int]) -> None:
        """Wake workers for the jobs among these that can run now."""
        ...

    async def forget(self, ids: Sequence[int]) -> None:
        """Delete ended jobs with all that is stored about them."""
        ...

    async def enqueue(self, job: NewJob) -> Enqueued:
        """Store a job."""
        ...

    async def send_event(self, event: NewEvent) -> bool:
        """Keep an event."""
        ...

    async def put_limit(self, name: str, declared: str | None, own: LimitSpec | None) -> None:
        """Write a limit and its values in force, and mark the streams that it blocks."""
        ...


async def cancel(
    it: Acting, job_ids: Sequence[int], tokens: Tokens | None = None
) -> dict[int, Cancelled]:
    """End queued and blocked jobs, and ask running ones."""
    jobs = await _lock(it, job_ids, tokens)
    unfinished = [job for job in jobs if job["state"] in {*_WAITING, State.RUNNING}]
    if unfinished:
        await it.rows("actions", "cancel", ids=_ids(unfinished))
        await _forget(it, [job for job in unfinished if job["state"] in _WAITING])
    return {job["id"]: _cancelled(job["state"]) for job in jobs}


def _cancelled(state: str) -> Cancelled:
    if state in _WAITING:
        return Cancelled.CANCELLED
    return Cancelled.REQUESTED if state == State.RUNNING else Cancelled.ENDED


async def requeue(
    it: Acting, job_ids: Sequence[int], tokens: Tokens | None = None, *, from_scratch: bool = False
) -> dict[int, Requeued]:
    """Queue dead and cancelled jobs again, without expiry and dependencies, since a person asks for
    this run. Jobs that were cancelled because they waited for one of these wait again; if their
    rows are locked, from the next exchange on."""
    jobs = await _lock(it, job_ids, tokens)
    ended = [job for job in jobs if job["state"] in {State.DEAD, State.CANCELLED}]
    keys = {job["key"]: job["id"] for job in reversed(ended) if job["key"] is not None}
    chosen = [job["id"] for job in ended if keys.get(job["key"]) in {None, job["id"]}]
    if keys:
        await it.free_keys(list(keys))
    positions = await it.draw("position", len(chosen))
    revived = await it.revive(chosen, positions, from_scratch=from_scratch) if chosen else []
    if revived:
        await it.rows("actions", "drop_dependencies", ids=revived)
        for what in ("steps", "waits", "children") if from_scratch else ():
            await it.rows("actions", f"drop_{what}", ids=revived)
    runnable, more = list(revived), any(job["awaited"] for job in jobs if job["id"] in revived)
    for _ in range(_RESOLVED_MAX if more else 0):
        found, more = await it.resolve()
        runnable += found
        if not more:
            break
    await it.notify(runnable)
    return {job["id"]: _requeued(job, revived) for job in jobs}


def _requeued(job: Row, revived: Sequence[int]) -> Requeued:
    if job["id"] in revived:
        return Requeued.REQUEUED
    if job["state"] in {State.DEAD, State.CANCELLED}:
        return Requeued.KEY_TAKEN
    return Requeued.COMPLETED if job["state"] == State.COMPLETED else Requeued.NOT_ENDED


async def skip(it: Acting, job_ids: Sequence[int], tokens: Tokens | None = None) -> set[int]:
    """Complete dead and blocked jobs by an attempt with a token and a number, and no worker."""
    locked = await _lock(it, job_ids, tokens)
    jobs = [job for job in locked if job["state"] in {State.DEAD, State.BLOCKED}]
    if jobs:
        ids = _ids(jobs)
        await it.rows("actions", "drop_dependencies", ids=ids)
        tokens_drawn = await it.draw("token", len(ids))
        await it.rows("actions", "skip", ids=ids, tokens=tokens_drawn)
        await _forget(it, jobs)
    return set(_ids(jobs))


async def discard(it: Acting, job_ids: Sequence[int], tokens: Tokens | None = None) -> set[int]:
    """Delete dead jobs."""
    dead = _ids(job for job in await _lock(it, job_ids, tokens) if job["state"] == State.DEAD)
    if dead:
        await it.forget(dead)
    return set(dead)


async def set_limit(it: Acting, new: SetLimit) -> bool:
    """The keeper lock is taken first: exchanges hold it to their commits, so one that has counted
    under a permit of the limit, or made one, has committed. This commit has the streams that the
    limit blocks looked at again.
    """
    await it.rows("limits", "lock")
    limits = await it.rows("limits", "known", names=[new.name])
    if not limits:
        return False
    if new.key is not None:
        permit = await _make_permit(it, new.name, new.key)
        if new.running is not None or new.reset:
            await it.rows("limits", "set_key", permit=permit, running=new.running)
            await it.rows("limits", "mark_one", permit=permit)
        return True
    if new.reset:
        await it.rows("limits", "reset_keys", name=new.name)
    own = None if new.reset else spec_of(limits[0]["own"])
    await it.put_limit(new.name, limits[0]["declared"], with_own(own, new))
    return True


async def hold_limit(it: Acting, hold: Hold) -> bool:
    """Let nothing start under a limit for some seconds; 0 ends that. The keeper lock is taken
    first. All permits of a limit are held on the limit's row.
    """
    await it.rows("limits", "lock")
    limits = await it.rows("limits", "known", names=[hold.name])
    if not limits:
        return False
    spec = spec_of(limits[0]["declared"])
    seconds = max(0.0, min(hold.seconds, HOLD_MAX))
    if hold.key or spec is None or spec.per is None:
        permit = await _make_permit(it, hold.name, hold.key)
        await it.rows("limits", "hold", permit=permit, seconds=seconds)
        await it.rows("limits", "mark_one", permit=permit)
    else:
        await it.rows("limits", "hold_all", name=hold.name, seconds=seconds)
        await it.rows("limits", "mark", names=[hold.name])
    return True


async def pause_schedule(it: Acting, name: str, *, paused: bool) -> bool:
    """A resume begins at the first tick after now, never before the ticks accounted for; the ticks
    that passed during the pause are owed.

    A firing under way holds the row, and this waits for it. A later firing finds the row paused, or
    with another revision: ``next_tick`` alone may be unchanged, if the clock was set back.
    """
    rows = await it.rows("schedules", "lock", name=name)
    for row in rows:
        if row["paused"] and not paused:
            (revision,) = await it.draw("position", 1)
            since = max(row["since"], row["now"])
            owed = owe(row["owed"], row["since"], since, row["spec"], OWED_MAX)
            values = {"name": name, "revision": revision, "since": since, "owed": owed}
            await it.rows("schedules", "resume", **values)
        elif paused:
            await it.rows("schedules", "pause", name=name)
    return bool(rows)


async def delete_schedule(rows: Rows, name: str) -> Deleted:
    """Delete a schedule that no active worker's code declares."""
    if await rows("schedules", "delete", name=name, fresh=DECLARED_SECONDS):
        return Deleted.DELETED
    known = await rows("schedules", "exists", name=name)
    return Deleted.DECLARED if known else Deleted.UNKNOWN


async def _make_permit(it: Acting, name: str, key: str) -> int:
    """Return the id of a permit, which has a row afterwards."""
    permit = permit_id(name, key)
    await it.rows("limits", "make_permit", permit=permit, name=name, key=key)
    return permit


async def _lock(it: Acting, job_ids: Sequence[int], tokens: Tokens | None) -> list[Row]:
    """Lock jobs; return the ones whose last token the caller has seen."""
    jobs = await it.rows("actions", "lock", ids=list(job_ids))
    return [job for job in jobs if (tokens or {}).get(job["id"], job["token"]) == job["token"]]


async def _forget(it: Acting, ended: Sequence[Row]) -> None:
    gone = _ids(job for job in ended if job["unkept"])
    if gone:
        await it.forget(gone)


def _ids(jobs: Iterable[Row]) -> list[int]:
    return [job["id"] for job in jobs]


class ActVerbs(Protocol):
    """The verbs of a store for acts of people.

    ``tokens``: a job whose last token is another one is left alone, and left out of the answer.
    ``record``: written with the act, if it changes anything.
    """

    async def _in_transaction(self, work: Callable[[Acting], Awaitable[T]]) -> T: ...

    async def cancel(
        self, job_ids: Sequence[int], *, tokens: Tokens | None = None, record: Record | None = None
    ) -> dict[int, Cancelled]:
        """Cancel queued jobs, and request the cancel of running ones. Unknown ids are left out.
        A bulk action counts the jobs that it has waited for with the step that has left them."""

        async def cancel_free(it: Acting) -> dict[int, Cancelled]:
            free = _ids(await it.rows("actions", "lock_free", ids=list(job_ids)))
            return await cancel(it, free, tokens)

        answers = await self._act(record, cancel_free, _count)
        left = [one for one in job_ids if one not in answers]
        if not left:
            return answers
        more = More(action_id=record.action_id) if isinstance(record, BulkStep) else record
        others = await self._act(more, lambda it: cancel(it, left, tokens), _count)
        return answers | others

    async def requeue(
        self,
        job_ids: Sequence[int],
        *,
        from_scratch: bool = False,
        tokens: Tokens | None = None,
        record: Record | None = None,
    ) -> dict[int, Requeued]:
        """Requeue dead or cancelled jobs with fresh budgets, under no suspicion (``from_scratch``:
        without their checkpoint), in the order of their ids: the first one gets a shared key.
        Tokens go on rising. Unknown ids are left out."""
        return await self._act(
            record, lambda it: requeue(it, job_ids, tokens, from_scratch=from_scratch), _count
        )

    async def skip(
        self, job_ids: Sequence[int], *, tokens: Tokens | None = None, record: Record | None = None
    ) -> set[int]:
        """Complete dead and blocked jobs without a result, by an attempt of no worker: jobs that
        were cancelled because of them wait again, and their dependents may run. Return the skipped
        jobs; others stay as they are."""
        return await self._act(
            record, lambda it: skip(it, job_ids, tokens), lambda ids: _some(skipped=len(ids))
        )

    async def discard(
        self, job_ids: Sequence[int], *, tokens: Tokens | None = None, record: Record | None = None
    ) -> set[int]:
        """Delete dead jobs and their attempts; return which."""
        return await self._act(
            record, lambda it: discard(it, job_ids, tokens), lambda ids: _some(discarded=len(ids))
        )

    async def request_drain(
        self, worker_ids: Sequence[int], *, record: Record | None = None
    ) -> set[int]:
        """Ask live workers to drain and leave: each learns it with its next beat. Return the
        workers that are asked, now or before; the others are gone."""
        rows = await self._change(record, "asked", "workers", "request_drain", ids=list(worker_ids))
        return set(_ids(rows))

    async def ask_stack(
        self, job_id: int, token: int, *, seen: str, then: str, record: Record | None = None
    ) -> bool:
        """Ask the worker that runs this attempt for its stack (``store.stacks``): replace the
        requests on its row, ``seen``, by ``then``. False: they have changed, or nothing runs the
        attempt."""
        values = {"job_id": job_id, "token": token, "seen": seen, "then": then}
        return bool(await self._change(record, "asked", "jobs", "ask_stack", **values))

    async def pause(self, new: NewPause, *, record: Record | None = None) -> Pause:
        """Store a pause. Workers act on it once they have read it, and confirm that by
        ``acknowledge_pauses``; pausing the same again draws a new id, and they do both again."""
        values = {name: getattr(new, name) for name in new.__struct_fields__}
        (row,) = await self._change(record, "paused", "pauses", "pause", **values)
        return pause_of(list(row.values()))

    async def resume(
        self, kind: PauseKind, name: str, *, record: Record | None = None
    ) -> Pause | None:
        """End a pause and return it. None: there was none."""
        rows = await self._change(record, "resumed", "pauses", "resume", kind=kind, name=name)
        return pause_of(list(rows[0].values())) if rows else None

    async def pause_schedule(
        self, name: str, *, paused: bool, record: Record | None = None
    ) -> bool:
        """Pause a schedule, or resume it at the first tick after now. False: unknown."""
        word = "paused" if paused else "resumed"
        return await self._act(
            record,
            lambda it: pause_schedule(it, name, paused=paused),
            lambda known: _some(**{word: int(known)}),
        )

    async def delete_schedule(self, name: str, *, record: Record | None = None) -> Deleted:
        """Delete a schedule, unless an active worker's code declares it. Its jobs stay. Up to when
        its ticks are accounted for is kept for UNDECLARED_SECONDS."""
        return await self._act(
            record,
            lambda it: delete_schedule(it.rows, name),
            lambda answer: _some(deleted=int(answer is Deleted.DELETED)),
        )

    async def set_limit(self, new: SetLimit, *, record: Record | None = None) -> bool:
        """Set a limit, or reset it to the values of the code. False: there is none of that name.
        Running attempts go on, also above a lowered limit."""
        return await self._act(
            record, lambda it: set_limit(it, new), lambda known: _some(changed=int(known))
        )

    async def hold_limit(self, hold: Hold, *, record: Record | None = None) -> bool:
        """Let nothing start under a permit for a while. False: there is no such limit."""
        return await self._act(
            record, lambda it: hold_limit(it, hold), lambda known: _some(changed=int(known))
        )

    async def send_event(self, event: NewEvent, *, record: Record | None = None) -> bool:
        """Keep an event, and make the jobs due that wait for it. False: one of that name is kept
        already."""
        return await self._act(
            record, lambda it: it.send_event(event), lambda kept: _some(sent=int(kept))
        )

    async def trigger(self, job: NewJob, *, record: Record | None = None) -> Enqueued:
        """Store a job of a schedule that a person asks for."""
        return await self._act(
            record, lambda it: it.enqueue(job), lambda made: _some(enqueued=int(made.created))
        )

    async def note(self, note: Note) -> int:
        """Record an act that no other verb records, or begin a bulk action; return its id."""
        return await self._in_transaction(partial(_note, note=note, counts={}))

    async def take_step(self, step: BulkStep) -> None:
        """Advance a bulk action by a step that changes no job. Overtaken, as by each verb that is
        given a step: it cannot be taken."""
        await self._act(step, _nothing, lambda _: {})

    async def stop_action(self, action_id: int) -> bool:
        """Stop a bulk action that is under way. False: it is over, or unknown."""

        async def work(it: Acting) -> list[Row]:
            return await it.rows("actions", "stop", id=action_id)

        return bool(await self._in_transaction(work))

    async def _change(
        self, record: Record | None, word: str, topic: str, name: str, /, **values: object
    ) -> list[Row]:
        """Return the rows that a statement has changed, counted under that word in the record."""
        return await self._act(
            record,
            lambda it: it.rows(topic, name, **values),
            lambda rows: _some(**{word: len(rows)}),
        )

    async def _act(
        self,
        record: Record | None,
        deed: Callable[[Acting], Awaitable[T]],
        count: Callable[[T], Counts],
    ) -> T:
        return await self._in_transaction(partial(_do, record=record, deed=deed, count=count))


async def _do(
    it: Acting,
    record: Record | None,
    deed: Callable[[Acting], Awaitable[T]],
    count: Callable[[T], Counts],
) -> T:
    """Carry out an act; record it if it has changed anything. A bulk action's row is locked before
    those of jobs; a step that cannot be taken raises Overtaken."""
    if record is None:
        return await deed(it)
    if isinstance(record, Note):
        done = await deed(it)
        counts = count(done)
        if counts.keys() - LEFT:
            await _note(it, record, counts)
        return done
    rows = await it.rows("actions", "standing", id=record.action_id)
    standing = tuple(rows[0].values()) if rows else None
    moved(record, standing, {})
    done = await deed(it)
    text, state, before_id = moved(record, standing, count(done))
    values = {"counts": text, "state": state, "before_id": before_id}
    await it.rows("actions", "move", id=record.action_id, **values)
    return done


async def _note(it: Acting, note: Note, counts: Counts) -> int:
    """Keep the newest ACTIONS_KEPT records of the actor."""
    values = columns_of(note, counts)
    (row,) = await it.rows("actions", "note", **values)
    await it.rows("actions", "forget_oldest", actor=values["actor"], kept=ACTIONS_KEPT)
    return int(row["id"])


async def _nothing(_: Acting) -> None:
    """Change no job."""


def _some(**counts: int) -> Counts:
    return {word: number for word, number in counts.items() if number}


def _count(answers: Mapping[int, Cancelled | Requeued]) -> Counts:
    return dict(Counter(one.value for one in answers.values()))
