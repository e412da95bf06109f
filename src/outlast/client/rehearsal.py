"""Read a store with the code of another release, and find what it would do differently.

A job is read as a runner reads it, up to the call of its task: nothing is run, and nothing is
written. Jobs are listed by id, page by page, and read evenly spaced if there are more than may be
read, so that the oldest and the newest are among them.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec

from outlast.client.app import App
from outlast.errors import BadArguments, ConfigError, NotEncrypted, UnknownTask, UsageError, text_of
from outlast.insight.limits import spec_text
from outlast.insight.queries import walk_schedules
from outlast.insight.schedules import call_of, spec_of
from outlast.model.job import BACKFILL_KEY, ENDED, OF_ONE_JOB, SHELL_TASK, TICKS_KEY, Policy, State
from outlast.model.schedule import Spec
from outlast.payload.codec import from_json
from outlast.store.inspector import Inspector
from outlast.store.rows import JobFilter, StoredJob, WorkerRow, WorkerStatus
from outlast.store.schedules import NewSchedule, Origin, ScheduleRow
from outlast.store.values import NewJob

READ_MAX = 100_000  # jobs that are read by default
LISTED = 20_000  # ids of one look
PAGE = 250  # jobs, or schedules, of one read
FINDINGS_MAX = 500
_OPTIONS = [name for name in Policy.__struct_fields__ if name not in OF_ONE_JOB | {"keep"}]


class Area(StrEnum):
    """What a finding is about."""

    TASK = "task"
    ARGUMENTS = "arguments"
    CHECKPOINT = "checkpoint"
    KEY = "key"
    OPTION = "option"
    LIMIT = "limit"
    WORKER = "worker"
    SCHEDULE = "schedule"


FIXES = {
    Area.TASK: "keep the task until they have ended, or name its successor's old name:"
    " @app.task(aliases=[…])",
    Area.ARGUMENTS: "let the task accept them until they have ended: the old parameter beside a new"
    " one, a default for a new parameter, a wider type. Until then they wait, uncharged",
    Area.CHECKPOINT: "let the release read them until these jobs have ended, or start them over:"
    " `outlast cancel ID`, `outlast requeue ID --from-scratch`",
    Area.KEY: "give the task that takes over its old name as an alias: until these jobs have ended,"
    " their keys refuse jobs of any other task (KeyInUse)",
    Area.OPTION: "jobs keep the options that they were enqueued with: let them end first, or accept"
    " that: --ignore option:NAME",
    Area.LIMIT: "jobs keep the limits that they were enqueued under: let them end first, or accept"
    " that: --ignore limit:NAME",
    Area.WORKER: "let a worker of the release take it, then give its queues: --queues a,b",
    Area.SCHEDULE: "declare it as it is, or accept the change: --ignore schedule:NAME",
}
_REQUIRED = (
    "leave out Encryption(required=True) until they have ended: a worker makes such jobs dead"
)


class Mismatch(msgspec.Struct, kw_only=True):
    """One difference between a store and a release. ``name``: the task, limit or schedule.
    ``count``: how many of the jobs that were read have it, such as ``job``; 0: it is not about
    jobs."""

    kind: Area
    name: str
    sentence: str
    fix: str
    count: int = 0
    job: int | None = None


class Rehearsal(msgspec.Struct, kw_only=True):
    """The findings, and how much of the store was read. ``unfinished``: queued and running jobs.
    ``more``: findings beyond FINDINGS_MAX, each about one job, schedule or the like."""

    unfinished: int = 0
    read: int = 0
    schedules: int = 0
    more: int = 0
    findings: list[Mismatch] = []
    alike: dict[tuple[Area, str, str], Mismatch] = {}

    def add(self, kind: Area, name: str, sentence: str, job: int | None = None) -> None:
        """Add a finding, or count it with one that is alike."""
        found = self.alike.get((kind, name, sentence))
        if found is None:
            if len(self.findings) >= FINDINGS_MAX:
                self.more += 1
                return
            fix = _REQUIRED if "Encryption(required=True)" in sentence else FIXES[kind]
            found = Mismatch(kind=kind, name=name, sentence=sentence, fix=fix, job=job)
            self.findings.append(found)
            self.alike[kind, name, sentence] = found
        found.count += job is not None


_Found = Iterator[tuple[Area, str, str]]  # with the name, and the sentence


async def rehearse(
    app: App,
    inspector: Inspector,
    *,
    most: int | None = READ_MAX,
    queues: Sequence[str] | None = None,
    on_page: Callable[[Rehearsal], object] = lambda _: None,
) -> Rehearsal:
    """Compare what a store keeps with the tasks, schedules and limits of an application.

    Args:
        app: the new release.
        inspector: the inspector of the store, or of a copy.
        most: jobs that are read at most; None: all unfinished ones.
        queues: the queues that the workers of the release will take; None: those of the active
            workers.
        on_page: called with the progress.

    Raises the store's errors.
    """
    rehearsal = Rehearsal()
    ids = await _unfinished(inspector)
    rehearsal.unfinished = len(ids)
    async for row in _jobs(inspector, _spread(ids, most)):
        rehearsal.read += 1
        for kind, name, sentence in _check_job(app, row, queues):
            rehearsal.add(kind, name, sentence, row.id)
        if rehearsal.read % PAGE == 0:
            on_page(rehearsal)
    async for schedule in walk_schedules(inspector):
        rehearsal.schedules += 1
        for kind, name, sentence in _check_schedule(app, schedule):
            rehearsal.add(kind, name, sentence)
    for limit in await inspector.limits():
        mine = app.limits.declared.get(limit.name)
        if mine is not None and limit.declared not in (None, mine.spec):
            old, new = _spec_words(limit.declared), _spec_words(mine.spec)
            rehearsal.add(Area.LIMIT, limit.name, f"it changes from {old} to {new}")
    for kind, name, sentence in _check_workers(app, await inspector.workers(), queues):
        rehearsal.add(kind, name, sentence)
    kinds = [*Area]
    rehearsal.findings.sort(key=lambda one: (kinds.index(one.kind), -one.count))
    return rehearsal


# -- what is read


async def _unfinished(inspector: Inspector) -> Sequence[int]:
    """Return the ids of all queued and running jobs: 8 bytes for each."""
    ids = array("q")
    for state in (State.QUEUED, State.RUNNING):
        before: int | None = None
        while True:
            look = await inspector.job_ids(JobFilter(state=state, limit=LISTED, before_id=before))
            ids.extend(look.ids)
            if (before := look.before) is None:
                break
    return ids


def _spread(ids: Sequence[int], most: int | None) -> Sequence[int]:
    """Return ``most`` of the ids, evenly spaced, with the first and the last."""
    if most is None or len(ids) <= most:
        return ids
    step = (len(ids) - 1) / max(1, most - 1)
    return array("q", (ids[round(at * step)] for at in range(most)))


async def _jobs(inspector: Inspector, ids: Sequence[int]) -> AsyncIterator[StoredJob]:
    for start in range(0, len(ids), PAGE):
        for row in await inspector.jobs_of(ids[start : start + PAGE]):
            if row.state not in ENDED:  # it may have ended since it was listed
                yield row


# -- jobs


def _check_job(app: App, row: StoredJob, queues: Sequence[str] | None) -> _Found:
    if row.task == SHELL_TASK:  # Outlast's own
        return
    try:
        task = app.find(row.task)
    except UnknownTask as error:
        yield Area.TASK, row.task, text_of(error)
        if row.key is not None and not row.key.startswith((TICKS_KEY, BACKFILL_KEY)):
            yield Area.KEY, row.task, "they hold keys of a task that the release does not know"
        return
    if (refused := _refusal(lambda: task.signature.decode(row.args))) is not None:
        yield Area.ARGUMENTS, task.name, refused
    if (saved := row.checkpoint) is not None:
        payloads = app.stores.payloads
        shape = task.checkpoint
        refused = _refusal(
            lambda: from_json("the checkpoint", payloads.decode("checkpoint", saved), shape)
        )
        if refused is not None:
            yield Area.CHECKPOINT, task.name, refused
    for name in _options_apart(row.policy, task.policy) if row.malformed is None else ():
        old, new = getattr(row.policy, name), getattr(task.policy, name)
        yield Area.OPTION, task.name, f"they keep {name}={old!r}; the release has {new!r}"
    wanted = tuple(sorted({limit.name for limit in task.limits}))
    if row.limits != wanted:
        told = f"they are under {_listed(row.limits)}; the release has {_listed(wanted)}"
        yield Area.LIMIT, task.name, told
    if queues is not None and row.queue not in queues:
        told = f"they wait in the queue {row.queue!r}, which no worker of the release takes"
        yield Area.WORKER, task.name, told


def _refusal(read: Callable[[], object]) -> str | None:
    """Return why a payload cannot be read, without any value of it; None: it can."""
    try:
        read()
    except (BadArguments, NotEncrypted) as error:
        return text_of(error)
    except Exception as error:  # of a codec of the application's own: its text may show a value
        return f"reading them raises {type(error).__name__}"
    return None


@lru_cache(maxsize=1_000)
def _options_apart(old: Policy, new: Policy) -> list[str]:
    return [name for name in _OPTIONS if getattr(old, name) != getattr(new, name)]


def _listed(names: Sequence[str]) -> str:
    return f"the limits {', '.join(names)}" if names else "no limits"


def _spec_words(spec: Any) -> str:
    return spec_text(spec) + (", in order" if spec.ordered else "")


# -- schedules


def _check_schedule(app: App, row: ScheduleRow) -> _Found:
    new: NewSchedule | None = app.schedules.declared.get(row.name)
    if row.origin == Origin.RUN_TIME:
        if new is not None:
            told = "it was put at run time, so the release's own schedule is not used"
            yield Area.SCHEDULE, row.name, told
        elif (refused := _refused_call(app, row)) is not None:
            yield Area.SCHEDULE, row.name, refused
    elif new is None and row.declared:
        yield Area.SCHEDULE, row.name, "it ends: the release does not declare it"
    elif new is not None and (changes := list(_changes(app, row, new))):
        yield Area.SCHEDULE, row.name, f"it changes: {', '.join(changes)}"


def _refused_call(app: App, row: ScheduleRow) -> str | None:
    """Return why the release could not run the jobs of a schedule; None: it could."""
    try:
        call = call_of(row)
        if call.task != SHELL_TASK:
            app.find(call.task).signature.decode(call.args)
    except (UnknownTask, UsageError, BadArguments, NotEncrypted) as error:
        return f"its jobs cannot run: {text_of(error)}"
    return None


def _changes(app: App, row: ScheduleRow, new: NewSchedule) -> Iterator[str]:
    """Yield what the release changes about a schedule, without the values of arguments."""
    try:
        old_spec, old_call = spec_of(row), call_of(row)
    except (ConfigError, UsageError) as error:
        yield text_of(error)
        return
    new_spec = msgspec.json.decode(new.spec, type=Spec)
    pairs = [
        (name, getattr(old_spec, name), getattr(new_spec, name))
        for name in ("cron", "every", "zone", "jitter")
    ] + [
        (name, getattr(row, name), getattr(new, name)) for name in ("overlap", "catch_up", "grace")
    ]
    yield from (f"{name} from {old!r:.80} to {now!r:.80}" for name, old, now in pairs if old != now)
    for name in NewJob.__struct_fields__:
        old, now = getattr(old_call, name), getattr(new.call, name)
        if name == "args":
            old, now = (_plain_args(app, each) for each in (old, now))
        if old == now or name in {"stream", "aliases"}:
            continue
        if name == "policy":
            yield f"{', '.join(_options_apart(old, now)) or 'the options'} of its jobs"
        elif name in {"needs", "aged_by"}:
            yield "the limits of its jobs"
        else:
            yield f"the {name} of its jobs"


def _plain_args(app: App, args: str) -> str:
    try:
        return app.stores.payloads.decode("args", args)
    except (BadArguments, NotEncrypted):
        return args


# -- workers


def _check_workers(app: App, rows: Sequence[WorkerRow], queues: Sequence[str] | None) -> _Found:
    """Yield tasks whose next jobs no worker would take, among ``queues``, or those of active
    workers of an earlier release."""
    active = [row for row in rows if row.status is WorkerStatus.ACTIVE]
    known = {name for row in active for name in (*row.tasks, *row.lacks)}
    taken = {queue for row in active for queue in row.queues} if queues is None else {*queues}
    takes_all = queues is None and not all(row.queues for row in active)
    for task in app.tasks.values():
        is_known = not known.isdisjoint({task.name, *task.aliases})
        queue = task._placement.queue  # noqa: SLF001
        if (is_known or queues is not None) and not takes_all and queue not in taken:
            told = f"its queue is {queue!r}, which no worker takes"
            yield Area.WORKER, task.name, told
        if is_known and not any(task.requires <= {*row.tags} for row in active):
            tags = ", ".join(sorted(task.requires))
            yield Area.WORKER, task.name, f"it requires {tags}, which no active worker has"
