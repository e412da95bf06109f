"""Jobs on PostgreSQL: one shared truth for workers on many machines.

The verbs of ``store.protocol.Store``, each one statement (``statements.sql`` loads it). Its head,
or that of the function that it calls, argues why it is right against a concurrent claim, reap and
late worker. This module holds no rule of its own: it carries values to the statements and back. The
hot path, the exchange, has a module of its own beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from outlast.clock import SYSTEM, Clock
from outlast.errors import StoreUnavailable
from outlast.model.lease import DeathCause, Presence
from outlast.model.lifecycle import Transition
from outlast.store.columns import policy_of, seconds_of
from outlast.store.postgres.connection import Settings, check_url
from outlast.store.postgres.enqueue import create_with_key, enqueue, find_unfinished, has_keys
from outlast.store.postgres.errors import foreign_errors
from outlast.store.postgres.exchange import PostgresExchange
from outlast.store.postgres.inspector import PostgresInspector
from outlast.store.postgres.pool import Connections
from outlast.store.postgres.privileges import check_may_serve, grant
from outlast.store.postgres.schema import PostgresSchema
from outlast.store.postgres.session import Transaction
from outlast.store.postgres.statements import Pair, ends_text, orphan_of, pair_of, sql, to_json
from outlast.store.protocol import ORPHANS_MAX, OVERDUE_MAX, PRUNE_MAX, REFUSALS_KEPT, Inspector
from outlast.store.rows import WorkerStatus
from outlast.store.unannounced import RunBy, Unannounced, UnannouncedBatch
from outlast.store.values import (
    Answer,
    Beat,
    Cancelled,
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
    Requeued,
    Save,
    Snapshot,
    WorkerRef,
    WorkerSeen,
    line_of,
)

T = TypeVar("T", Save, Report)

_HELD = "held"  # the row of a job is locked by another session


class PostgresStore:
    """A ``Store`` on PostgreSQL 14 or later, with a constant number of connections.

    Args:
        url: ``postgresql://`` or ``postgres://``. Tables are found by the role's search_path,
            which ``?options=-csearch_path%3Dname`` can set.
        connections: how many are open at most, per event loop.
        reserved: how many of them are for a worker's own trips (its exchange, its registration),
            and for nothing else: neither waits for the other.
        notify: whether listeners are woken (NOTIFY takes a global lock at commit).
        statement_timeout, connect_timeout: seconds; keep the first below the lease.
        pooler: a transaction pooler stands between: keep nothing in the session.
    """

    def __init__(
        self,
        url: str,
        *,
        connections: int = 1,
        reserved: int = 0,
        notify: bool = True,
        statement_timeout: float = 30.0,
        connect_timeout: float = 10.0,
        pooler: bool = False,
        clock: Clock = SYSTEM,
    ) -> None:
        self.url = check_url(url)
        self.notify = notify
        self._connections = Connections(
            Settings(
                url=url,
                connections=connections,
                reserved=reserved,
                statement_timeout=statement_timeout,
                connect_timeout=connect_timeout,
                pooler=pooler,
            )
        )
        self._exchange = PostgresExchange(self._connections, clock, notify=notify)
        self._schema = PostgresSchema(self._connections)
        self.inspector: Inspector = PostgresInspector(self._connections)

    # -- life and schema

    async def open(self) -> None:
        """Connect and check the schema; make it first where there is none at all."""
        await self._schema.ensure()

    async def close(self) -> None:
        """Release connections. Safe to call twice."""
        await self._connections.close()

    async def drop_connections(self) -> None:
        """Throw away connections in an unknown state; the next call makes new ones."""
        self._connections.drop()

    async def store_id(self) -> str:
        """Return the id of this schema, drawn once when it was made."""
        return await self._schema.store_id()

    async def migrate(self) -> list[Migration]:
        """Bring the schema up to date; return the steps that were applied."""
        return await self._schema.migrate()

    async def migrations(self) -> list[Migration]:
        """Return all steps, applied or not. Changes nothing."""
        return await self._schema.migrations()

    async def raise_tokens(self, above: int) -> None:
        """Make every later token larger than ``above``."""
        await self._fetch("raise_tokens", above, own=True)

    async def grant(self, role: str, purpose: Purpose) -> list[str]:
        """Let a role do what it is for; return the privileges that it lacked."""
        async with self._connections.use(kind=Transaction.COMMITTED) as connection:
            return await grant(connection, role, purpose)

    # -- jobs

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store jobs, all or none, in their order; at most ENQUEUE_MAX."""
        if len(jobs) == 1 and jobs[0].key is not None:
            stored = await self._enqueue_with_key(jobs[0])
            if stored is not None:
                return [stored]
        with_keys = has_keys(jobs)
        return await self._connections.run(
            lambda connection: enqueue(connection, jobs, notify=self.notify),
            keeps_plans=not with_keys,
            kind=Transaction.COMMITTED if with_keys and len(jobs) > 1 else None,
        )

    async def _enqueue_with_key(self, job: NewJob) -> Enqueued | None:
        created = await self._connections.run(
            lambda connection: create_with_key(connection, job, notify=self.notify),
            keeps_plans=True,
        )
        if created is not None:
            return created
        return (await self._connections.run(lambda each: find_unfinished(each, [job])))[0]

    async def exchange(
        self, me: WorkerRef, ended: Sequence[Transition], requests: Sequence[ClaimRequest]
    ) -> Exchanged:
        """Hand in what ended, take what can run next: one round trip, one commit."""
        return await self._exchange.exchange(me, ended, requests)

    async def checkpoint(self, saves: Sequence[Save]) -> list[Answer]:
        """Save checkpoints; of several for one attempt in the batch, the highest number."""
        best = _last_of_each(sorted(saves, key=lambda save: save.number))
        rows = await self._fetch(
            "checkpoint",
            [save.job_id for save in best],
            [save.token for save in best],
            [save.number for save in best],
            [save.value for save in best],
            REFUSALS_KEPT,
        )
        answers = _answers(rows)
        written = {pair_of(save): save.number for save in best}
        return [
            Answer.ALREADY
            if answers[pair_of(save)] is Answer.ACCEPTED and save.number < written[pair_of(save)]
            else answers[pair_of(save)]
            for save in saves
        ]

    async def progress(self, reports: Sequence[Report]) -> list[Answer]:
        """Note progress; of several for one attempt in the batch, the last."""
        last = _last_of_each(reports)
        rows = await self._fetch(
            "progress",
            [report.job_id for report in last],
            [report.token for report in last],
            [to_json(report.progress) for report in last],
            REFUSALS_KEPT,
        )
        answers = _answers(rows)
        return [answers[pair_of(report)] for report in reports]

    async def cancel(self, job_ids: Sequence[int]) -> dict[int, Cancelled]:
        """Cancel queued jobs at once, ask running ones."""
        first = await self._fetch("cancel", list(job_ids), self.notify, False)
        held = [row["job_id"] for row in first if row["answer"] == _HELD]
        last = await self._fetch("cancel", held, self.notify, True) if held else []
        free = [row for row in first if row["answer"] != _HELD]
        return {row["job_id"]: Cancelled(row["answer"]) for row in (*free, *last)}

    async def requeue(
        self, job_ids: Sequence[int], *, from_scratch: bool = False
    ) -> dict[int, Requeued]:
        """Revive dead or cancelled jobs with fresh budgets."""
        rows = await self._fetch("requeue", list(job_ids), from_scratch, self.notify)
        return {row["job_id"]: Requeued(row["answer"]) for row in rows}

    async def discard(self, job_ids: Sequence[int]) -> int:
        """Delete dead jobs and their attempts; return how many."""
        rows = await self._fetch("discard", list(job_ids))
        return int(rows[0][0])

    async def prune(
        self, *, jobs_older_than: float, workers_older_than: float, limit: int = PRUNE_MAX
    ) -> int:
        """Delete old ended jobs and gone workers, ``limit`` rows at most."""
        jobs = int((await self._fetch("prune_jobs", jobs_older_than, limit))[0][0])
        workers = await self._fetch("prune_workers", workers_older_than, limit - jobs)
        return jobs + int(workers[0][0])

    # -- workers

    async def register(self, new: NewWorker) -> Registered:
        """Make a row for a worker, active, its lease running, or find it made; end those that
        it succeeds. Raises NotPermitted where this role may not do all that a worker does."""
        async with self._connections.use() as connection:
            await check_may_serve(connection)
        await self.raise_tokens(new.token_seen)
        rows = await self._fetch(
            "register",
            new.name,
            new.host,
            new.pid,
            new.boot_id,
            new.heartbeat,
            new.lease,
            to_json(new.queues),
            to_json(new.tasks),
            to_json(new.tags),
            to_json(new.lacks),
            new.instance,
            new.release,
            new.lock_path,
            new.lock_device,
            new.lock_inode,
            new.instance if new.succeeds else None,
            new.registration,
            own=True,
        )
        worker_id, epoch, replaced = rows[0]
        return Registered(worker_id, epoch, new.registration, replaced)

    async def reconnect(self, me: WorkerRef, token_seen: int) -> WorkerRef | None:
        """Raise the epoch, after any exchange under way. None: the lease is lost."""
        await self.raise_tokens(token_seen)
        rows = await self._fetch("reconnect", me.worker_id, me.registration, own=True)
        return WorkerRef(me.worker_id, rows[0]["epoch"], me.registration) if rows else None

    async def set_status(self, me: WorkerRef, status: WorkerStatus) -> bool:
        """Move to draining or stopped. False: the lease is lost."""
        rows = await self._fetch(
            "set_status", me.worker_id, status.value, me.registration, own=True
        )
        return bool(rows)

    async def request_drain(self, worker_ids: Sequence[int]) -> set[int]:
        """Ask live workers to drain and leave; return the ids of those that are asked."""
        return {row[0] for row in await self._fetch("request_drain", list(worker_ids), self.notify)}

    async def announce(
        self, me: WorkerRef, tasks: Sequence[str], lacks: Mapping[str, Sequence[str]]
    ) -> None:
        """Replace the tasks that this worker's row shows, and those it lacks tags for."""
        await self._fetch("announce", me.worker_id, to_json(tasks), to_json(lacks), me.registration)

    async def presence_off(self, me: WorkerRef, reason: str) -> None:
        """Say on this worker's row that its presence proves nothing, and why."""
        await self._fetch("presence_off", me.worker_id, reason, me.registration)

    async def tell_wakeup(self, me: WorkerRef, words: str) -> None:
        """Say on this worker's row by what it is woken, and what is wrong with that."""
        await self._fetch("tell_wakeup", me.worker_id, words, me.registration)

    async def tell_failing(self, me: WorkerRef, failing: Failing | None) -> None:
        """Say on this live worker's row which of its duties fails."""
        told = (None, None) if failing is None else (line_of(failing), failing.seconds)
        await self._fetch("tell_failing", me.worker_id, *told, me.registration)

    async def waiting(self, grace: float, limit: int) -> UnannouncedBatch:
        """Return what no worker has taken for a while."""
        head, *rows = await self._fetch("waiting", grace, limit)
        jobs = [Unannounced(*row) for row in rows]
        return UnannouncedBatch(workers=head["token"], next_due=head["seconds"], jobs=jobs)

    async def elsewhere(self, me: WorkerRef, job_ids: Sequence[int]) -> list[RunBy]:
        """Return those of the jobs that another worker runs at this moment."""
        return [tuple(row) for row in await self._fetch("elsewhere", me.worker_id, list(job_ids))]

    async def heartbeat(self, me: WorkerRef) -> Beat:
        """Renew the lease: the counter goes up by one."""
        rows = await self._fetch("heartbeat", me.worker_id, me.registration)
        cancels = [(row[0], row[1]) for row in rows if row[0] is not None]
        return Beat(bool(rows), cancels, drain=any(row[2] for row in rows))

    async def reconcile(self, me: WorkerRef, held: Collection[int]) -> list[Pair]:
        """Release own running jobs whose token is not in ``held``."""
        rows = await self._fetch(
            "reconcile",
            me.worker_id,
            me.epoch,
            list(held),
            self.notify,
            me.registration,
            own=True,
        )
        return [(row["job_id"], row["token"]) for row in rows]

    async def observe(self, slack: float = 0.0) -> Snapshot:
        """Return one look at all active and draining workers, and at what no worker looks after."""
        rows = await self._fetch("observe", slack)
        orphans, overdue, now, next_due, drawn, here, *_ = rows[0]
        return Snapshot(
            workers=[_seen(row) for row in rows if row["worker_id"] is not None],
            orphans=orphans,
            overdue=overdue,
            now=now,
            next_due=next_due,
            drawn=drawn,
            incarnation=here,
        )

    async def reap(self, gone: WorkerSeen, cause: DeathCause = DeathCause.SILENCE) -> bool:
        """Mark a worker lost, and why, if its counter still stands where it was seen.

        Waits for no lock. Raises StoreUnavailable while another session holds the row; one that
        only waits for a client that does not read is ended.
        """
        (row,) = await self._fetch("reap", gone.worker_id, gone.beat, cause.value, gone.begun)
        if row["held"]:
            await self._free(gone)
        return bool(row["reaped"])

    async def _free(self, gone: WorkerSeen) -> None:
        ended = (await self._fetch("free", gone.worker_id, gone.beat))[0][0]
        if ended is not None:
            what = "was ended, since its client does not read" if ended else "holds its row"
            raise StoreUnavailable(f"another session of worker {gone.name} {what}")

    async def reclaim(
        self,
        decide: Callable[[Orphan], Transition],
        limit: int = ORPHANS_MAX,
        only: Collection[Pair] | None = None,
    ) -> list[Transition]:
        """Close the attempts of orphans, or only these, as decided, in one transaction."""

        async def close(connection: Any) -> list[Transition]:
            if only is None:
                rows = await connection.fetch(sql("orphans"), limit)
            else:
                rows = await connection.fetch(sql("facts"), *_columns(only), limit)
            if not rows:
                return []
            decided = [decide(orphan_of(row)) for row in rows]
            closed = await connection.fetch(sql("close"), ends_text(decided), self.notify)
            pairs = {(row["job_id"], row["token"]) for row in closed}
            return [transition for transition in decided if pair_of(transition) in pairs]

        return await self._connections.run(close, kind=Transaction.COMMITTED)

    async def overdue(self, slack: float, limit: int = OVERDUE_MAX) -> list[OverdueAttempt]:
        """Return running attempts past their hard deadline by more than ``slack`` seconds."""
        rows = await self._fetch("overdue", slack, limit)
        return [OverdueAttempt(row[0], row[1], row[2], row[3], policy_of(row[4])) for row in rows]

    async def superseded(self, attempts: Collection[Pair]) -> list[int]:
        """Return the tokens of those that are no longer current."""
        return [row["token"] for row in await self._fetch("superseded", *_columns(attempts))]

    async def _fetch(self, verb: str, *values: Any, own: bool = False) -> list[Any]:
        rows: list[Any] = await self._connections.run(
            lambda connection: connection.fetch(sql(verb), *values), own=own
        )
        return rows


def _seen(row: Any) -> WorkerSeen:
    values = {name: row[name] for name in WorkerSeen.__struct_fields__ if name != "begun"}
    values |= {name: seconds_of(values[name]) for name in ("heartbeat", "lease")}
    return WorkerSeen(**{**values, "presence": Presence(values["presence"])})


# -- on a connection of the caller's, inside the caller's transaction


async def enqueue_on(
    connection: Any, jobs: Sequence[NewJob], *, notify: bool = True
) -> list[Enqueued]:
    """As ``PostgresStore.enqueue``; visible, and listeners woken, when the caller commits."""
    with foreign_errors():
        return await enqueue(connection, jobs, notify=notify)


async def complete_on(connection: Any, job_id: int, token: int, result: str | None) -> bool:
    """Complete the attempt when the caller commits. False: the token is stale."""
    with foreign_errors():
        return bool(await connection.fetch(sql("complete"), job_id, token, result))


async def store_id_on(connection: Any) -> str | None:
    """Return the id of the schema that the connection sees, or None; breaks no transaction."""
    tables = (await connection.fetch(sql("schema_tables")))[0]
    if not tables["schema_table"]:
        return None
    rows = await connection.fetch(sql("store_id"))
    return str(rows[0]["store_id"]) if rows else None


# -- small helpers


def _columns(pairs: Collection[Pair]) -> tuple[list[int], list[int]]:
    return [job_id for job_id, _ in pairs], [token for _, token in pairs]


def _last_of_each(items: Iterable[T]) -> list[T]:
    return list({pair_of(item): item for item in items}.values())


def _answers(rows: Iterable[Any]) -> dict[Pair, Answer]:
    return {(row["job_id"], row["token"]): Answer(row["answer"]) for row in rows}
