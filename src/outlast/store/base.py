"""What a store must do, as verbs, and the values that go in and out.

Two plain implementations (SQLite, PostgreSQL), one conformance suite that knows only this
module. Every write about an attempt carries (job id, token) and is refused unless that token is
the job's current one and the job is running; a refused write changes nothing and is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from outlast.model.crash import Crash, CrashKind, Progress
from outlast.model.job import JobFacts, Policy
from outlast.model.lease import DeathCause, Presence, Sign
from outlast.model.lifecycle import Transition
from outlast.store.reads import Inspector, WorkerStatus

ORPHANS_MAX = 100  # reclaimed in one transaction
OUTCOMES_MAX = 500  # handed in by one exchange
CLAIMS_MAX = 500  # claimed by one exchange
PRUNE_MAX = 1_000  # rows deleted in one transaction
REFUSALS_KEPT = 1_000
ENQUEUE_MAX = 5_000  # rows in one statement; more are split by the caller of the store


class Answer(StrEnum):
    """What became of one fenced write.

    ``already``: this very end was written before (its answer was lost). ``busy``: the row is
    locked, for example by the task's own open transaction: send it again.
    """

    ACCEPTED = "accepted"
    ALREADY = "already"
    REFUSED = "refused"
    BUSY = "busy"


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to enqueue. ``args`` is JSON text. It is due ``delay`` seconds from the store's
    now, or at ``run_at`` (seconds since 1970, UTC)."""

    task: str
    queue: str = "default"
    args: str = "{}"
    priority: int = 0
    delay: float = 0.0
    run_at: float | None = None
    key: str | None = None
    tenant: str | None = None
    policy: Policy = Policy()


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The id of an enqueued job; ``created`` is false where its key named an unfinished one."""

    job_id: int
    created: bool


class NewWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that registers. ``queues`` empty means all. ``lacks``: tasks that it knows but may
    not serve -> the tags it would need. ``instance``: a name that the platform keeps unique;
    ``succeeds``: whoever else still lives under it is gone. ``registration``: a key of this wish.
    ``token_seen`` is the highest token that it has ever seen: the store jumps above it. The lock
    fields name its host-local lock file; ``lock_path`` None means that it has none."""

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
    """Names a registered worker's connection: the epoch rises at each reconnect."""

    worker_id: int
    epoch: int


class Registered(WorkerRef, frozen=True):
    """A new registration; ``replaced`` earlier ones of its instance were marked lost by it."""

    replaced: int = 0


class Beat(msgspec.Struct, frozen=True):
    """The answer to a heartbeat. Not ``renewed``: the lease is lost for good.
    ``cancels`` are (job id, token) of own running jobs with a cancel request. ``drain``: somebody
    has asked this worker to take no more work and leave."""

    renewed: bool
    cancels: list[tuple[int, int]] = []
    drain: bool = False


class Room(msgspec.Struct, frozen=True):
    """How many jobs of these tasks may be claimed from these queues (empty: all queues, in
    no particular order among them). Within a queue: priority first, then position.

    ``solo`` 0: ordinary jobs, never a suspect. 1: one cohort of suspects, the one whose member
    is next by priority and by the time since when it is due; such a room is for a runner with
    nothing else in it. 2: one job that must have its worker to itself.

    ``named``: ids of jobs that messages have named, taken before others of their priority where
    the store can; a hint, and what cannot be claimed is passed over."""

    tasks: list[str]
    limit: int
    queues: list[str] = []
    solo: int = 0
    named: list[int] = []


class Claimed(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A job that is now running under ``token``. ``number`` counts its attempts from 1."""

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


class Exchanged(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to an exchange. ``answers`` are in the order of what was handed in.
    ``valid`` is false when the worker's row no longer stands at that epoch (lost, stopped or
    reconnected since): then nothing was claimed. ``next_due`` is in how many seconds the next
    scheduled job of these queues falls due, where nothing more could be claimed; suspects count
    where there was room for them. ``solo_waiting`` is the largest ``solo`` among the suspects of
    the rooms' tasks and queues that are due and were not claimed, 0 if there are none."""

    valid: bool
    answers: list[Answer]
    claimed: list[Claimed] = []
    cancels: list[tuple[int, int]] = []
    next_due: float | None = None
    solo_waiting: int = 0


class Save(msgspec.Struct, frozen=True):
    """A checkpoint: JSON text, with its number, which rises within the attempt from 1."""

    job_id: int
    token: int
    number: int
    value: str


class Report(msgspec.Struct, frozen=True):
    """Progress of a running attempt."""

    job_id: int
    token: int
    progress: Progress


class WorkerSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One look at one active or draining worker, as a reaper needs it. ``age``: seconds since its
    last beat by the store's clock, for people. ``incarnation``: of the database, under which it
    took its presence."""

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
    by what the worker was found gone; None where it left by itself or has no row."""

    facts: JobFacts
    worker_id: int
    worker: str | None = None
    host: str | None = None
    progress: Progress | None = None
    checkpoint_age: float | None = None
    cause: DeathCause | None = None

    def crash(self, kind: CrashKind, message: str) -> Crash:
        """Return the report of an attempt that somebody else than its worker ends."""
        return Crash(
            kind=kind,
            message=message,
            progress=self.progress,
            checkpoint_age_seconds=self.checkpoint_age,
            worker=self.worker,
            host=self.host,
        )


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One look at all that may need somebody: cheap, as each worker takes it all the time.

    ``workers``: those that are active or draining. ``orphans``: whether a running job has none of
    them. ``overdue``: whether a running attempt is past its hard deadline by more than the slack,
    by the store's clock, which is ``now`` (seconds since 1970). ``next_due``: in how many seconds
    a job that is in no line may fall due, 0 and less where one is; None: there is none. ``drawn``:
    the highest position ever drawn, which rises whenever a job joins a line. None: this store says
    neither."""

    workers: list[WorkerSeen]
    orphans: bool
    overdue: bool
    now: float
    next_due: float | None = None
    drawn: int | None = None


class Late(msgspec.Struct, frozen=True):
    """A running attempt that is ``seconds`` past its hard deadline, by the store's clock."""

    job_id: int
    token: int
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


class Store(Protocol):
    """The truth about jobs and leases. All calls raise StoreUnavailable when the store cannot
    be reached or broke off (then the outcome of a write is unknown), BadData when it refuses a
    value, StoreCorrupt and SchemaMismatch where that is so."""

    url: str
    inspector: Inspector

    async def open(self) -> None:
        """Connect and check the schema; make it first where there is none at all."""
        ...

    async def close(self) -> None:
        """Release connections. Safe to call twice."""
        ...

    async def drop_connections(self) -> None:
        """Throw away connections in an unknown state; the next call makes new ones."""
        ...

    async def store_id(self) -> str:
        """Return the id of this Outlast schema, drawn once when it was made."""
        ...

    async def migrate(self) -> list[Migration]:
        """Bring the schema up to date; return the steps that were applied."""
        ...

    async def migrations(self) -> list[Migration]:
        """Return all steps, applied or not. Does not change or create anything."""
        ...

    async def raise_tokens(self, above: int) -> None:
        """Make every later token larger than ``above``."""
        ...

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs, all or none, in their order; at most ENQUEUE_MAX."""
        ...

    async def register(self, new: NewWorker) -> Registered:
        """Make a row for a worker, active, its lease running; any other live row of its instance is
        marked lost, as by a reap, where it succeeds it. A registration asked for again finds its
        row, alive or not, and that is a beat."""
        ...

    async def reconnect(self, me: WorkerRef, token_seen: int) -> WorkerRef | None:
        """Raise the epoch, after waiting for any exchange still under way under the old one.
        None: the lease is lost."""
        ...

    async def set_status(self, me: WorkerRef, status: WorkerStatus) -> bool:
        """Move to draining or stopped. False: the lease is lost."""
        ...

    async def request_drain(self, worker_ids: Sequence[int]) -> set[int]:
        """Ask live workers to drain and leave: each hears it with its next beat. Return the ids
        of those that are asked, now or before; the others are gone."""
        ...

    async def announce(
        self, me: WorkerRef, tasks: Sequence[str], lacks: Mapping[str, Sequence[str]]
    ) -> None:
        """Replace the tasks that this worker's row shows, and those it lacks tags for."""
        ...

    async def presence_off(self, me: WorkerRef, reason: str) -> None:
        """Say on this worker's row that its presence proves nothing, and why."""
        ...

    async def tell_wakeup(self, me: WorkerRef, words: str) -> None:
        """Say on this worker's row by what it is woken, and what is wrong with that."""
        ...

    async def heartbeat(self, me: WorkerRef) -> Beat:
        """Renew the lease: the counter goes up by one. Does not check the epoch."""
        ...

    async def exchange(
        self, me: WorkerRef, ended: Sequence[Transition], rooms: Sequence[Room]
    ) -> Exchanged:
        """Hand in what ended, take what can run next: one round trip, one commit.

        Ends are judged by their own token, whatever has become of the worker's row; claims
        need the row at this epoch. Each end that is answered busy lowers every room by one.
        An accepted end that clears an incident puts its other queued suspects into the line.
        """
        ...

    async def reconcile(self, me: WorkerRef, held: Collection[int]) -> list[tuple[int, int]]:
        """Release own running jobs whose token is not in ``held``; return (job id, token).
        Nothing happens unless the row stands at this epoch."""
        ...

    async def checkpoint(self, saves: Sequence[Save]) -> list[Answer]:
        """Save checkpoints. ``already``: this number or a later one is saved. A value that
        differs from the last forgives the job's losses."""
        ...

    async def progress(self, reports: Sequence[Report]) -> list[Answer]:
        """Note progress. Refusals are not recorded: nothing is lost by them."""
        ...

    async def observe(self, slack: float = 0.0) -> Look:
        """Return one look at all active and draining workers, and at what nobody looks after:
        orphans, and attempts more than ``slack`` seconds past their hard deadline."""
        ...

    async def reap(self, gone: WorkerSeen, cause: DeathCause = DeathCause.SILENCE) -> bool:
        """Mark a worker lost, and why, if its counter still stands where it was seen; for want
        of presence only if that is absent still."""
        ...

    async def reclaim(
        self,
        decide: Callable[[Orphan], Transition],
        limit: int = ORPHANS_MAX,
        only: Collection[tuple[int, int]] | None = None,
    ) -> list[Transition]:
        """Close the attempts of orphans, longest-running first, as decided; return what was
        applied. An orphan that changed hands meanwhile is left alone.

        With ``only``, close exactly these (job id, token), also of a worker that is alive: what
        that worker still says of them is refused.
        """
        ...

    async def overdue(self, slack: float, limit: int = ORPHANS_MAX) -> list[Late]:
        """Return running attempts more than ``slack`` seconds past their hard deadline by the
        store's clock, the latest first."""
        ...

    async def superseded(self, attempts: Collection[tuple[int, int]]) -> list[int]:
        """Return the tokens of those (job id, token) that are no longer current: closed by
        somebody else. An attempt that has completed itself is none of them."""
        ...

    async def cancel(self, job_ids: Sequence[int]) -> dict[int, Cancelled]:
        """Cancel queued jobs at once, ask running ones. Unknown ids are left out."""
        ...

    async def requeue(
        self, job_ids: Sequence[int], *, from_scratch: bool = False
    ) -> dict[int, Requeued]:
        """Revive dead or cancelled jobs with fresh budgets, under no suspicion (``from_scratch``:
        without their checkpoint). Tokens go on rising. Unknown ids are left out."""
        ...

    async def discard(self, job_ids: Sequence[int]) -> int:
        """Delete dead jobs and their attempts; return how many."""
        ...

    async def prune(
        self, *, jobs_older_than: float, workers_older_than: float, limit: int = PRUNE_MAX
    ) -> int:
        """Delete completed and cancelled jobs and gone workers that ended that many seconds
        ago, in one bounded batch; return how many rows went."""
        ...


class ForeignConnection(Protocol):
    """A connection of the caller's own, inside the caller's own transaction.

    ``begin`` tells people how they open a transaction on it.
    """

    begin: str

    async def in_transaction(self) -> bool:
        """Whether what is written now waits for a commit of the caller's."""
        ...

    async def store_id(self) -> str | None:
        """Return the id of the Outlast schema it sees, or None."""
        ...

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As Store.enqueue, visible when the caller commits."""
        ...

    async def complete(self, job_id: int, token: int, result: Any) -> bool:
        """Complete the attempt in the caller's transaction. False: the token is stale."""
        ...
