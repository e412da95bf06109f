"""Defines jobs, attempts, workers and bad ends as people, screens and ``verify`` read them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Generic, TypeVar

import msgspec

from outlast.model.crash import Crash, Progress
from outlast.model.job import Policy, State
from outlast.model.kinds import Filter, Json, Time
from outlast.store.stacks import Stack
from outlast.store.values import Given, Wants, WorkerFields

EXPIRED, UPSTREAM = "expired", "upstream"  # reasons why a job was cancelled
HELD_MAX = 1_000  # running jobs that one look lists
CHILDREN_BYTES = 16 * 1024**2  # of results that one look at children has
CIRCLE_MAX = 100_000  # jobs that the search for a circle looks at
UPSTREAM_SHOWN = 20  # jobs that one waits for, that a look lists
GONE_MAX = 200  # gone workers that one look lists
DEAD_LOOKED_AT = 4_000  # dead jobs, in their index: each may still have to be looked up
ROWS_LOOKED_AT = 1_000  # dead jobs or attempts, if each row is read
GROUPS_MAX = 200
SUSPECTS_MAX = 500
SEARCH_MAX = 1_000  # characters of a text that is searched for
LOOK_BYTES = 8_000_000  # of arguments that one look reads: some tenths of a second
HISTORY_PAGE = 1_000  # jobs


class WorkerStatus(StrEnum):
    """Only ``active`` and ``draining`` workers hold jobs; the others never come back."""

    ACTIVE = "active"
    DRAINING = "draining"
    STOPPED = "stopped"
    LOST = "lost"


UNSTORED = ("malformed", "lock_free")
"""Fields without a column of their name: they are found out as a row is read."""
T = TypeVar("T")
P = TypeVar("P")
S = TypeVar("S")


class JobFields(Given, Generic[T, P, S], frozen=True):
    """The fields of a job, with the types that its reader has for a time, a payload and a stack.
    ``JobRow`` (``insight.row``) says what each means."""

    id: int
    task: str
    state: State
    attempt_count: int
    failures: int
    losses: int
    token: int | None
    waiting: bool
    args: P
    policy: Policy
    run_at: T
    enqueued_at: T
    requeued_at: T | None = None
    expires_at: T | None = None
    worker_id: int | None = None
    worker: str | None = None
    host: str | None = None
    started_at: T | None = None
    ended_at: T | None = None
    cancel_requested: bool = False
    hard_deadline: T | None = None
    progress: Progress | None = None
    checkpoint: P | None = None
    checkpoint_at: T | None = None
    result: P | None = None
    solo: int = 0
    incident: int | None = None
    stack_at: T | None = None
    stack: S | None = None
    held_back: str | None = None
    limits: tuple[str, ...] = ()
    event: str | None = None
    malformed: str | None = None


class StoredJob(JobFields[Time, Json, Stack], frozen=True, kw_only=True):
    """A job as the store reads it; in a list without its stack."""

    @property
    def reason(self) -> str | None:
        """Why it was cancelled, if not by a person or by itself: ``expired``, or ``upstream``: a
        job that it waited for did not end as required."""
        if self.state is not State.CANCELLED or self.cancel_requested:
            return None
        if self.started_at is not None:
            return None
        ended_at = self.ended_at or 0.0
        if self.expires_at is not None and self.expires_at <= ended_at:
            return EXPIRED
        return None if self.attempt_count else UPSTREAM

    @property
    def keep(self) -> float | None:
        """For how many seconds its row is kept after its end; None: as long as workers keep it."""
        return self.policy.keep

    @property
    def meta(self) -> Json | None:
        """The note of its caller."""
        return self.policy.meta

    @property
    def labels(self) -> tuple[str, ...]:
        """The names by which people find it."""
        return self.policy.labels


class Held(msgspec.Struct, frozen=True):
    """A running job, its worker, and the job whose result it waits for, if it does."""

    job_id: int
    worker_id: int
    waits_for: int | None = None


class DependencyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job that another one waits or waited for. ``wants``: how it has to end; ``is_met``: it has;
    ``has_failed``: it has ended otherwise. ``task`` and ``state`` None: its row is deleted.
    ``number_left``: how many the other one waits for in all."""

    job_id: int
    wants: Wants
    is_met: bool
    has_failed: bool
    number_left: int
    task: str | None = None
    state: State | None = None


class Child(msgspec.Struct, frozen=True):
    """The n-th child that attempts of a job have spawned; ``task``, ``state`` None: it is gone."""

    n: int
    id: int
    task: str | None
    state: str | None
    result: str | None


class FlowLink(msgspec.Struct, frozen=True):
    """A stored dependency of a job, with its ``state`` (``store.dependencies``); ``place`` below
    zero: the upstream job is a child of the job."""

    job_id: int
    upstream_id: int
    wants: Wants
    state: int
    place: int


class FlowMember(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a flow shows it. ``may_return``: it was cancelled because of what it waited for, and
    waits again if that is requeued. ``phase``: its state, or what a queued one waits for (its time,
    a retry, an event, to run alone)."""

    id: int
    task: str
    state: State
    phase: str
    tenant: str | None
    enqueued_at: Time
    may_return: bool


class Unresolved(msgspec.Struct, frozen=True, kw_only=True):
    """A job whose state contradicts what it waits for: ``is_open`` though something is left, or
    blocked though nothing is, or though the end of ``upstream_id`` would not unblock it; or it
    waits for an ``event`` that was sent and would not wake it."""

    job_id: int
    upstream_id: int | None
    is_open: bool
    event: str | None = None


class ClosedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that did not complete. Times are seconds since 1970 on the store's clock."""

    job_id: int
    token: int
    number: int
    outcome: str
    charge: str
    started_at: Time
    ended_at: Time
    worker_id: int | None = None


class AttemptRow(ClosedAttempt, frozen=True, kw_only=True):
    """A closed attempt with its evidence. ``repeats``: how many in a row have ended with this
    outcome, this one included. ``dropped``: how many rows of earlier attempts were deleted up to
    this end: of uncharged ones only the first and the last are kept. ``malformed`` as on a job.
    """

    worker: str | None = None
    host: str | None = None
    pid: int | None = None
    message: str = ""
    progress: Progress | None = None
    checkpoint_age: float | None = None
    crash: Crash | None = None
    repeats: int = 1
    dropped: int = 0
    malformed: str | None = None


class WorkerRow(WorkerFields, frozen=True, kw_only=True):
    """A worker as it is read. ``presence``: the incarnation of the database under which its lock
    was taken, and the role. ``failing``: the failing duty, a colon and the error. ``unheard``:
    seconds since its last beat, by the store's clock. ``acknowledged_pauses``: the version of the
    pauses on which it acts (``model.pause``). ``stacks``: the requested ones (``store.stacks``).
    ``malformed`` as on a job. ``lock_path``: where this program
    looks for its lock file; ``lock_free``: that is free, so the worker is dead (``liveness``)."""

    id: int
    status: WorkerStatus
    epoch: int
    beat: int
    running: int
    started_at: Time
    heartbeat_at: Time
    lease_expires_at: Time
    unheard: float
    stopped_at: Time | None = None
    drain_requested: bool = False
    cause: str | None = None
    presence: str | None = None
    presence_off: str | None = None
    wakeup: str | None = None
    failing: str | None = None
    failing_since: Time | None = None
    acknowledged_pauses: str | None = None
    stacks: str | None = None
    malformed: str | None = None
    lock_free: bool = False


class StepRow(msgspec.Struct, frozen=True):
    """A kept step: its name, the token of the attempt that kept it, when, and its bytes."""

    name: str
    token: int
    at: Time
    bytes: int


class RefusalRow(msgspec.Struct, frozen=True, kw_only=True):
    """A refused write: who tried it (``worker`` None: nothing is known of the attempt of that
    token), the verb, and how many seconds late. ``id`` rises with each refusal."""

    id: int = 0
    job_id: int
    token: int
    verb: str
    at: Time
    late_by: float | None = None
    worker: str | None = None


class Part(StrEnum):
    """Where a queued job waits: in the line, in a stream, for its time, or to run alone."""

    LINE = "line"
    STREAMS = "streams"
    TIMED = "timed"
    SUSPECTS = "suspects"


class JobNames(msgspec.Struct, frozen=True, kw_only=True):
    """What a job has to have in common with a filter; None lets all pass."""

    state: str | None = None
    queue: Annotated[str | None, Filter("only jobs of this queue", title="Queue")] = None
    task: Annotated[str | None, Filter("only jobs of this task", title="Task")] = None
    tenant: Annotated[str | None, Filter("only jobs of this tenant", title="Tenant")] = None
    label: Annotated[str | None, Filter("only jobs with this label", title="Label")] = None


CHOSEN = [one for one in JobNames.__struct_fields__ if one not in {"state", "label"}]
"""The columns of jobs that statements compare in ``{chosen}``."""


class JobFilter(JobNames, frozen=True, kw_only=True):
    """Which jobs to list, newest id first. ``part``: only queued jobs that wait there.
    ``fingerprint``, ``worker_id``: only with dead, and running, jobs. ``look_rows``: rows that one
    look may read; None: LOOK_ROWS."""

    state: State | None = None
    limit: int = 50
    before_id: int | None = None
    part: Part | None = None
    look_rows: int | None = None
    fingerprint: str | None = None
    worker_id: int | None = None


class JobIds(msgspec.Struct, frozen=True, kw_only=True):
    """Ids that a look has found, newest first. ``before``: it has not read the jobs with smaller
    ids; None: there are none."""

    ids: list[int] = []
    before: int | None = None


class DeadGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead jobs with one fingerprint (``model.crash``; None: written by another program).

    Attributes:
        number: how many of them are among the jobs that were read.
        newest: the largest id.
        first_at, last_at: when the first and the last of them died, in seconds since 1970.
    """

    fingerprint: str | None
    number: int
    newest: int
    first_at: Time
    last_at: Time


class DeadGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of dead jobs, the latest death first, at most GROUPS_MAX. ``looked_at``: how many jobs
    were read; ``full``: there are more, with smaller ids. ``more``: there are more groups."""

    groups: list[DeadGroup] = []
    looked_at: int = 0
    full: bool = False
    more: bool = False


class AttemptFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which ended attempts to list, newest first, with tokens below ``before``. ``outcomes`` None:
    all."""

    outcomes: tuple[str, ...] | None = None
    worker_id: int | None = None
    tenant: str | None = None
    before: int | None = None
    limit: int = 50


class EndedAttempt(ClosedAttempt, frozen=True, kw_only=True):
    """A closed attempt without its crash report; of its job ``task``, ``queue`` and ``tenant``,
    None if the job is gone."""

    worker: str | None = None
    host: str | None = None
    message: str = ""
    repeats: int = 1
    task: str | None = None
    queue: str | None = None
    tenant: str | None = None


class EndedAttempts(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one look. ``before``: it has not read the attempts with smaller tokens; None:
    there are none. ``back_to``: when the oldest attempt that it has read ended."""

    rows: list[EndedAttempt] = []
    before: int | None = None
    back_to: float | None = None


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts with one outcome, among those read; ``hour``: how many within the last hour;
    ``last_at``: when the last of them ended."""

    outcome: str
    number: int
    hour: int
    last_at: Time


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A job that shared a process which died. ``incident`` names that death by its lowest token;
    ``solo`` as on a job."""

    incident: int
    job_id: int
    task: str
    queue: str
    state: str
    solo: int
    losses: int
    tenant: str | None = None


class Texts(msgspec.Struct, frozen=True, kw_only=True):
    """The texts that a job has to hold; None lets all pass. A to Z match in upper and lower case.

    Attributes:
        args: a text in its arguments, as they are stored: JSON.
        error: a text in its last error: ``OUTCOME: MESSAGE`` of its last attempt that did not
            complete.
        within: seconds within which it ended, began or was enqueued.
    """

    args: str | None = None
    error: str | None = None
    within: float | None = None


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one look at jobs, newest first. ``before``: it has not read the jobs with
    smaller ids, since the arguments of the others are large; None: it has read all. ``size``: bytes
    of the arguments that it has read."""

    ids: list[int] = []
    before: int | None = None
    size: int = 0


def is_searchable(text: str) -> bool:
    """Whether a job could hold this text."""
    try:
        return 0 < len(text) <= SEARCH_MAX and "\x00" not in text and bool(text.encode())
    except UnicodeEncodeError:
        return False


class AttemptPast(ClosedAttempt, frozen=True, kw_only=True):
    """A closed attempt as ``outlast verify`` reads it."""

    has_crash: bool = False
    dropped: int = 0


class JobPast(msgspec.Struct, frozen=True, kw_only=True):
    """A job with its closed attempts, by rising tokens. ``worker_status``: of the worker that runs
    it; None: there is no such row. ``ordered``: the stream in which it waits its turn under an
    ordered limit."""

    id: int
    state: State
    attempt_count: int
    failures: int
    losses: int
    policy: Policy
    solo: int = 0
    token: int | None = None
    started_at: Time | None = None
    ended_at: Time | None = None
    requeued_at: Time | None = None
    worker_id: int | None = None
    worker_status: WorkerStatus | None = None
    task: str = ""
    queue: str = ""
    tenant: str | None = None
    ordered: int | None = None
    attempts: list[AttemptPast] = []


class HistoryPage(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs by rising id. ``strays``: attempts of missing jobs; ``token_last``: the highest token
    ever drawn; ``next_after`` None: this is the last page."""

    jobs: list[JobPast]
    strays: list[AttemptPast]
    token_last: int
    next_after: int | None
