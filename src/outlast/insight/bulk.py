"""Act on all jobs that match a filter, for the page, the API and the commands.

``preview`` counts the matching jobs and returns their highest id and the time of the count.
``begin`` records the act on exactly those jobs; ``go_on`` does it in bounded steps, in any process
that calls it, even in several at once. A job that matches only later is left alone: it has a higher
id, or came into its state later by the store's clock. docs/decisions/0067 has the argument.
``insight.acting`` acts on individually named jobs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from outlast.base.clock import SYSTEM, Clock
from outlast.errors import UsageError, text_of
from outlast.insight.acting import ACTS, NAMED_MAX, By, Refused, Verb, act_on, name_jobs
from outlast.insight.documents import JOB
from outlast.insight.filters import AskedJobs, JobChoice
from outlast.insight.queries import SEARCHED_BYTES, look_through
from outlast.insight.resource import SCHEMA, Document, Resource
from outlast.model.job import State
from outlast.store.actions import (
    FILTER_MAX,
    LEFT,
    ActionRow,
    ActionState,
    Bulk,
    BulkStep,
    Note,
    Overtaken,
)
from outlast.store.inspector import ReadableStore
from outlast.store.rows import SEARCH_MAX, JobFilter, JobIds, StoredJob

if TYPE_CHECKING:
    from outlast.store.protocol import Store

COUNT_MAX = 10_000  # matches that are counted
STEP = 500  # jobs of one step: one transaction
SEARCH = 10_000  # ids that one search looks for
SAMPLE = 5  # jobs that a preview shows
PREVIEW_ROWS = 20_000  # rows that a preview reads
JUDGED_MAX = 2_000  # jobs that a preview reads if it has to check their ends
TEXT_MAX = 200  # characters of arguments that are read
PATIENCE = 5.0  # seconds without a step, after which another process may have died
LOOK_SECONDS = 0.2  # between two reads of another process's progress

Unchanged = dict[int, str]
"""Job id -> why an act has left the job as it was."""


_SEARCHABLE = {"minLength": 1, "maxLength": SEARCH_MAX, "pattern": r"^[^\x00]+$"}
Searched = Annotated[str, msgspec.Meta(extra_json_schema=_SEARCHABLE)]


class BulkFilter(
    JobChoice, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Which jobs to act on; a field that is None lets all pass.

    Attributes:
        state: one that the act is for; by default the first of them.
        since: only jobs that have ended or, if unfinished, begun or been enqueued or requeued since
            then; seconds since 1970.
        from_scratch: requeue them without their checkpoints.
    """

    state: State | None = None
    args: Searched | None = None
    error: Searched | None = None
    since: float | None = None
    from_scratch: bool = False


async def bulk_filter(store: Store, asked: AskedJobs, **more: Any) -> BulkFilter:
    """Return a request for jobs as the filter of an act, with ``more`` of its fields. A span of
    time becomes a point in time, by the store's clock: it means the same when the act is done."""
    given = msgspec.structs.asdict(asked)
    if asked.since is not None:
        given["since"] = await store.inspector.now() - asked.since
    return msgspec.convert(given | more, BulkFilter)


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The matching jobs, as a person has seen them; ``begin`` acts on these and no others.

    Attributes:
        verb, filter: as requested.
        count: how many match, at most COUNT_MAX; at_least: more may match.
        up_to_id: the highest id among them. If none was found yet, the highest id that was not
            examined; 0: all were.
        as_of: the time of the store's clock, in seconds since 1970.
        sample: the newest of them.
    """

    verb: Verb
    filter: BulkFilter
    count: int
    up_to_id: int
    as_of: float
    at_least: bool = False
    sample: list[StoredJob] = []


class MoreThanExpected(Refused):
    """More jobs match than the preview showed; nothing was done."""


async def preview(store: Store, verb: Verb, which: BulkFilter) -> Preview:
    """Return the jobs that the act would change. Never writes; bounded. Raises UsageError."""
    as_of = await store.inspector.now()
    found = await _look(store, job_filter(verb, which), which, as_of)
    return Preview(
        verb=verb,
        filter=which,
        count=min(len(found.ids), COUNT_MAX),
        at_least=found.before is not None,
        up_to_id=found.ids[0] if found.ids else (found.before or 1) - 1,
        as_of=as_of,
        sample=await store.inspector.jobs_of(found.ids[:SAMPLE], TEXT_MAX),
    )


async def begin(store: Store, seen: Preview, by: By) -> int:
    """Record the action and return its id, with which ``go_on`` does it.

    Raises UsageError, and MoreThanExpected if the preview showed all matching jobs and more match
    now.
    """
    wanted = job_filter(seen.verb, seen.filter, seen.up_to_id + 1)
    found = await _look(store, wanted, seen.filter, seen.as_of)
    if len(found.ids) > seen.count and not seen.at_least:
        raise MoreThanExpected(
            f"{len(found.ids):,} jobs match, but {seen.count:,} were expected: nothing was done;"
            " make a new preview and check it"
        )
    written = msgspec.json.encode(seen.filter).decode()
    if len(written) > FILTER_MAX:
        raise UsageError(
            f"the filter has {len(written):,} characters, but only {FILTER_MAX:,} can be recorded:"
            " search for a shorter text"
        )
    is_one = len(found.ids) == 1 and found.before is None
    return await store.note(
        Note(
            actor=by.actor,
            verb=seen.verb,
            target=f"all that match{_describe(found)}",
            job_id=found.ids[0] if is_one else None,
            filter=written,
            reason=by.reason,
            bulk=Bulk(up_to_id=seen.up_to_id, as_of=seen.as_of, expected=seen.count),
        )
    )


def _describe(found: JobIds) -> str:
    has_more = len(found.ids) > NAMED_MAX or found.before is not None
    more = " and older ones" if has_more else ""
    return f" ({name_jobs(found.ids[:NAMED_MAX])}{more})" if found.ids else ""


async def read_action(store: Store, action_id: int) -> ActionRow | None:
    """Return one action."""
    rows = await store.inspector.actions(1, action_id + 1)
    return rows[0] if rows and rows[0].id == action_id else None


async def go_on(
    store: Store, action_id: int, clock: Clock = SYSTEM, unchanged: Unchanged | None = None
) -> AsyncGenerator[ActionRow, None]:
    """Take the next steps of a bulk action until it is over; yield it before each of them, and at
    its end. ``unchanged`` receives the jobs that a step taken here left unchanged.

    While another process takes the steps, this one only watches, and takes them itself once none
    was taken for PATIENCE seconds. The next call, here or elsewhere, continues an action that broke
    off.
    """
    search = _Search()
    while (row := await read_action(store, action_id)) is not None:
        yield row
        if row.state is not ActionState.RUNNING:
            return
        try:
            left = await _take_step(store, row, search)
            if unchanged is not None:
                unchanged.update(left)
        except Overtaken:
            async for each in _look_on(store, row, clock):
                yield each


async def _look_on(store: Store, row: ActionRow, clock: Clock) -> AsyncIterator[ActionRow]:
    """Yield an action whose steps another process takes, after each step, until none is taken for a
    while."""
    moved, since = row.moved_at, clock.boot()
    while clock.boot() - since < PATIENCE:
        now = await read_action(store, row.id)
        if now is None or now.state is not ActionState.RUNNING:
            return
        if now.moved_at != moved:
            moved, since = now.moved_at, clock.boot()
            yield now
        await clock.sleep(LOOK_SECONDS)


class _Search:
    """Ids that were found ahead of the steps, so that not every step searches."""

    def __init__(self) -> None:
        self._found = JobIds()
        self._stands: int | None = None  # the position of the action for which they are valid

    async def next(self, store: Store, wanted: JobFilter) -> tuple[list[int], int | None]:
        """Return the ids of the next step, newest first, and the id down to which all are
        searched."""
        if self._stands != wanted.before_id or not self._found.ids:
            self._found = await store.inspector.job_ids(wanted)
        ids, later = self._found.ids[:STEP], self._found.ids[STEP:]
        self._stands = ids[-1] if later else self._found.before
        self._found = JobIds(ids=later, before=self._found.before)
        return ids, self._stands


async def _take_step(store: Store, row: ActionRow, search: _Search) -> Unchanged:
    verb, which, before, as_of = _orders_of(row)
    wanted = job_filter(verb, which, before)
    ids, then = await search.next(store, wanted)
    holding = await look_through(store, ids, which.texts)
    chosen = await _match(store, holding.ids, wanted, which, as_of)
    step = BulkStep(action_id=row.id, before_id=before, then=then)
    if chosen:
        return await _do(store, verb, which, chosen, step)
    await store.take_step(step)
    return {}


async def _do(
    store: Store, verb: Verb, which: BulkFilter, rows: Sequence[StoredJob], step: BulkStep
) -> Unchanged:
    """Act on jobs, unless they have changed since they were read. A running job is asked to stop
    whichever attempt runs."""
    ids, tokens = [row.id for row in rows], {row.id: row.token or 0 for row in rows}
    seen = None if verb is Verb.CANCEL else tokens
    answers = await act_on(store, verb, ids, step, seen, from_scratch=which.from_scratch)
    return {one: answer for one, answer in answers.items() if answer in LEFT}


def _orders_of(row: ActionRow) -> tuple[Verb, BulkFilter, int, float]:
    """Return what an action does, to which jobs and from which position. UsageError if this program
    cannot read that: then nothing is done."""
    if row.verb not in set(Verb) or (row.before_id or 0) < 1 or row.as_of is None:
        raise UsageError(
            f"this release cannot read action {row.id}, so nothing was done: use the release that"
            " began it"
        )
    return Verb(row.verb), filter_of(row), row.before_id or 0, row.as_of


def filter_of(row: ActionRow) -> BulkFilter:
    """Return the filter of a bulk action; if it has none, a filter that matches all jobs."""
    return read_filter(row.filter or "{}")


def read_filter(text: str | bytes) -> BulkFilter:
    """Return a filter from JSON. Raises UsageError."""
    try:
        return msgspec.json.decode(text, type=BulkFilter)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"the filter cannot be read: {text_of(error)}") from error


def job_filter(verb: Verb, which: BulkFilter, before_id: int | None = None) -> JobFilter:
    """Return a bulk action's filter as one of the store's, texts and times aside. UsageError if
    the act is not for jobs in that state."""
    states = ACTS[verb].states
    state = which.state or states[0]
    if state not in states:
        words = " or ".join(states)
        raise UsageError(f"{verb} is for jobs that are {words}, not {state}: choose another state")
    if which.group is not None and state is not State.DEAD:
        raise UsageError(
            f"only dead jobs are in groups, but the filter asks for {state} jobs: leave out one of"
            " the two"
        )
    return which.job_filter(state=state, limit=SEARCH, before_id=before_id)


async def _look(store: Store, wanted: JobFilter, which: BulkFilter, as_of: float) -> JobIds:
    """Return the newest matching jobs, and the id below which jobs were not examined. A preview
    (``before_id`` None) reads no rows if the ids alone show which match."""
    seen = await store.inspector.job_ids(
        msgspec.structs.replace(wanted, limit=COUNT_MAX + 1, look_rows=PREVIEW_ROWS)
    )
    asks_for_rows = any(one is not None for one in (which.args, which.error, which.since))
    if not asks_for_rows and wanted.before_id is None:
        return seen
    ids, before = seen.ids, seen.before
    if len(ids) > JUDGED_MAX:
        ids, before = ids[:JUDGED_MAX], ids[JUDGED_MAX - 1]
    holding = await look_through(store, ids, which.texts, SEARCHED_BYTES)
    before = before if holding.before is None else holding.before
    parts = [holding.ids[at : at + STEP] for at in range(0, len(holding.ids), STEP)]
    rows = [row for part in parts for row in await _match(store, part, wanted, which, as_of)]
    return JobIds(ids=[row.id for row in rows], before=before)


async def _match(
    store: Store, ids: Sequence[int], wanted: JobFilter, which: BulkFilter, as_of: float
) -> list[StoredJob]:
    """Return the jobs that match, texts aside, and came into their state by ``as_of``, and not
    before the filter's ``since``."""
    earliest = which.since or 0.0
    rows = await store.inspector.jobs_of(ids, 0)
    rows = [row for row in rows if row.state is wanted.state and earliest <= _came_at(row) <= as_of]
    came_back = [row.id for row in rows if row.state is State.QUEUED and row.token is not None]
    if not came_back:
        return rows
    last = await store.inspector.last_attempts(came_back, 0)
    late = {row.id for row, attempt in last if attempt is not None and attempt.ended_at > as_of}
    return [row for row in rows if row.id not in late]


def _came_at(row: StoredJob) -> float:
    """Return when a job came into its state."""
    return row.ended_at or row.started_at or row.requeued_at or row.enqueued_at


ACTIONS_SHOWN = 50


class ActionList(msgspec.Struct, frozen=True):
    """Actions, newest first; ``before``: further actions have smaller ids; None: no more."""

    rows: list[ActionRow]
    before: int | None


async def list_actions(
    store: ReadableStore,
    limit: int = ACTIONS_SHOWN,
    before: int | None = None,
    job_id: int | None = None,
) -> ActionList:
    """Return the actions of people, on one job or all."""
    older = {} if before is None else {"before_id": before}
    rows = await store.inspector.actions(limit, job_id=job_id, **older)
    return ActionList(rows, rows[-1].id if len(rows) == limit else None)


def actions_document(found: ActionList) -> Document:
    """Return a list of actions as one JSON document."""
    shown = [ACTION.document(row) for row in found.rows]
    return {"schema": SCHEMA, "actions": shown, "next_before": found.before}


ACTION = Resource(
    "Action",
    ActionRow,
    "id at user verb target job filter reason counts state expected moved_at",
    user=(str, lambda row: row.actor),
    job=(int | None, lambda row: row.job_id),
)


PREVIEW = {
    "verb": Verb,
    "filter": BulkFilter,
    "count": int,
    "at_least": bool,
    "up_to_id": int,
    "as_of": float,
    "sample": [JOB],
}
"""The types in the document of a preview."""


def preview_document(seen: Preview) -> Document:
    """Return the jobs that a bulk action would change."""
    return {
        "schema": SCHEMA,
        "verb": seen.verb.value,
        "filter": msgspec.to_builtins(seen.filter),
        "count": seen.count,
        "at_least": seen.at_least,
        "up_to_id": seen.up_to_id,
        "as_of": seen.as_of,
        "sample": [JOB.document(row) for row in seen.sample],
    }
