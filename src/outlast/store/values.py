"""Defines the arguments and results of a store's verbs (``store.protocol``): plain values.

A value knows nothing of a store; ``store.rows`` has the values that people and screens read.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import NamedTuple

import msgspec

from outlast.errors import BadData, text_of
from outlast.model.crash import Crash, CrashKind, Progress
from outlast.model.job import JobFacts, Policy
from outlast.model.lease import DeathCause, Sign
from outlast.model.pause import PauseKind
from outlast.store.stacks import StackRequest

TRIP_BYTES = 1024 * 1024  # of arguments and checkpoints in one reply, unless a request allows more
EVENTS_SECONDS = 30 * 86_400.0  # after which an event is deleted, if no unfinished job needs it
RunBy = tuple[int, int, str, int]  # a running job, its token, its worker's name and number


class Answer(StrEnum):
    """The result of a guarded write. ``already``: this very end was written before (its answer was
    lost). ``busy``: the row is locked, for example by the task's own transaction: send it again.
    """

    ACCEPTED = "accepted"
    ALREADY = "already"
    REFUSED = "refused"
    BUSY = "busy"


class Purpose(StrEnum):
    """The purposes for which a role of the database can be granted privileges."""

    WORKER = "worker"
    ENQUEUE = "enqueue"  # also to read jobs, and their results
    PRODUCE = "produce"  # to enqueue by outlast_enqueue_v1, and nothing else
    VIEW = "view"  # to read everything


MAY = {
    Purpose.WORKER: "do what a worker does",
    Purpose.ENQUEUE: "enqueue jobs and read them",
    Purpose.PRODUCE: "call outlast_enqueue_v1",
    Purpose.VIEW: "read everything",
}
"""What a role for each purpose may do, in words."""


class Wants(IntEnum):
    """How an upstream job has to end for a job that waits for it."""

    COMPLETED = 0
    ENDED = 1  # in whichever way
    DEAD = 2


class Upstream(NamedTuple):
    """A job that a new one waits for: its id or, below zero, its place in the same call, counted
    from -1 on, which comes before the new one's."""

    job: int
    wants: Wants = Wants.COMPLETED


class OnKey(msgspec.Struct, frozen=True, kw_only=True):
    """What an enqueue does about the unfinished job of its task that has its key. ``replaces``: one
    that has not begun gets the new arguments and time, at most ``due_max`` seconds after it was
    enqueued. ``until_start``: one that has begun loses the key. ``window``: in seconds; a job
    stored in the same window is returned, even if it has ended."""

    replaces: bool = False
    until_start: bool = False
    due_max: float | None = None
    window: float | None = None


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a job that are stored, and read by people, as an enqueue gives them."""

    queue: str = "default"
    priority: int = 0
    key: str | None = None
    tenant: str | None = None


class Placed(Given, frozen=True, kw_only=True):
    """Where and when a job is to run, and whose it is. It is due ``delay`` seconds from the store's
    now, or at ``run_at`` (seconds since 1970); if it has not begun within ``expires`` seconds, or
    by ``expires_at``, it is cancelled. ``on_key`` None: an unfinished job with the key is returned
    as it is. ``after``: the jobs for whose ends it is blocked."""

    delay: float = 0.0
    run_at: float | None = None
    expires: float | None = None
    expires_at: float | None = None
    on_key: OnKey | None = None
    after: tuple[Upstream, ...] = ()


class NewJob(Placed, frozen=True, kw_only=True):
    """A job to enqueue. ``args`` is JSON text. ``aliases``: other names of the same task.
    ``stream``: where it waits if it is under limits or shares fairly (``model.limits``), with
    ``needs``, its permits, as JSON. ``aged_by``: the seconds that its priority is worth, if waiting
    raises it: its place in its stream is that of a job due earlier by as much. The columns are
    listed in ``store.new_rows``.

    Attributes:
        policy_text: its policy as it is stored. BadData for a lone surrogate.
        due_in: the seconds from the store's now until it is due.
        has_to_wait: whether it waits for other jobs.
    """

    task: str
    args: str = "{}"
    policy: Policy = Policy()
    aliases: tuple[str, ...] = ()
    stream: int | None = None
    needs: str | None = None
    aged_by: float | None = None

    @property
    def policy_text(self) -> str:  # noqa: D102
        return _policy_text(self.policy)

    @property
    def due_in(self) -> float:  # noqa: D102
        return max(0.0, self.delay)

    @property
    def has_to_wait(self) -> bool:  # noqa: D102
        return bool(self.after)


@lru_cache(maxsize=1_000)
def _policy_text(policy: Policy) -> str:
    try:
        return msgspec.json.encode(policy).decode()
    except UnicodeEncodeError as error:
        raise BadData(f"not a text that can be stored: {text_of(error)}") from error


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The id of an enqueued job. ``created`` is false if an unfinished job, or one of the window,
    has its key; ``same_args`` then is false if that job's arguments differ."""

    job_id: int
    created: bool
    same_args: bool = True


class WorkerFields(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a worker as it registers, which people read as well. ``queues`` empty means
    all. ``lacks``: tasks that it may not serve -> the tags that it needs for them. ``instance``: a
    name that the platform keeps unique. The lock fields name its host-local lock file;
    ``lock_path`` None: it has none."""

    name: str
    host: str
    pid: int
    boot_id: str
    heartbeat: float
    lease: float
    queues: list[str] = []
    tasks: list[str] = []
    tags: list[str] = []
    lacks: dict[str, list[str]] = {}
    instance: str | None = None
    release: str | None = None
    lock_path: str | None = None
    lock_device: int | None = None
    lock_inode: int | None = None


class NewWorker(WorkerFields, frozen=True, kw_only=True):
    """A worker that registers. ``succeeds``: another live worker of its instance is gone.
    ``registration``: a key of this request. ``token_seen``: the highest token it has seen; the
    store jumps above it."""

    succeeds: bool = True
    token_seen: int = 0
    registration: str | None = None


class WorkerRef(msgspec.Struct, frozen=True):
    """A registered worker's connection: the epoch rises at each reconnect. ``registration``: the
    key under which the row was made, since a store that was set back issues ids again."""

    worker_id: int
    epoch: int
    registration: str | None = None


class Registered(WorkerRef, frozen=True):
    """A new registration, and how many earlier ones of its instance were marked lost."""

    replaced: int = 0


class NewPause(msgspec.Struct, frozen=True, kw_only=True):
    """What to pause (``model.pause``), by whom and why; ``stop``: running attempts are asked to
    stop as well."""

    kind: PauseKind
    name: str = ""
    paused_by: str | None = None
    reason: str | None = None
    stop: bool = False


class Failing(msgspec.Struct, frozen=True):
    """A failing duty of a worker, its error (one line), and for how many seconds it has failed."""

    duty: str
    error: str
    seconds: float


def line_of(failing: Failing) -> str:
    """Return the text that a row shows for a failing duty."""
    return f"{failing.duty}: {failing.error}"


class FollowedWakeups(msgspec.Struct, frozen=True):
    """Wake-ups that a worker has heard, by the positions that name them: the store may tell other
    listeners of their fate. ``kind``: of workers that serve the same queues and tasks; None:
    the requests leave out some that this worker serves."""

    kind: str | None
    positions: list[int]


class ClaimRequest(msgspec.Struct, frozen=True):
    """How many jobs of these tasks may be claimed from these queues (empty: all queues, which take
    turns). Within a queue: priority first, then position.

    ``solo`` 0: ordinary jobs, never a suspect. 1: suspects, each for a runner of its own. 2: one
    job that must have its worker to itself. Once a request for suspects was given some, the
    requests behind it are given nothing.

    ``bytes_max``: of arguments and checkpoints in one reply, the smallest of its requests', and as
    much of upstream results; the first job comes regardless of its size.

    ``not_queues``, ``not_tenants``: jobs of these are passed over, and not waited for. These and
    ``queues`` are the same in all requests of an exchange.

    Only the first request has ``followed``, the wake-ups that it follows, and ``whole``: a worker
    that leaves asks to look everywhere at once (``Exchanged.next_look``).
    """

    tasks: list[str]
    limit: int
    queues: list[str] = []
    solo: int = 0
    bytes_max: int = TRIP_BYTES
    not_queues: tuple[str, ...] = ()
    not_tenants: tuple[str, ...] = ()
    followed: FollowedWakeups | None = None
    whole: bool = False


class NewEvent(msgspec.Struct, frozen=True):
    """An event to be sent; ``value``: a list with its value, as JSON, in its stored form."""

    name: str
    value: str


class Claimed(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A job that now runs under ``token``. ``number`` counts its attempts from 1; it had been due
    for ``waited`` seconds. ``malformed``: why it must not run, if its row cannot be read.
    ``expires_in``: seconds from its claim until it expires, by the store's clock; ``begin_by``:
    that time on the host's boot clock. ``results``: of the jobs upstream, as stored, if its policy
    names inputs. ``awaited``: other jobs wait for it, or for a limit that it is under."""

    job_id: int
    token: int
    task: str
    queue: str
    args: str
    number: int
    failures: int
    losses: int
    policy: Policy
    tenant: str | None = None
    checkpoint: str | None = None
    priority: int = 0
    solo: int = 0
    incident: int | None = None
    malformed: str | None = None
    waited: float = 0.0
    expires_in: float | None = None
    begin_by: float | None = None
    results: tuple[str | None, ...] | None = None
    awaited: bool = False

    @property
    def size(self) -> int:
        """The characters of its large texts, which each bound of bytes counts."""
        size = len(self.args) + len(self.checkpoint or "")
        return size + sum(len(each or "") for each in self.results) if self.results else size

    def make_facts(self, losses: int, *, cancel_requested: bool = False) -> JobFacts:
        """Return what the decision about its end needs, with the losses by now."""
        return JobFacts(
            job_id=self.job_id,
            token=self.token,
            failures=self.failures,
            losses=losses,
            policy=self.policy,
            cancel_requested=cancel_requested,
            solo=self.solo,
            incident=self.incident,
            task=self.task,
        )


class Exchanged(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to an exchange; ``answers`` are in the order of the ends handed in. ``valid``: the
    worker's row stands at that epoch; else nothing was claimed. ``next_due``: in how many seconds
    the next scheduled job of these queues falls due, if no more could be claimed; a job more than a
    minute ahead may be left out. ``contended``: another session was at the jobs under limits, or
    notices are left, so ``next_due`` is in milliseconds.

    ``next_look``: in how many seconds an exchange looks where this one has not; None: it has looked
    everywhere, or looks at the rest in turn. ``cut``: bytes, or suspects that want nothing beside
    them, kept further jobs out. ``expired``: how many queued jobs of any task it ended.
    """

    valid: bool
    answers: list[Answer]
    claimed: list[Claimed] = []
    cancels: list[tuple[int, int]] = []
    next_due: float | None = None
    contended: bool = False
    next_look: float | None = None
    cut: bool = False
    expired: int = 0


class Save(msgspec.Struct, frozen=True):
    """A checkpoint: JSON text, with its number, which rises within the attempt from 1. ``losses``:
    from before this attempt, which the job keeps; 0 forgives them."""

    job_id: int
    token: int
    number: int
    value: str
    losses: int = 0


class NamedStep(msgspec.Struct, frozen=True):
    """A step of an attempt, by its name, with its value to keep: JSON text; None: to be found."""

    job_id: int
    token: int
    name: str
    value: str | None = None


class StepFound(NamedTuple):
    """The result of looking for a step. ``already``: its value; ``accepted``: none is kept yet;
    ``refused``: the attempt is not current."""

    answer: Answer
    value: str | None = None


class Spawn(msgspec.Struct, frozen=True):
    """The step that records which jobs a running attempt spawned, and the ordinal of the first of
    them among all children of the job."""

    step: NamedStep
    first: int


class Report(msgspec.Struct, frozen=True):
    """A running attempt's last progress, and for how many seconds neither it nor its worker ran."""

    job_id: int
    token: int
    progress: Progress | None
    still: float = 0.0


class WorkerSeen(Sign, frozen=True, kw_only=True):
    """An active or draining worker, as a reaper needs it. ``heartbeat``: seconds between two beats
    that this observer can see. ``age``: seconds since its last beat by the store's clock, for
    people. ``told_gone``: by its tether. ``begun``: the newest token that it let begin, from a free
    lock file; None: not known. ``lock_path``: where this program looks for its lock file
    (``lockfile.place_in``)."""

    name: str
    host: str
    boot_id: str
    lock_path: str | None = None
    lock_device: int | None = None
    lock_inode: int | None = None
    age: float | None = None
    told_gone: bool = False
    begun: int | None = None


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """A running job whose worker is not alive, or has no row: the facts to decide on. ``cause``:
    why the worker was found gone; None: it left by itself or has no row. ``began``: the attempt may
    have run when the worker died. ``handed_back``: it did not, because the worker had ended all its
    attempts. ``attempts``: how many the job has had, including this one."""

    facts: JobFacts
    worker_id: int
    task: str = ""
    queue: str = ""
    attempts: int = 0
    worker: str | None = None
    host: str | None = None
    progress: Progress | None = None
    checkpoint_age: float | None = None
    cause: DeathCause | None = None
    began: bool = True
    handed_back: bool = False

    def crash(self, kind: CrashKind, message: str) -> Crash:
        """Return the report of an attempt that another worker ends."""
        return Crash(
            kind=kind,
            message=message,
            progress=self.progress,
            checkpoint_age_seconds=self.checkpoint_age,
            worker=self.worker,
            host=self.host,
        )


class Beat(msgspec.Struct, frozen=True):
    """The answer to a heartbeat. Not ``renewed``: the lease is lost for good. ``cancels``: own
    running jobs (job id, token) with a cancel request. ``drain``: this worker was asked to leave.
    ``stacks``: the attempts whose stacks it is asked for. ``peek``: if the store brings it with
    beats, and could read it at once."""

    renewed: bool
    cancels: list[tuple[int, int]] = []
    drain: bool = False
    stacks: list[StackRequest] = []
    peek: Peek | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state that may need a worker, which watchers read all the time.

    ``workers``: the active and draining ones. ``orphans``: whether a running job has none of them.
    ``overdue``: whether a running attempt is past its hard deadline by more than the slack at
    ``now``, in seconds since 1970 by the store's clock. ``incarnation``: names the run of the
    database. ``pauses``: their version (``model.pause``), if the store reports it. ``next_tick``:
    in how many seconds a schedule is due, zero or less if one is; None: none is within a minute.
    """

    workers: list[WorkerSeen]
    orphans: bool
    overdue: bool
    now: float
    incarnation: str | None = None
    next_tick: float | None = None
    pauses: str | None = None


class OverdueAttempt(msgspec.Struct, frozen=True):
    """A running attempt that is ``seconds`` past its hard deadline, by the store's clock."""

    job_id: int
    token: int
    worker_id: int
    seconds: float
    policy: Policy


class Cancelled(StrEnum):
    """Results of a cancel: it ended a queued job, asked a running one, or came too late."""

    CANCELLED = "cancelled"
    REQUESTED = "requested"
    ENDED = "ended"


class Requeued(StrEnum):
    """Results of a requeue. Only dead and cancelled jobs can be requeued."""

    REQUEUED = "requeued"
    NOT_ENDED = "not_ended"
    COMPLETED = "completed"
    KEY_TAKEN = "key_taken"


class Migration(msgspec.Struct, frozen=True):
    """A numbered step of the schema; 0 belongs to no release, as after a schema was renamed.
    ``applied_at`` None: not on this store."""

    number: int
    name: str
    applied_at: float | None


class LockIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The lock file of a worker: no other worker, on any host, ever has the same identity."""

    boot_id: str
    path: str
    device: int
    inode: int


class Neighbour(msgspec.Struct, frozen=True):
    """The lock file of another live worker of the same host, where this program looks for it."""

    worker_id: int
    lock_path: str
    lock_device: int | None
    lock_inode: int | None


class Peek(msgspec.Struct, frozen=True, kw_only=True):
    """The values that each worker polls all the time, at a cost that does not depend on the number
    of workers. A store may leave all of it out: then each of its workers watches.

    Attributes:
        next_due: in how many seconds a job that is in no line may fall due; zero or less: now;
            None: within no minute.
        drawn: the highest position ever drawn, which rises whenever a job joins a line.
        next_tick, pauses: as in a ``Snapshot``.
        watches: the marks of the workers that watch over all others (``model.watch``).
        neighbours: the next few live workers of the same host whose lock files are in the same
            directory as the worker's own.
    """

    next_due: float | None = None
    drawn: int | None = None
    next_tick: float | None = None
    pauses: str | None = None
    watches: tuple[int, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()


class Unpublished(msgspec.Struct, frozen=True):
    """A due job that has waited for a while. ``token``: of its last attempt, 0 before the first;
    ``seconds``: how long it has been due; ``position``: in the line, new each time that it enters
    it, 0 outside."""

    job_id: int
    queue: str
    task: str
    token: int
    seconds: float
    position: int


class UnpublishedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting jobs to announce. ``workers``: how many are active; ``next_due``: in how many seconds
    the next scheduled job falls due; None: not within a minute, as far as the store knows."""

    workers: int
    next_due: float | None
    jobs: list[Unpublished]
