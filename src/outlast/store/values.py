"""What goes into a store's verbs and what comes out of them (``store.protocol``): plain values.
A value knows nothing of a store; what is read for people and screens is in ``store.rows``.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from outlast.model.crash import Crash, CrashKind, Progress
from outlast.model.job import JobFacts, Policy
from outlast.model.lease import DeathCause, Presence, Sign
from outlast.model.pause import PauseKind
from outlast.store.peeks import Peek
from outlast.store.stacks import StackAsk

TRIP_BYTES = 1024 * 1024  # of arguments and checkpoints in one reply, unless more is asked for


class Answer(StrEnum):
    """What became of one fenced write.

    ``already``: this very end was written before (its answer was lost). ``busy``: the row is
    locked, for example by the task's own open transaction: send it again.
    """

    ACCEPTED = "accepted"
    ALREADY = "already"
    REFUSED = "refused"
    BUSY = "busy"


class Purpose(StrEnum):
    """What a role of the database is for."""

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


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to enqueue. ``args`` is JSON text. It is due ``delay`` seconds from the store's now, or
    at ``run_at`` (seconds since 1970). Unless it has begun ``expires`` seconds from the store's
    now, or at ``expires_at``, it never does. ``aliases``: other names of the same task."""

    task: str
    queue: str = "default"
    args: str = "{}"
    priority: int = 0
    delay: float = 0.0
    run_at: float | None = None
    expires: float | None = None
    expires_at: float | None = None
    key: str | None = None
    tenant: str | None = None
    policy: Policy = Policy()
    aliases: tuple[str, ...] = ()


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The id of an enqueued job; ``created`` is false where its key named an unfinished one, and
    ``same_args`` where that one's arguments are others."""

    job_id: int
    created: bool
    same_args: bool = True


class NewWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that registers. ``queues`` empty means all. ``lacks``: tasks that it knows but may
    not serve -> the tags it would need. ``instance``: a name that the platform keeps unique;
    ``succeeds``: another worker that still lives under it is gone. ``registration``: a key of this
    wish. ``token_seen`` is the highest token that it has ever seen: the store jumps above it. The
    lock fields name its host-local lock file; ``lock_path`` None means that it has none."""

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
    succeeds: bool = True
    release: str | None = None
    token_seen: int = 0
    registration: str | None = None
    lock_path: str | None = None
    lock_device: int | None = None
    lock_inode: int | None = None


class WorkerRef(msgspec.Struct, frozen=True):
    """Identifies a registered worker's connection: the epoch rises at each reconnect.

    ``registration`` is the key that the row was made by. A store that was set back gives ids out
    again: a row under another key is another worker's."""

    worker_id: int
    epoch: int
    registration: str | None = None


class Registered(WorkerRef, frozen=True):
    """A new registration; ``replaced`` earlier ones of its instance were marked lost by it."""

    replaced: int = 0


class NewPause(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be paused (``model.pause``), by whom and why; ``stop``: attempts of it that run
    are asked to stop, too."""

    kind: PauseKind
    name: str = ""
    paused_by: str | None = None
    reason: str | None = None
    stop: bool = False


class Failing(msgspec.Struct, frozen=True):
    """A duty of a worker that fails: by what (one line), and for how many seconds already."""

    duty: str
    error: str
    seconds: float


def line_of(failing: Failing) -> str:
    """Return what a row shows of it."""
    return f"{failing.duty}: {failing.error}"


class FollowedWakeups(msgspec.Struct, frozen=True):
    """Wake-ups that a worker has heard when it asks for jobs, by the positions that name them: the
    store may tell others what became of them. ``kind``: of workers that serve the same; None where
    the requests are not for all that this worker serves."""

    kind: str | None
    positions: list[int]


class ClaimRequest(msgspec.Struct, frozen=True):
    """How many jobs of these tasks may be claimed from these queues (empty: all queues, in
    no particular order among them). Within a queue: priority first, then position.

    ``solo`` 0: ordinary jobs, never a suspect. 1: one cohort of suspects, the one whose member
    is next by priority and by the time since when it is due; such a request is for a runner with
    nothing else in it. 2: one job that must have its worker to itself.

    ``named``: ids of jobs that messages have named, taken before others of their priority where
    the store can; a hint, and what cannot be claimed is passed over.

    ``bytes_max``: of arguments and checkpoints in one reply, the smallest of its requests'; the
    first job comes regardless of its size.

    ``not_queues``, ``not_tenants``: whose jobs are passed over, and are not waited for. All
    requests of one exchange have the same.
    ``followed``: on the first of an exchange's requests, if at all. ``news``: there, too: queues
    that wake-ups have named; a hint."""

    tasks: list[str]
    limit: int
    queues: list[str] = []
    solo: int = 0
    named: list[int] = []
    bytes_max: int = TRIP_BYTES
    not_queues: tuple[str, ...] = ()
    not_tenants: tuple[str, ...] = ()
    followed: FollowedWakeups | None = None
    news: tuple[str, ...] = ()


def bytes_max(requests: Sequence[ClaimRequest]) -> int:
    """Return how many bytes one reply to these requests may bring."""
    return min((request.bytes_max for request in requests), default=TRIP_BYTES)


class Claimed(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A job that is now running under ``token``. ``number`` counts its attempts from 1; it had been
    due for ``waited`` seconds. ``malformed``: why it must not run, where its row cannot be read.
    ``expires_in``: seconds from its claim until it expires, by the store's clock; its worker makes
    of that ``begin_by``, by the boot clock of the host, at which it must not begin any more."""

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
    cohort: int | None = None
    malformed: str | None = None
    waited: float = 0.0
    expires_in: float | None = None
    begin_by: float | None = None


class Exchanged(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to an exchange. ``answers`` are in the order of what was handed in. ``valid`` is
    false when the worker's row no longer stands at that epoch (lost, stopped or reconnected since):
    then nothing was claimed. ``next_due`` is in how many seconds the next scheduled job of these
    queues falls due, where nothing more could be claimed; suspects count where there was room for
    them. A job that is more than a minute ahead may be left out: workers look again by then.
    ``next_look`` is in how many seconds an exchange looks where this one has not, though
    there may be jobs; None: it has looked everywhere, or looks at the rest in turn.
    ``solo_waiting`` is the largest ``solo`` among the suspects of the requests' tasks and queues
    that are due and were not claimed, 0 if there are none. ``cut``: more could have been claimed,
    had the reply been allowed more bytes. ``expired``: how many queued jobs of any task were ended
    by it."""

    valid: bool
    answers: list[Answer]
    claimed: list[Claimed] = []
    cancels: list[tuple[int, int]] = []
    next_due: float | None = None
    next_look: float | None = None
    solo_waiting: int = 0
    cut: bool = False
    expired: int = 0


class Save(msgspec.Struct, frozen=True):
    """A checkpoint: JSON text, with its number, which rises within the attempt from 1. ``losses``:
    those that the job has with it, of those before this attempt; 0 forgives them."""

    job_id: int
    token: int
    number: int
    value: str
    losses: int = 0


class Report(msgspec.Struct, frozen=True):
    """Progress of a running attempt."""

    job_id: int
    token: int
    progress: Progress


class WorkerSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one active or draining worker, as a reaper needs it. ``age``: seconds since its
    last beat by the store's clock, for people. ``incarnation``: of the database, under which it
    took its presence. ``told_gone``: its tether has said that it is gone. ``begun``: the newest
    token that it let begin, from a lock file that is free; None: not known. ``lock_path``: where
    this program looks for its lock file (``lockfile.place_in``)."""

    worker_id: int
    name: str
    host: str
    boot_id: str
    beat: int
    heartbeat: float
    lease: float
    lock_path: str | None = None
    lock_device: int | None = None
    lock_inode: int | None = None
    age: float | None = None
    presence: Presence = Presence.UNKNOWN
    incarnation: str | None = None
    told_gone: bool = False
    begun: int | None = None

    def sign(self) -> Sign:
        """Return what the observer's rule needs."""
        return Sign(
            worker_id=self.worker_id,
            beat=self.beat,
            heartbeat=self.heartbeat,
            lease=self.lease,
            presence=self.presence,
            incarnation=self.incarnation,
        )


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """A running job whose worker is not alive, or has no row: the facts to decide on. ``cause``:
    by what the worker was found gone; None where it left by itself or has no row. ``began``:
    whether the attempt may have run when the worker died; False where that is ruled out.
    ``handed_back``: that is so since the worker had ended all, and not since it began none of it.
    ``attempts``: how many the job has had, this one among them."""

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
        """Return the report of an attempt that is not ended by its own worker."""
        return Crash(
            kind=kind,
            message=message,
            progress=self.progress,
            checkpoint_age_seconds=self.checkpoint_age,
            worker=self.worker,
            host=self.host,
        )


class Beat(msgspec.Struct, frozen=True):
    """The answer to a heartbeat. Not ``renewed``: the lease is lost for good.
    ``cancels`` are (job id, token) of own running jobs with a cancel request. ``drain``: this
    worker was asked to take no more work and leave. ``stacks``: which of its attempts it is asked
    to show. ``peek``: what each worker reads all the time, if the store shows it with beats and
    it could be read at once."""

    renewed: bool
    cancels: list[tuple[int, int]] = []
    drain: bool = False
    stacks: list[StackAsk] = []
    peek: Peek | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One look at all that may need a worker, as those take it all the time that watch.

    ``workers``: those that are active or draining. ``orphans``: whether a running job has none of
    them. ``overdue``: whether a running attempt is past its hard deadline by more than the slack,
    by the store's clock, which is ``now`` (seconds since 1970). ``incarnation``: names the run of
    the database that has answered. ``pauses``: the version of what is paused (``model.pause``).
    None: this store does not say. ``next_tick``: in how many seconds a schedule is due, 0 and less
    where one is; None: there is none, or it is more than a minute ahead."""

    workers: list[WorkerSeen]
    orphans: bool
    overdue: bool
    now: float
    incarnation: str | None = None
    next_tick: float | None = None
    pauses: str | None = None


class OverdueAttempt(msgspec.Struct, frozen=True):
    """A running attempt of a worker that is ``seconds`` past its hard deadline, by the store's
    clock."""

    job_id: int
    token: int
    worker_id: int
    seconds: float
    policy: Policy


class Cancelled(StrEnum):
    """What a cancel did: ended a queued job, asked a running one, or came too late."""

    CANCELLED = "cancelled"
    REQUESTED = "requested"
    ENDED = "ended"


class Requeued(StrEnum):
    """What a requeue did. Only dead and cancelled jobs can be requeued."""

    REQUEUED = "requeued"
    NOT_ENDED = "not_ended"
    COMPLETED = "completed"
    KEY_TAKEN = "key_taken"


class Migration(msgspec.Struct, frozen=True):
    """A numbered step of the schema; ``applied_at`` None: not yet on this store."""

    number: int
    name: str
    applied_at: float | None


class LockIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which lock file a worker has: no other worker, before or after it, on this host or another,
    has the same."""

    boot_id: str
    path: str
    device: int
    inode: int
