"""What a store must do, as verbs; what goes in and out of them is in ``store.values``.

Two plain implementations (SQLite, PostgreSQL), one conformance suite that knows only the
protocols. Every write about an attempt carries (job id, token) and is refused unless that token
is the job's current one and the job is running; a refused write changes nothing and is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, runtime_checkable

from outlast.model.lease import DeathCause
from outlast.model.lifecycle import Transition
from outlast.model.pause import Pause, PauseKind
from outlast.store.actions import BulkStep, Counts, Note, Record, Tokens
from outlast.store.inspector import Inspector
from outlast.store.logs import JobLog
from outlast.store.minutes import Counted
from outlast.store.peeks import Peek
from outlast.store.rows import WorkerStatus
from outlast.store.schedules import (
    DUE_MAX,
    FIRST_PAGE,
    Deleted,
    DueSchedules,
    FireAnswer,
    Firing,
    NewSchedule,
    Origin,
    Put,
)
from outlast.store.stacks import Stack
from outlast.store.unpublished import RunBy, UnpublishedBatch
from outlast.store.values import (
    Answer,
    Beat,
    Cancelled,
    ClaimRequest,
    Enqueued,
    Exchanged,
    Failing,
    LockIdentity,
    Migration,
    NewJob,
    NewPause,
    NewWorker,
    Orphan,
    OverdueAttempt,
    Purpose,
    Registered,
    Report,
    Requeued,
    Save,
    Snapshot,
    WorkerRef,
    WorkerSeen,
)

T = TypeVar("T")
ORPHANS_MAX = 100  # reclaimed in one transaction
OVERDUE_MAX = 100 * ORPHANS_MAX  # listed: what cannot be closed yet must not hide what can
OUTCOMES_MAX = 500  # handed in by one exchange
CLAIMS_MAX = 500  # claimed by one exchange
EXPIRE_MAX = 500  # queued jobs that one exchange ends because they have expired
PRUNE_MAX = 1_000  # rows deleted in one transaction
REFUSALS_KEPT = 1_000
ATTEMPTS_KEPT_FIRST, ATTEMPTS_KEPT_LAST = 10, 20  # of a job; outlast_end_v1.sql says the same
ENQUEUE_MAX = 5_000  # rows in one statement; more are split by the caller of the store
ENQUEUE_BYTES = 64 * 1024 * 1024  # of arguments in it, split as well, except a single job


class Store(Protocol):
    """The truth about jobs and leases. All calls raise StoreUnavailable when the store cannot
    be reached or broke off (then the outcome of a write is unknown), BadData when it refuses a
    value, StoreCorrupt, SchemaMismatch and NotPermitted where that is so."""

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

    async def grant(self, role: str, purpose: Purpose) -> list[str]:
        """Let a role of the database do what it is for; return the privileges that it lacked.
        ConfigError: there is no such role, or this kind of store knows none."""
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
        row, alive or not, and that is a beat. NotPermitted: a privilege that a worker needs is
        missing; nothing was done."""
        ...

    async def reconnect(self, me: WorkerRef, token_seen: int) -> WorkerRef | None:
        """Raise the epoch, after waiting for any exchange still under way under the old one.
        None: the lease is lost."""
        ...

    async def set_status(self, me: WorkerRef, status: WorkerStatus) -> bool:
        """Move to draining or stopped. False: the lease is lost."""
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

    async def tell_failing(self, me: WorkerRef, failing: Failing | None) -> None:
        """Say on this live worker's row which of its duties fails; None: none does any more. Never
        waits for long, since a heartbeat's store is asked."""
        ...

    async def acknowledge_pauses(self, me: WorkerRef, version: str) -> None:
        """Say on this worker's row that nothing starts there of what this version pauses."""
        ...

    async def heartbeat(self, me: WorkerRef) -> Beat:
        """Renew the lease: the counter goes up by one. Does not check the epoch."""
        ...

    async def exchange(
        self, me: WorkerRef, ended: Sequence[Transition], requests: Sequence[ClaimRequest]
    ) -> Exchanged:
        """Hand in what ended, take what can run next: one round trip, one commit.

        Ends are judged by their own token, regardless of the worker's row; claims
        need the row at this epoch. Each end that is answered busy lowers every request by one.
        An accepted end that clears an incident puts its other queued suspects into the line.
        """
        ...

    async def reconcile(self, me: WorkerRef, held: Collection[int]) -> list[tuple[int, int]]:
        """Release own running jobs whose token is not in ``held``; return (job id, token).
        Nothing happens unless the row stands at this epoch."""
        ...

    async def checkpoint(self, saves: Sequence[Save]) -> list[Answer]:
        """Save checkpoints. ``already``: this number or a later one is saved. The job's
        losses are then as each says."""
        ...

    async def progress(self, reports: Sequence[Report]) -> list[Answer]:
        """Note progress. Refusals are not recorded: nothing is lost by them."""
        ...

    async def keep_stack(self, job_id: int, stack: Stack) -> bool:
        """Keep where a running attempt is. False: it is not current, or its row is locked."""
        ...

    async def observe(self, slack: float = 0.0) -> Snapshot:
        """Return one look at all active and draining workers, and at what no worker looks after:
        orphans, and attempts more than ``slack`` seconds past their hard deadline."""
        ...

    async def reap(self, gone: WorkerSeen, cause: DeathCause = DeathCause.SILENCE) -> bool:
        """Mark a worker lost, and why, if its counter still stands where it was seen; for want
        of presence only if that is absent still. Raises StoreUnavailable while its row is locked:
        it does not wait for one worker while others are to be found gone."""
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
        that worker still says of them is refused. At most ``limit`` of them; what others hold
        locked is passed over, and does not count.
        """
        ...

    async def overdue(self, slack: float, limit: int = OVERDUE_MAX) -> list[OverdueAttempt]:
        """Return running attempts more than ``slack`` seconds past their hard deadline by the
        store's clock, the longest overdue first."""
        ...

    async def superseded(self, attempts: Collection[tuple[int, int]]) -> list[int]:
        """Return the tokens of those (job id, token) that are no longer current: closed by another
        worker. None of them is an attempt that has completed itself, or whose job is gone."""
        ...

    async def expire(self, limit: int = EXPIRE_MAX) -> int:
        """End expired jobs, as an exchange does before it claims; return how many."""
        ...

    async def prune(
        self,
        *,
        jobs_older_than: float,
        workers_older_than: float,
        dead_older_than: float | None = None,
        limit: int = PRUNE_MAX,
        onward: bool = False,
    ) -> int:
        """Delete completed and cancelled jobs, gone workers and, unless None, dead jobs that ended
        that many seconds ago (or after their ``keep``), in one batch; return how many went.
        ``onward``: it may look only from where the last call stopped, not from the oldest: what
        another transaction held then is passed over."""
        ...

    # -- what attempts have printed

    async def keep_logs(self, logs: Sequence[JobLog]) -> set[int]:
        """Replace what is kept of running attempts; return the tokens of those for which it was
        done. The others are no longer current, or their rows are locked, or more lines of them are
        kept already (a write that arrives late). Nothing is recorded of
        them: lines of an attempt that has lost its job are worth no refusal."""
        ...

    # -- what workers have counted

    async def note_minute(self, worker_id: int, batch: int, counted: Sequence[Counted]) -> None:
        """Note what a worker has counted; ``batch`` is its own number of it, which rises. The same
        batch again changes nothing, so that a lost reply does no harm."""
        ...

    async def merge_minutes(self, limit: int = 1_000) -> int:
        """Add up what is old enough, and delete what is too old; return how many rows went, of
        at most ``limit`` in each of three steps."""
        ...

    # -- looks that workers share, and what one host says to the others (``model.watch``)

    async def peek(self, me: WorkerRef) -> Peek:
        """Return what each worker reads all the time. Beats may bring it along."""
        ...

    async def keep_watch(self, place: int, mark: int) -> None:
        """Overwrite the mark of one of the watches that a peek has shown, counted from 0."""
        ...

    async def tell_gone(self, lock: LockIdentity, begun: int | None) -> int:
        """Say on the rows that name this lock file that their worker is gone: it was found free,
        and ``begun`` in it. Looks show that, and workers that listen look at once; they reap.
        Return how many live rows there are."""
        ...

    # -- schedules

    async def put_schedules(
        self, schedules: Sequence[NewSchedule], origin: Origin = Origin.RUN_TIME
    ) -> list[Put]:
        """Store schedules, all or none, except that a declaration of the code passes over a row
        that another transaction holds (``Put.HELD``). What is new or has another spec begins at the
        first tick after now; one that was deleted in the last days, after what was accounted for,
        unless that is more than AHEAD_SECONDS ahead of the clock. One of the code that no worker
        declares any more may be put at run time.

        With ``Origin.CODE`` an active worker says what its code declares, again and again: a
        version that was never seen replaces the one in use, one that was replaced earlier does so
        only when that is no longer declared.
        """
        ...

    async def delete_schedule(self, name: str) -> Deleted:
        """Delete a schedule, unless an active worker's code declares it. Its jobs stay, and for
        UNDECLARED_SECONDS how far its ticks were accounted for."""
        ...

    async def pause_schedule(
        self, name: str, *, paused: bool, record: Record | None = None
    ) -> bool:
        """Pause a schedule, or resume it at the first tick after now. False: unknown. ``record``:
        written with it."""
        ...

    async def due_schedules(
        self, limit: int = DUE_MAX, after: tuple[float, str] = FIRST_PAGE
    ) -> DueSchedules:
        """Return a page of schedules that are due and not paused, behind (next_tick, name)."""
        ...

    async def fire(self, firings: Sequence[Firing]) -> list[FireAnswer]:
        """Move schedules on that stand where they were seen, each in one commit with the jobs of
        its ticks; at most FIRE_MAX, of different schedules. Waits for no schedule's row; one that
        is held up by another transaction (of its row, or of a key of its jobs) is not won."""
        ...

    async def note_undeclared(self, names: Sequence[str]) -> int:
        """Let those schedules of the code sleep that no worker has declared for DECLARED_SECONDS,
        until one does again; return how many do from now on."""
        ...

    # -- what people do. ``tokens``: a job whose last token is another is left alone, and left out
    # of the answer. ``record``: written with what was done, if anything was

    async def cancel(
        self,
        job_ids: Sequence[int],
        *,
        tokens: Tokens | None = None,
        record: Record | None = None,
    ) -> dict[int, Cancelled]:
        """Cancel queued jobs at once, ask running ones. Unknown ids are left out."""
        ...

    async def requeue(
        self,
        job_ids: Sequence[int],
        *,
        from_scratch: bool = False,
        tokens: Tokens | None = None,
        record: Record | None = None,
    ) -> dict[int, Requeued]:
        """Revive dead or cancelled jobs with fresh budgets, under no suspicion (``from_scratch``:
        without their checkpoint), in the order of their ids: of several with one key the first
        has it. Tokens go on rising. Unknown ids are left out."""
        ...

    async def discard(
        self,
        job_ids: Sequence[int],
        *,
        tokens: Tokens | None = None,
        record: Record | None = None,
    ) -> int:
        """Delete dead jobs and their attempts; return how many."""
        ...

    async def request_drain(
        self, worker_ids: Sequence[int], *, record: Record | None = None
    ) -> set[int]:
        """Ask live workers to drain and leave: each receives it with its next beat. Return the ids
        of those that are asked, now or before; the others are gone."""
        ...

    async def ask_stack(
        self, job_id: int, token: int, *, seen: str, then: str, record: Record | None = None
    ) -> bool:
        """Ask the worker that runs this attempt where it is (``store.stacks``): replace the
        requests on its row, where they are those that were seen. False: they are not, or nothing
        runs the attempt any more."""
        ...

    async def pause(self, new: NewPause, *, record: Record | None = None) -> Pause:
        """Note that it is paused. Workers act on it once they have read it, and say so by
        ``acknowledge_pauses``; the same again has a new id, and they do both again."""
        ...

    async def resume(
        self, kind: PauseKind, name: str, *, record: Record | None = None
    ) -> Pause | None:
        """End a pause; return what it was. None: it was not paused."""
        ...

    async def trigger(self, job: NewJob, *, record: Record | None = None) -> Enqueued:
        """Store the job that a person asks a schedule for."""
        ...

    async def note(self, note: Note) -> int:
        """Record what was done otherwise, or begin a bulk action; return its id."""
        ...

    async def take_step(self, step: BulkStep, counts: Counts) -> None:
        """Move a bulk action on by a step in which no job was to be changed. Raises Overtaken, as
        each verb that is given a step does where it cannot be taken."""
        ...

    async def stop_action(self, action_id: int) -> bool:
        """Stop a bulk action that is under way; no further step of it is taken. False: it is over,
        or unknown."""
        ...


@runtime_checkable
class ServerStore(Protocol):
    """What a store on a server can say besides, which workers of many machines share: how many
    serve the same, and what is to be announced to a messenger."""

    async def count_peers(self, me: WorkerRef) -> int:
        """Return how many active workers serve the same queues and tasks, this one included."""
        ...

    async def waiting(self, grace: float, limit: int) -> UnpublishedBatch:
        """Return jobs that no worker has taken for ``grace`` seconds since they are due, the first
        of each task in each queue's line, and those that are due and in no line; ``limit`` of each
        kind."""
        ...

    async def list_run_elsewhere(self, me: WorkerRef, job_ids: Sequence[int]) -> list[RunBy]:
        """Return those of the jobs that another worker runs at this moment."""
        ...


class ForeignDriver(Protocol):
    """Access to a connection of the caller's own; it has ``fetch`` or ``run``, as its store needs.

    begin: how people open a transaction there.
    errors: in its block, what the driver raises leaves as people know it from their library.
    """

    begin: str

    @property
    def errors(self) -> AbstractContextManager[object]: ...  # noqa: D102

    async def in_transaction(self) -> bool:
        """Whether what is written now waits for a commit of the caller's."""
        ...

    async def session(self) -> object:
        """Return what lives as long as the session with the server does."""
        ...

    async def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        """Return the rows of a statement with ``$1``; their columns are found by name."""
        ...

    async def run(self, use: Callable[[Any], T]) -> T:
        """Return ``use(cursor)``, called where a cursor of the driver may be used."""
        ...


class ForeignConnection(Protocol):
    """A connection in the caller's own transaction; ``begin`` says how to open one on it."""

    begin: str

    async def in_transaction(self) -> bool:
        """Whether what is written now waits for a commit of the caller's."""
        ...

    async def store_id(self, *, refresh: bool = False) -> str | None:
        """Return the id of the Outlast schema it sees, or None; ``refresh``: as it is by now."""
        ...

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As Store.enqueue, visible when the caller commits."""
        ...

    async def put_schedules(self, schedules: Sequence[NewSchedule]) -> list[Put]:
        """As Store.put_schedules at run time; in use when the caller commits."""
        ...

    async def complete(self, job_id: int, token: int, result: Any) -> bool:
        """Complete the attempt in the caller's transaction. False: the token is stale."""
        ...
