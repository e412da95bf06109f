"""Enqueues on PostgreSQL, on any connection: the store's own, or one in the caller's transaction.

Jobs without keys are one statement. Jobs with keys may need several, since the unfinished job that
has a key may end while it is looked for. The common cases (one job, or many calls of one task that
are due at once) are sent as their common columns and one text of all arguments.

Before jobs are stored, their lanes are named in a table of their own, since a claim reads no others
(``outlast_add_lanes_v1``). A session remembers for some minutes which of them another transaction
has committed, so most enqueues name none.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from hashlib import sha256
from typing import Any
from weakref import WeakKeyDictionary

from outlast.base.clock import SYSTEM
from outlast.errors import StoreUnavailable
from outlast.store.batches import share_the_rest
from outlast.store.dependencies import (
    QUIET,
    UNWATCHED,
    WATCHED,
    Dependency,
    check_dependent,
    check_upstream,
    find_awaited,
    find_dependencies,
    find_named,
    not_spawned,
)
from outlast.store.keys import check_batch, make_replaceable, match_holder
from outlast.store.postgres.connection import Transaction
from outlast.store.postgres.pool import Verbs
from outlast.store.postgres.statements import array_text, fetch, job_columns, to_json
from outlast.store.protocol import ENQUEUE_MAX
from outlast.store.statements import statements
from outlast.store.values import Enqueued, NewJob, OnKey, Spawn, Wants

_SQL = statements("postgres", "enqueue")
_DEPENDENCIES = statements("postgres", "dependencies")
_STEPS = statements("postgres", "steps")

KEYED_TRIES = 10  # if the key's job ends between insert and look-up each time
TOO_FAST = "jobs with these keys came and went too fast; enqueue again"
BETWEEN = "\x1f"  # arguments: a character that JSON has nowhere
LATER_SECONDS = 1.0  # a job with such a delay does not stand in the line at once, by any rounding
KNOWN_SECONDS = 300.0  # for which a session relies on a lane that is named
KNOWN_MAX = 10_000  # lanes that a session remembers

_Lane = tuple[str, str, int]  # task, queue, priority
_NO_LANE = "", "", 0
_known: WeakKeyDictionary[Any, dict[_Lane, float]] = WeakKeyDictionary()  # until when, by session


class PostgresEnqueueVerbs(Verbs):
    """The verbs of ``PostgresStore`` that store jobs."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        if not (_are_dependent(jobs) or _have_keys(jobs)):
            return await self._connections.run_notifying(
                lambda it, notify: _enqueue_plain(it, jobs, notify=notify), keeps_plans=True
            )
        is_alone = len(jobs) == 1 and not jobs[0].after and jobs[0].on_key is None
        if is_alone and (stored := await self._enqueue_with_key(jobs[0])) is not None:
            return [stored]
        return await self._connections.run_notifying(
            lambda it, notify: enqueue(it, jobs, notify=notify),
            kind=None if is_alone else Transaction.COMMITTED,
        )

    async def _enqueue_with_key(self, job: NewJob) -> Enqueued | None:
        created = await self._connections.run_notifying(
            lambda it, notify: _create_with_key(it, job, notify=notify), keeps_plans=True
        )
        if created is not None:
            return created
        return (await self._connections.run(lambda each: _find_unfinished(each, [job])))[0]

    async def spawn(self, jobs: Sequence[NewJob], which: Spawn) -> list[Enqueued]:
        return await self._connections.run_notifying(
            lambda it, notify: _spawn(it, jobs, which, notify=notify), kind=Transaction.COMMITTED
        )


def _are_dependent(jobs: Sequence[NewJob]) -> bool:
    for job in jobs:  # noqa: SIM110  # any() would make a generator for each enqueue
        if job.after:
            return True
    return False


def _have_keys(jobs: Sequence[NewJob]) -> bool:
    if len(jobs) == 1:
        return jobs[0].key is not None
    return [job.key for job in jobs].count(None) < len(jobs)


async def enqueue(connection: Any, jobs: Sequence[NewJob], *, notify: bool) -> list[Enqueued]:
    """Needs a transaction for several jobs of which some have keys."""
    if _are_dependent(jobs):
        return await _enqueue_dependent(connection, jobs, notify=notify)
    if _have_keys(jobs):
        return await _enqueue_keyed(connection, jobs, notify=notify)
    return await _enqueue_plain(connection, jobs, notify=notify)


async def _name_lanes(connection: Any, jobs: Sequence[NewJob]) -> None:
    """Name the lanes in which these jobs stand as soon as they are stored; at a session's first
    jobs, and some minutes later, even if there are none, since ids have to jump if a failover may
    have lost some, which a session behind a pooler may have outlived."""
    session = await connection.session() if hasattr(connection, "session") else connection
    known = _known.get(session, {})
    now = SYSTEM.boot()
    new: dict[_Lane, None] = {}
    for job in jobs:
        lane = job.task, job.queue, job.priority
        if known.get(lane, now) > now or job.stream is not None or job.after:
            continue
        if job.delay < LATER_SECONDS or job.run_at is not None:
            new[lane] = None
    if new or known.get(_NO_LANE, now) <= now:
        tasks, queues, priorities = zip(*new, strict=True) if new else ((), (), ())
        given = [*tasks], [*queues], array_text(priorities)
        (row,) = await connection.fetch(_SQL["add_lanes"], *given)
        known = _known.setdefault(session, known)
        if len(known) + len(new) > KNOWN_MAX:
            known.clear()
        known[_NO_LANE] = now + KNOWN_SECONDS
        if row["known"]:
            known.update(dict.fromkeys(new, now + KNOWN_SECONDS))


def forget_lanes(session: Any) -> None:
    """Rely on no lane that this session has seen: it is on another schema now."""
    _known.pop(session, None)


async def _enqueue_plain(
    connection: Any, jobs: Sequence[NewJob], *, notify: bool
) -> list[Enqueued]:
    if not jobs:
        return []
    alike = _alike(jobs, notify=notify)
    if alike is None:
        return await _enqueue_unlike(connection, jobs, notify=notify)
    await _name_lanes(connection, jobs[:1])
    rows = await fetch(connection, "enqueue", *alike, jobs[0])
    return [Enqueued(row["id"], True) for row in rows]


async def _enqueue_unlike(
    connection: Any, jobs: Sequence[NewJob], *, notify: bool, awaited: Container[int] = ()
) -> list[Enqueued]:
    if any(job.policy.labels for job in jobs):
        found = [None] * len(jobs)
        stored = await _store_those_left(connection, jobs, found, notify=notify, awaited=awaited)
        return [one for one in stored if one is not None]  # all: none has a key
    await _name_lanes(connection, jobs)
    values = job_columns(jobs, awaited) | {"notify": notify}
    rows = await fetch(connection, "enqueue", "many", values)
    return [Enqueued(row["id"], True) for row in rows]


async def _create_with_key(connection: Any, job: NewJob, *, notify: bool) -> Enqueued | None:
    """Store one job that has a key; None if an unfinished job has it."""
    if job.policy.labels or job.stream is not None:
        return (await _store_those_left(connection, [job], [None], notify=notify))[0]
    await _name_lanes(connection, [job])
    rows = await fetch(connection, "enqueue", "one_with_key", {"notify": notify}, job)
    return Enqueued(rows[0]["id"], True) if rows else None


async def _find_unfinished(connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued | None]:
    """Return for each of these jobs the unfinished job that has its key, or None; KeyInUse if that
    is of another task. Expired jobs are ended first, so they hold no key."""
    keys = [job.key for job in jobs if job.key is not None]
    await connection.fetch(_SQL["free_keys"], keys)
    rows = {row["key"]: row for row in await connection.fetch(_SQL["key_holders"], keys)}
    return [_match_row(job, rows.get(job.key)) for job in jobs]


def _match_row(job: NewJob, row: Any) -> Enqueued | None:
    if row is None:
        return None
    digest = sha256(job.args.encode()).hexdigest()
    return match_holder(job, row["id"], row["task"], same_args=digest == row["args_digest"])


def _alike(jobs: Sequence[NewJob], *, notify: bool) -> tuple[str, dict[str, Any]] | None:
    """Return the statement that stores these jobs, of ``one``, ``alike`` and ``alike_in_streams``,
    and the values that differ from the first job's; None if none of them can."""
    first = jobs[0]
    if first.delay > 0 or first.run_at is not None:
        return None
    if first.expires is not None or first.expires_at is not None:
        return None
    if first.policy.labels:
        return None
    if len(jobs) == 1 and first.stream is None:
        return "one", {"notify": notify}
    if not share_the_rest(jobs):
        return None
    texts = BETWEEN.join([job.args for job in jobs])
    if texts.count(BETWEEN) != len(jobs) - 1:
        return None
    tenants = [job.tenant for job in jobs]
    streams = [job.stream for job in jobs]
    are_one = tenants.count(first.tenant) == streams.count(first.stream) == len(jobs)
    values = {"texts": texts, "notify": notify, "count": len(jobs)}
    if are_one and first.stream is None:
        return "alike", values
    if None in streams:
        return None
    some = 1 if are_one else len(jobs)
    needs = [job.needs for job in jobs[:some]]
    values |= {"tenants": tenants[:some], "streams": array_text(streams[:some]), "wanted": needs}
    return "alike_in_streams", values


async def _spawn(
    connection: Any, jobs: Sequence[NewJob], which: Spawn, *, notify: bool
) -> list[Enqueued]:
    """Store the children of an attempt, in the transaction that is open, with the step that says
    so. That comes last: so the attempt's row is locked for a moment only."""
    step = which.step
    stored = await _enqueue_dependent(connection, jobs, notify=notify, all_awaited=True)
    values = (step.job_id, step.token, step.name, step.value)
    if not await connection.fetch(_STEPS["keep_in"], *values):
        raise not_spawned(which)
    ids = array_text(each.job_id for each in stored)
    await connection.fetch(_DEPENDENCIES["adopt"], step.job_id, which.first, ids)
    return stored


async def _enqueue_dependent(
    connection: Any, jobs: Sequence[NewJob], *, notify: bool, all_awaited: bool = False
) -> list[Enqueued]:
    check_dependent(jobs)
    named = find_named(jobs)
    if named:
        rows = await connection.fetch(_DEPENDENCIES["upstream"], array_text(named))
        check_upstream(named, {row["id"]: row["keep"] for row in rows})
    stored: list[Enqueued] = []
    awaited = range(len(jobs)) if all_awaited else find_awaited(jobs)
    for first in range(0, len(jobs), ENQUEUE_MAX):
        part = jobs[first : first + ENQUEUE_MAX]
        here = {place - first for place in awaited}
        store = _enqueue_keyed if _have_keys(part) else _enqueue_unlike
        stored += await store(connection, part, notify=notify, awaited=here)
    found = find_dependencies(jobs, stored)
    await connection.fetch(
        _DEPENDENCIES["depend"],
        array_text(each.job_id for each in found),
        array_text(each.upstream_id for each in found),
        array_text(int(each.wants) for each in found),
        array_text(_first_states(found)),
        array_text(each.place for each in found),
    )
    return stored


def _first_states(found: Sequence[Dependency]) -> list[int]:
    """Return the states in which these are stored. The completion of a job that was stored with
    them is watched in the last place only (``outlast_follow_v1``)."""
    last = {each.job_id: each.place for each in found}
    return [
        UNWATCHED
        if not each.is_new
        else QUIET
        if each.wants is Wants.COMPLETED and each.place < last[each.job_id]
        else WATCHED
        for each in found
    ]


async def _enqueue_keyed(
    connection: Any, jobs: Sequence[NewJob], *, notify: bool, awaited: Container[int] = ()
) -> list[Enqueued]:
    """Look for the keys of several jobs before any of them is stored, so that KeyInUse leaves none
    behind; if another transaction commits a key in between, the next look finds it."""
    check_batch(jobs)
    if any(job.on_key is not None for job in jobs):
        return await _enqueue_each(connection, jobs, notify=notify)
    found: list[Enqueued | None] = [None] * len(jobs)
    if len(jobs) > 1 and _have_keys(jobs):
        found = await _find_unfinished(connection, jobs)
    for _ in range(KEYED_TRIES):
        found = await _store_those_left(connection, jobs, found, notify=notify, awaited=awaited)
        if None in found:
            looked = await _find_unfinished(connection, jobs)
            found = [one or other for one, other in zip(found, looked, strict=True)]
        if None not in found:
            return [one for one in found if one is not None]
    raise StoreUnavailable(TOO_FAST)


async def _enqueue_each(connection: Any, jobs: Sequence[NewJob], *, notify: bool) -> list[Enqueued]:
    """Store jobs, of which some may replace others, in the order of their keys."""
    stored: dict[int, Enqueued] = {}
    for place in sorted(range(len(jobs)), key=lambda place: jobs[place].key or ""):
        job = jobs[place]
        if job.on_key is None:
            stored[place] = (await enqueue(connection, [job], notify=notify))[0]
        elif job.on_key.window is not None:
            stored[place] = await _enqueue_in_window(
                connection, job, job.on_key.window, notify=notify
            )
        else:
            stored[place] = await _enqueue_or_replace(connection, job, job.on_key, notify=notify)
    return [stored[place] for place in range(len(jobs))]


async def _enqueue_in_window(
    connection: Any, job: NewJob, seconds: float, *, notify: bool
) -> Enqueued:
    mine = (job.key, job.task)
    for _ in range(KEYED_TRIES):
        (found,) = await _find_unfinished(connection, [job])
        if found is not None:
            return found
        if (await connection.fetch(_SQL["take_window"], *mine, seconds))[0]["is_taken"]:
            (stored,) = await _store_those_left(connection, [job], [None], notify=notify)
            if stored is not None:
                await connection.fetch(_SQL["fill_window"], *mine, stored.job_id)
                return stored
        for row in await connection.fetch(_SQL["window"], *mine, job.args):
            return Enqueued(row["job_id"], created=False, same_args=row["same_args"])
    raise StoreUnavailable(TOO_FAST)


async def _enqueue_or_replace(
    connection: Any, job: NewJob, on_key: OnKey, *, notify: bool
) -> Enqueued:
    values = (
        job.key,
        [job.task, *job.aliases],
        job.args,
        job.delay,
        job.run_at,
        on_key.due_max,
        job.aged_by,
        on_key.replaces,
        on_key.until_start,
        notify,
        job.queue,
        job.priority,
        job.tenant,
        job.stream,
        job.needs,
    )
    for _ in range(KEYED_TRIES):
        for row in await connection.fetch(_SQL["replace"], *values):
            if row["replaced"]:
                return Enqueued(row["id"], created=False)
            found = await _find_unfinished(connection, [job])  # ends it if it has expired
            break
        else:
            found = await _store_those_left(
                connection, [make_replaceable(job)], [None], notify=notify
            )
        if found[0] is not None:
            return found[0]
    raise StoreUnavailable(TOO_FAST)


async def store_unless_taken(
    connection: Any, jobs: Sequence[NewJob], *, notify: bool
) -> list[int | None]:
    """Return the ids of the stored jobs; None where an unfinished job has the key."""
    if not jobs:
        return []
    if not _have_keys(jobs):
        return [each.job_id for each in await enqueue(connection, jobs, notify=notify)]
    stored = await _store_those_left(connection, jobs, [None] * len(jobs), notify=notify)
    taken = [job.key for job, each in zip(jobs, stored, strict=True) if each is None]
    if taken and (await connection.fetch(_SQL["free_keys"], taken))[0][0]:
        stored = await _store_those_left(connection, jobs, stored, notify=notify)
    return [None if each is None else each.job_id for each in stored]


async def find_holders(connection: Any, keys: Sequence[str]) -> dict[str | None, int]:
    if not keys:
        return {}
    return {
        row["key"]: row["id"] for row in await connection.fetch(_SQL["key_holders"], list(keys))
    }


async def _store_those_left(
    connection: Any,
    jobs: Sequence[NewJob],
    found: Sequence[Enqueued | None],
    *,
    notify: bool,
    awaited: Container[int] = (),
) -> list[Enqueued | None]:
    """Fill the gaps in what was found; None is left where another enqueue took the key."""
    left = [place for place, one in enumerate(found) if one is None]
    if not left:
        return list(found)
    batch = [jobs[place] for place in left]
    labels = [to_json(job.policy.labels) if job.policy.labels else None for job in batch]
    here = {n for n, place in enumerate(left) if place in awaited}
    values = job_columns(batch, here) | {"labels": labels, "notify": notify}
    await _name_lanes(connection, batch)
    rows = iter(await fetch(connection, "enqueue", "keyed", values))

    def stored() -> Enqueued | None:
        row = next(rows)
        return Enqueued(row["id"], True) if row["created"] else None

    return [stored() if one is None else one for one in found]
