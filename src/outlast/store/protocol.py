"""What a store must do, as verbs; what goes in and out of them is in ``store.values``.

Two plain implementations (SQLite, PostgreSQL), one conformance suite that knows only the
protocols. Every write about an attempt carries (job id, token) and is refused unless that token
is the job's current one and the job is running; a refused write changes nothing and is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from outlast.model.job import State
from outlast.model.lease import DeathCause
from outlast.model.lifecycle import Transition
from outlast.model.pause import Pause
from outlast.store.actions import ActionReads, ActionVerbs
from outlast.store.evidence import EvidenceReads
from outlast.store.finding import Environment
from outlast.store.history import HISTORY_PAGE, HistoryPage
from outlast.store.logs import LogReads, LogVerbs
from outlast.store.minutes import MinuteReads, MinuteVerbs
from outlast.store.rows import (
    HELD_MAX,
    AttemptRow,
    Held,
    JobFilter,
    JobIds,
    RefusalRow,
    Served,
    StoredJob,
    WorkerRow,
    WorkerStatus,
)
from outlast.store.schedules import NewSchedule, Put, ScheduleReads, ScheduleVerbs
from outlast.store.searching import SearchReads
from outlast.store.stacks import Stack
from outlast.store.statistics import (
    LANES_MAX,
    STATISTICS_MAX,
    UNENCRYPTED_MAX,
    Place,
    Statistics,
    Unencrypted,
)
from outlast.store.values import (
    Answer,
    Beat,
    ClaimRequest,
    Enqueued,
    Exchanged,
    Failing,
    Migration,
    NewJob,
    NewWorker,
    Orphan,
    OverdueAttempt,
    Purpose,
    Registered,
    Report,
    Save,
    Snapshot,
    WorkerRef,
    WorkerSeen,
)
from outlast.store.watches import WatchVerbs

T = TypeVar("T")
ORPHANS_MAX = 100  # reclaimed in one transaction
OVERDUE_MAX = 100 * ORPHANS_MAX  # listed: what cannot be closed yet must not hide what can
OUTCOMES_MAX = 500  # handed in by one exchange
CLAIMS_MAX = 500  # claimed by one exchange
EXPIRE_MAX = 500  # queued jobs that one exchange ends because they have expired
PRUNE_MAX = 1_000  # rows deleted in one transaction
LOOK_ROWS = 20_000  # looked at in search of jobs
REFUSALS_KEPT = 1_000
ATTEMPTS_KEPT_FIRST, ATTEMPTS_KEPT_LAST = 10, 20  # of a job; outlast_end_v1.sql says the same
ENQUEUE_MAX = 5_000  # rows in one statement; more are split by the caller of the store
ENQUEUE_BYTES = 64 * 1024 * 1024  # of arguments in it, split as well, except a single job


class Inspector(
    ActionReads, ScheduleReads, EvidenceReads, MinuteReads, SearchReads, LogReads, Protocol
):
    """Reads for people and screens. Never writes, takes no locks."""

    async def job(self, job_id: int, text_max: int | None = None) -> StoredJob | None:
        """Return one job, its payloads cut at ``text_max`` characters."""
        ...

    async def named(self, token: int | None, key: str | None) -> list[int]:
        """Return ids by the token of an attempt (of a completed one only if its lines are kept), or
        by the key of an unfinished job."""
        ...

    async def job_ids(self, which: JobFilter) -> JobIds:
        """Return ids of jobs, newest first; without an index, of those in the next rows."""
        ...

    async def jobs_of(self, ids: Sequence[int], text_max: int | None = None) -> list[StoredJob]:
        """Return these jobs, newest first. ``text_max``: characters at which arguments are cut;
        results and checkpoints are then left out."""
        ...

    async def jobs(self, which: JobFilter) -> list[StoredJob]:
        """Return jobs, newest first, by as many looks as it takes."""
        ...

    async def attempts(self, job_id: int) -> list[AttemptRow]:
        """Return a job's closed attempts, in the order of their tokens."""
        ...

    async def last_attempts(
        self, ids: Sequence[int], text_max: int | None = None
    ) -> list[tuple[StoredJob, AttemptRow | None]]:
        """Return jobs as ``jobs_of`` does, each with its last closed attempt, in one statement."""
        ...

    async def last_token(self) -> int:
        """Return the last token that was issued, else 0."""
        ...

    async def workers(self) -> list[WorkerRow]:
        """Return all workers that are there, and the GONE_MAX that have gone last, by id."""
        ...

    async def held(self, limit: int = HELD_MAX) -> list[Held]:
        """Return running jobs by worker, at most ``limit``."""
        ...

    async def refusals(
        self, job_id: int | None = None, limit: int = 50, before_id: int | None = None
    ) -> list[RefusalRow]:
        """Return refused writes, newest first; only those with ids below ``before_id``."""
        ...

    async def place(self, job_id: int) -> Place | None:
        """Return where a job stands among the others, in bounded numbers."""
        ...

    async def pauses(self) -> list[Pause]:
        """Return all that is paused, by id."""
        ...

    async def statistics(self, most: int = STATISTICS_MAX, lanes: int = LANES_MAX) -> Statistics:
        """Return what the store holds, in numbers of one snapshot, each counted up to ``most``."""
        ...

    async def unencrypted(self, most: int = UNENCRYPTED_MAX) -> list[Unencrypted]:
        """Return by task how many of ``most`` unfinished jobs have payloads that are not encrypted;
        of those that run a job may be counted that has ended meanwhile."""
        ...

    async def environment(self) -> Environment:
        """Return what the store stands on. Works without a schema, too."""
        ...

    async def served(self) -> Served:
        """Return what active workers take."""
        ...

    async def history(self, after_id: int = 0, limit: int = HISTORY_PAGE) -> HistoryPage:
        """Return a page of jobs with their closed attempts, as one snapshot shows them."""
        ...

    async def counts(self) -> dict[tuple[str, State], int]:
        """Return the number of jobs by (queue, state)."""
        ...


class Store(ActionVerbs, ScheduleVerbs, WatchVerbs, LogVerbs, MinuteVerbs, Protocol):
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

    async def heed(self, me: WorkerRef, version: str) -> None:
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
