"""Defines the verbs of a store; their arguments and results are in ``store.values``.

There are two implementations (SQLite, PostgreSQL). One conformance suite tests both, through these
protocols alone. Every write about an attempt carries (job id, token) and is refused unless that
token is the job's current one and the job is running; a refused write changes nothing and is
recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, runtime_checkable

from outlast.model.lease import DeathCause
from outlast.model.lifecycle import Transition
from outlast.store.acts import ActVerbs
from outlast.store.inspector import ReadableStore
from outlast.store.limits import RECOUNT_SECONDS, DeclaredTask, Miscounted, NewLimit
from outlast.store.logs import JobLog
from outlast.store.minutes import Counted
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
from outlast.store.values import (
    EVENTS_SECONDS,
    Answer,
    Beat,
    ClaimRequest,
    Enqueued,
    Exchanged,
    Failing,
    LockIdentity,
    Migration,
    NamedStep,
    NewEvent,
    NewJob,
    NewWorker,
    Orphan,
    OverdueAttempt,
    Peek,
    Purpose,
    Registered,
    Report,
    RunBy,
    Save,
    Snapshot,
    Spawn,
    StepFound,
    UnpublishedBatch,
    WorkerRef,
    WorkerSeen,
)

T = TypeVar("T")
ORPHANS_MAX = 100  # reclaimed in one transaction
OVERDUE_MAX = 100 * ORPHANS_MAX  # listed: attempts that cannot be closed yet must not hide others
OUTCOMES_MAX = 500  # handed in by one exchange
CLAIMS_MAX = 500  # claimed by one exchange
EXPIRE_MAX = 500  # queued jobs that one exchange ends because they have expired
PRUNE_MAX = 1_000  # rows deleted in one transaction
REFUSALS_KEPT = 1_000
ATTEMPTS_KEPT_FIRST, ATTEMPTS_KEPT_LAST = 10, 20  # of a job; as in outlast_end_v1.sql
ENQUEUE_MAX = 5_000  # rows in one statement; callers of the store split more
ENQUEUE_BYTES = 64 * 1024 * 1024  # of arguments in one statement; a single job may exceed it
SWITCHED_OFF = "switched off (--no-presence)"


class Store(ReadableStore, ActVerbs, Protocol):
    """The truth about jobs and leases. All calls raise StoreUnavailable if the store cannot be
    reached or the connection breaks (then the outcome of a write is unknown), and BadData for a
    value that it refuses; also StoreCorrupt, SchemaMismatch and NotPermitted."""

    async def drop_connections(self) -> None:
        """Throw away connections in an unknown state; the next call makes new ones."""
        ...

    def find_writer(self) -> int | None:
        """Return the process that holds the one write lock, if there is one and it can be seen."""
        ...

    def why_late(self) -> str:
        """Return why a call gets no answer for long, if that is known; otherwise nothing."""
        ...

    async def migrate(self) -> list[Migration]:
        """Bring the schema up to date; return the steps that were applied."""
        ...

    async def grant(self, role: str, purpose: Purpose, *, events: bool = False) -> list[str]:
        """Grant a role of the database the privileges for its purpose; return the missing ones.
        ``events``: also to send events, which a worker may do anyway. ConfigError: the role is
        unknown, or this kind of store has no roles."""
        ...

    async def raise_tokens(self, above: int) -> None:
        """Make every later token larger than ``above``, and all other numbers larger than those
        that rows have."""
        ...

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs, all or none, in their order; at most ENQUEUE_MAX."""
        ...

    async def register(self, new: NewWorker) -> Registered:
        """Insert a worker's row, active and with a running lease. If the worker succeeds another
        live one of its instance, that row is marked lost, as by a reap; the row of a sleep under
        its name is deleted. A repeated registration finds its row, alive or not, and counts as a
        beat. NotPermitted: a worker's privilege is missing; nothing was done."""
        ...

    async def reconnect(self, me: WorkerRef, token_seen: int) -> WorkerRef | None:
        """Raise the epoch, after the end of any exchange under the old one. None: the lease is
        lost."""
        ...

    async def set_status(
        self, me: WorkerRef, status: WorkerStatus, *, asleep: float | None = None
    ) -> bool:
        """Move to draining or stopped. False: the lease is lost. ``asleep``: the seconds after
        which the stopped worker returns, for people."""
        ...

    async def announce(
        self, me: WorkerRef, tasks: Sequence[str], lacks: Mapping[str, Sequence[str]]
    ) -> None:
        """Replace the tasks that this worker's row shows, and the tags that it lacks for others."""
        ...

    async def presence_off(self, me: WorkerRef, reason: str) -> None:
        """Write on this worker's row that its presence proves nothing, and why."""
        ...

    async def tell_wakeup(self, me: WorkerRef, words: str) -> None:
        """Write on this worker's row how it is woken, and what is wrong with that."""
        ...

    async def tell_failing(self, me: WorkerRef, failing: Failing | None) -> None:
        """Write on this live worker's row which of its duties fails; None: none does. Never waits
        for long: it shares the heartbeat's connection."""
        ...

    async def acknowledge_pauses(self, me: WorkerRef, version: str) -> None:
        """Write on this worker's row that it starts no job that these pauses cover."""
        ...

    async def heartbeat(self, me: WorkerRef) -> Beat:
        """Renew the lease: the counter goes up by one. Does not check the epoch."""
        ...

    async def exchange(
        self, me: WorkerRef, ended: Sequence[Transition], requests: Sequence[ClaimRequest]
    ) -> Exchanged:
        """Hand in ended attempts and claim jobs: one round trip, one commit.

        Ends are judged by their own token, regardless of the worker's row; claims need the row at
        this epoch. Each end that is answered busy lowers every request by one. An accepted end that
        clears an incident lets its other queued suspects run beside others.
        """
        ...

    async def reconcile(self, me: WorkerRef, held: Collection[int]) -> list[tuple[int, int]]:
        """Release own running jobs whose token is not in ``held``; return (job id, token). Does
        nothing unless the worker's row has this epoch."""
        ...

    async def checkpoint(self, saves: Sequence[Save]) -> list[Answer]:
        """Save checkpoints, and set the jobs' losses. ``already``: this number or a later one is
        saved."""
        ...

    async def find_steps(self, steps: Sequence[NamedStep]) -> list[StepFound]:
        """Return the values of steps that an earlier attempt of the job has kept."""
        ...

    async def keep_steps(self, steps: Sequence[NamedStep]) -> list[Answer]:
        """Keep values of steps, one for each (job, step). ``already``: it is kept. A new value
        forgives the job's losses."""
        ...

    async def spawn(self, jobs: Sequence[NewJob], which: Spawn) -> list[Enqueued]:
        """Store jobs as children of a running attempt's job, with the step that records it, all or
        nothing. LostLease: the attempt is not current, or the step is kept already."""
        ...

    async def watch_children(self, job_id: int, token: int, ids: Sequence[int]) -> bool:
        """Let the end of this attempt (a transition to blocked) wait for these children of its job,
        and no others. False: the attempt is not current."""
        ...

    async def find_event(self, name: str) -> str | None:
        """Return the value of an event in its stored form; None: it is not there (yet)."""
        ...

    async def progress(self, reports: Sequence[Report]) -> list[Answer]:
        """Note progress; move the deadline of an attempt with a timeout to its start + timeout +
        ``still``, never back. Refusals are not recorded: nothing is lost by them."""
        ...

    async def keep_stack(self, job_id: int, stack: Stack) -> bool:
        """Keep the stack of a running attempt. False: it is not current, or its row is locked."""
        ...

    async def observe(self, slack: float = 0.0) -> Snapshot:
        """Read all active and draining workers, and whether there are orphans, or attempts more
        than ``slack`` seconds past their hard deadline."""
        ...

    async def reap(self, gone: WorkerSeen, cause: DeathCause = DeathCause.SILENCE) -> bool:
        """Mark a worker lost, and why, if its counter is as it was seen and, if presence is the
        cause, its presence is still absent. StoreUnavailable while its row is locked: one worker
        must not delay the reaping of others."""
        ...

    async def reclaim(
        self,
        decide: Callable[[Orphan], Transition],
        limit: int = ORPHANS_MAX,
        only: Collection[tuple[int, int]] | None = None,
    ) -> list[Transition]:
        """Close the attempts of orphans, longest-running first, as decided; return the transitions
        that were applied. An orphan that has changed hands is left alone. ``only``: close exactly
        these (job id, token), even of a live worker, whose later reports about them are refused. At
        most ``limit`` are closed; locked rows are skipped, and do not count."""
        ...

    async def overdue(self, slack: float, limit: int = OVERDUE_MAX) -> list[OverdueAttempt]:
        """Return running attempts more than ``slack`` seconds past their hard deadline by the
        store's clock, the longest overdue first."""
        ...

    async def superseded(self, attempts: Collection[tuple[int, int]]) -> list[int]:
        """Return the tokens of those (job id, token) that another worker has closed; not of those
        that have completed themselves, or whose job is gone."""
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
        events_older_than: float = EVENTS_SECONDS,
        limit: int = PRUNE_MAX,
        onward: bool = False,
    ) -> int:
        """Delete, in one batch, completed and cancelled jobs, gone workers and, unless None, dead
        jobs that ended that many seconds ago (or after their ``keep``), and events that were sent
        that long ago, unless an unfinished job has waited for them; and what is unused by now
        of windows, limits, schedules and actions. Return how many rows were deleted: at least
        ``limit`` if more may be left. ``onward``: the search may start where the last call stopped;
        rows that were locked then are passed over."""
        ...

    # -- printed lines

    async def keep_logs(self, logs: Sequence[JobLog]) -> set[int]:
        """Replace the kept lines of running attempts; return the tokens for which it was done. The
        others are not current, or their rows are locked, or have more lines already (this write is
        late). No refusal is recorded."""
        ...

    # -- counters

    async def note_minute(self, worker_id: int, batch: int, counted: Sequence[Counted]) -> None:
        """Store the counts of a worker; ``batch`` is its own rising number for them. A repeated
        batch changes nothing."""
        ...

    async def merge_minutes(self, limit: int = 1_000) -> int:
        """Add up old rows, and delete too old ones; return how many were removed, at most ``limit``
        in each of three steps."""
        ...

    # -- looks that workers share, and reports from one host to the others (``model.watch``)

    async def peek(self, me: WorkerRef) -> Peek:
        """Return the values that each worker polls all the time. Beats may bring them along."""
        ...

    async def keep_watch(self, place: int, mark: int) -> None:
        """Overwrite the mark of one of the watches that a peek has shown, counted from 0."""
        ...

    async def tell_gone(self, lock: LockIdentity, begun: int | None) -> int:
        """Write on the rows that name this lock file that their worker is gone: the lock was free,
        and ``begun`` in the file. Workers that listen scan at once, and reap it. Return how many
        rows of live workers name the file."""
        ...

    # -- limits

    async def declare_limits(
        self, limits: Sequence[NewLimit], tasks: Sequence[DeclaredTask] = ()
    ) -> bool:
        """Store the declarations of these limits, and then of tasks; a person's values stay in
        force. False: others kept changing limits for half a second; nothing was stored, so call
        again. Later exchanges open the streams for which a changed limit leaves room."""
        ...

    async def recount_limits(self, settled: float = RECOUNT_SECONDS) -> list[Miscounted]:
        """Correct permits that block streams, have a wrong count of running attempts, and have not
        changed for ``settled`` seconds; return the wrong counts. Only other programs make some."""
        ...

    async def spend(self, job_id: int, token: int, name: str, cost: float) -> Answer:
        """Take ``cost``, beyond what its start took, from the rate of the permit of that limit that
        a running attempt holds; the rate may go into debt. Guarded by (id, token, running).
        BadData: the job is not under that limit."""
        ...

    # -- schedules

    async def put_schedules(
        self, schedules: Sequence[NewSchedule], origin: Origin = Origin.RUN_TIME
    ) -> list[Put]:
        """Store schedules, all or none, except that a declaration by code skips a row that another
        transaction holds (``Put.HELD``). A new schedule, or one with a changed spec, begins at the
        first tick after now; one that was deleted in the last days begins after the ticks accounted
        for, unless these reach more than AHEAD_SECONDS ahead of the clock. A schedule of the code
        that no worker declares any longer may be put at run time.

        With ``Origin.CODE`` an active worker declares the schedules of its code, again and again: a
        version that was never seen replaces the one in use; an earlier one does so only when that
        is no longer declared.
        """
        ...

    async def due_schedules(
        self, limit: int = DUE_MAX, after: tuple[float, str] = FIRST_PAGE
    ) -> DueSchedules:
        """Return a page of schedules that are due and not paused, after (next_tick, name)."""
        ...

    async def fire(self, firings: Sequence[Firing]) -> list[FireAnswer]:
        """Advance the schedules whose rows are unchanged since they were read, each in one commit
        with the jobs of its ticks; at most DUE_MAX different ones. Does not wait: a schedule is
        not fired while its row, or the key of one of its jobs, is locked."""
        ...

    async def note_undeclared(self, names: Sequence[str]) -> int:
        """Mark schedules of the code that no worker has declared for DECLARED_SECONDS as
        undeclared, until the next declaration. Return how many were marked."""
        ...


@runtime_checkable
class ServerStore(Protocol):
    """Further verbs of a store on a server, which workers of many machines share."""

    async def count_peers(self, me: WorkerRef) -> tuple[int, int]:
        """Return how many active workers serve the same queues and tasks, this one included, and
        how many of them registered before it."""
        ...

    async def waiting(self, grace: float, limit: int) -> UnpublishedBatch:
        """Return jobs that no worker has taken for ``grace`` seconds since they fell due, the first
        of each task in each queue's line, and due jobs outside it; ``limit`` of each kind."""
        ...

    async def list_run_elsewhere(self, me: WorkerRef, job_ids: Sequence[int]) -> list[RunBy]:
        """Return the jobs among these that another worker runs at this moment."""
        ...


class ForeignDriver(Protocol):
    """A connection of the caller's own; it has ``fetch`` or ``run``, as its store needs. ``begin``:
    how people open a transaction there. ``errors``: lets the driver's errors pass unchanged."""

    begin: str

    @property
    def errors(self) -> AbstractContextManager[object]: ...  # noqa: D102

    async def in_transaction(self) -> bool:
        """Whether a write now waits for a commit by the caller."""
        ...

    async def session(self) -> object:
        """Return an object that lives as long as the session with the server."""
        ...

    async def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        """Return the rows of a statement with ``$1``, by the names of their columns, if it has
        any."""
        ...

    async def run(self, use: Callable[[Any], T]) -> T:
        """Return ``use(cursor)``, called where a cursor of the driver may be used."""
        ...


class ForeignConnection(Protocol):
    """A connection in the caller's own transaction; ``begin`` says how to open one on it."""

    begin: str

    async def in_transaction(self) -> bool:
        """Whether a write now waits for a commit by the caller."""
        ...

    async def store_id(self, *, refresh: bool = False) -> str | None:
        """Return the id of the Outlast schema that the connection sees, if any; ``refresh``: read
        it again."""
        ...

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As Store.enqueue, visible when the caller commits."""
        ...

    async def put_schedules(self, schedules: Sequence[NewSchedule]) -> list[Put]:
        """As Store.put_schedules at run time; in use when the caller commits."""
        ...

    async def delete_schedule(self, name: str) -> Deleted:
        """As Store.delete_schedule; gone when the caller commits."""
        ...

    async def complete(self, job_id: int, token: int, result: Any) -> bool:
        """Complete the attempt in the caller's transaction. False: the token is stale."""
        ...

    async def find_step(self, step: NamedStep) -> StepFound:
        """As Store.find_steps, for one, as the caller's transaction sees it."""
        ...

    async def keep_step(self, step: NamedStep) -> bool:
        """Keep the value of a step in the caller's transaction. False: the token is stale."""
        ...

    async def send_event(self, event: NewEvent) -> bool:
        """As Store.send_event; jobs are woken when the caller commits."""
        ...


class PresenceLock(Protocol):
    """One worker's lock."""

    async def hold(self, me: WorkerRef, on_lost: Callable[[], None]) -> str | None:
        """Take the lock, or prove that this session still has it, and write that on the worker's
        row; return None, or why it cannot be held. ``on_lost`` is called, in the loop, when the
        session has ended. Raises StoreError; the next call reconnects."""
        ...

    async def release(self) -> None:
        """End the session, and the lock with it. Safe to call twice."""
        ...


class NoPresence:
    """The lock of a worker that was configured to do without one."""

    async def hold(self, me: WorkerRef, on_lost: Callable[[], None]) -> str | None:
        """Return why not."""
        return SWITCHED_OFF

    async def release(self) -> None:
        """There is nothing to end."""
