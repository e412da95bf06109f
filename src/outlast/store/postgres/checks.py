"""Checks the facts of a PostgreSQL server for the doctor: durability, connections, vacuum."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from outlast.base.text import line, shell_word, span
from outlast.store.finding import CheckContext, Finding, hint, ok, problem, warning
from outlast.store.limits import LockHolder

OLDEST = 140_000
CONNECTIONS_OF_A_WORKER = 5  # exchange and reads 2, heartbeat 1, wake-ups 1, presence 1
LONG_TRANSACTION = 600.0  # seconds
LONG_PREPARED = 60.0
NOTIFY_FULL = 0.5
CROWDED = 0.8
NAMED_MAX = 5
LANES_MAX = 1_000


class PostgresFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A PostgreSQL server as this role sees it. Times and ages are in seconds.

    Attributes:
        version: as ``server_version_num``: 140005 is 14.5.
        clock: the server's, in seconds since 1970.
        role: that of this connection; lacking: privileges that a worker needs and it does not
            have; limited_to: the other purposes that it has the privileges for, in words.
        pooled: whether our backend is another than the one that greeted us: a pooler.
        standby: whether it follows another server and takes no writes.
        connections: open ones of clients; connections_max: how many this role could have;
            limited_by: the setting, or the command, which says that.
        oldest_transaction: of other sessions of this database, as far as this role may see.
        prepared, oldest_prepared: transactions that wait for their second phase.
        notify_queue: how full the queue of notifications is, 0 to 1.
        not_vacuumed: tables of Outlast that autovacuum is set to leave alone.
        track_counts: whether it counts what is read and written.
        track_activities: whether the server shows what its sessions do; worker_roles: those of the
            sessions that hold workers' presence.
        lock_holders: sessions in the way of limits and counters.
        strangers: roles that may connect and have no rights on the jobs; some, if there are many.
        superuser, owner: whether the role of this connection is one, or owns the tables.
        borrowed: whether its session is of a login whose sessions this role may not end.
        open_schemas: those of the search_path in which every role may create.
        unlogged: tables of Outlast that a crash empties; encoding: of the database.
        behind: sequences that give out numbers which rows have already.
        lanes: how many there are: queues, counted for each task and priority in them.
        misled: functions that look for tables in a schema of another name than theirs.
        collation: the version of the library that the database was made with, and the present one.
    """

    version: int
    clock: float
    fsync: str
    synchronous_commit: str
    full_page_writes: str
    autovacuum: str
    pooled: bool
    standby: bool
    connections: int
    connections_max: int
    prepared: int
    two_phase: bool
    notify_queue: float
    not_vacuumed: list[str]
    role: str
    lacking: list[str] = []
    limited_to: str | None = None
    superuser: bool = False
    borrowed: bool = False
    owner: bool = False
    open_schemas: list[str] = []
    unlogged: list[str] = []
    encoding: str = "UTF8"
    track_activities: str = "on"
    track_counts: str = "on"
    worker_roles: list[str] = []
    lock_holders: list[LockHolder] = []
    behind: list[str] = []
    lanes: int = 0
    misled: list[str] = []
    collation: str | None = None
    strangers: list[str] = []
    limited_by: str = "max_connections"
    oldest_transaction: float | None = None
    oldest_prepared: float | None = None

    def check(self, context: CheckContext) -> Iterator[Finding]:
        """Yield findings, good and bad."""
        yield from self._check_server()
        yield from self._check_role()
        yield from self._check_durability()
        yield from self._check_other_roles()
        yield from self._check_connections(context)
        yield from self._check_tables()
        yield from self._check_transactions()

    def _check_server(self) -> Iterator[Finding]:
        """Whether this server is new enough, and takes writes."""
        name = f"PostgreSQL {self.version // 10_000}.{self.version % 10_000}"
        if self.version < OLDEST:
            mend = f"Outlast is made for {OLDEST // 10_000} and later: upgrade the server."
            yield problem("version", f"This is {name}.", mend)
        else:
            yield ok("version", f"This is {name}.")
        if self.standby:
            yield problem(
                "standby",
                "This server is a standby: it takes no writes, so no worker can run here.",
                "Name the primary (for several hosts: ?target_session_attrs=primary).",
            )

    def _check_role(self) -> Iterator[Finding]:
        """Whether the role of this command fits its purpose and may do no more than it has to."""
        if self.limited_to is not None:
            said = f"The role {self.role} may {self.limited_to}, and is not for workers."
            yield ok("privileges", said)
        elif self.lacking:
            more = len(self.lacking) - NAMED_MAX
            yield warning(
                "privileges",
                f"As the role {self.role} no worker can start, since it lacks"
                f" {', '.join(self.lacking[:NAMED_MAX])}{f' and {more} more' if more > 0 else ''}.",
                "If workers are to use this role, run as the owner of the tables:"
                f" `outlast migrate --grant {shell_word(self.role)}`.",
            )
        else:
            yield ok("privileges", f"The role {self.role} may do all that a worker does.")
        if self.superuser or self.owner:
            may = "read and change all of the server" if self.superuser else "change the tables"
            what = "is a superuser" if self.superuser else "owns the tables"
            yield (warning if self.superuser else hint)(
                "role",
                f"The role {self.role} {what}: if workers use it, any task can {may}.",
                "Give workers a role that owns nothing: CREATE ROLE worker LOGIN PASSWORD '…'; run"
                " `outlast migrate --grant worker` as the owner, and use it in the workers' URL.",
            )
        for name in self.open_schemas:
            yield warning(
                "open_schema",
                f"Every role may create in the schema {name} of the search_path: a function or an"
                " operator that is put there can run as the roles of workers and clients.",
                f"REVOKE CREATE ON SCHEMA {name} FROM PUBLIC, and GRANT it to those that need it.",
            )
        if not self.open_schemas:
            said = "Only named roles may create in the schemas of the search_path."
            yield ok("open_schema", said)

    def _check_durability(self) -> Iterator[Finding]:
        """Whether a commit survives a crash of the server."""
        where = "postgresql.conf, or the role"
        if self.fsync == "off":
            harm = "fsync is off: a crash of its host can destroy the database."
            yield problem("fsync", harm, "Set fsync = on (postgresql.conf).")
        if self.full_page_writes == "off":
            harm = "a page that was half written in a crash stays damaged"
            mend = f"Set full_page_writes = on ({where})."
            yield warning("full_page_writes", f"full_page_writes is off: {harm}.", mend)
        if self.synchronous_commit == "off":
            harm = "a crash of the server loses the last moment, also of jobs that were accepted"
            mend = f"Set synchronous_commit = on ({where})."
            yield warning("synchronous_commit", f"synchronous_commit is off: {harm}.", mend)
        if "off" not in {self.fsync, self.full_page_writes, self.synchronous_commit}:
            yield ok("durability", "fsync, full_page_writes and synchronous_commit are on.")

    def _check_other_roles(self) -> Iterator[Finding]:
        """Whether a worker may terminate the session of a dead worker that holds its row, whether
        a session holds locks of limits, and whether roles may connect that have nothing to do with
        the jobs."""
        harm = (
            "a dead worker's session that waits for its client to read cannot be ended by the"
            " others, and the jobs of that worker wait until the server gives the connection up"
        )
        if self.track_activities == "off":
            said = f"track_activities is off: {harm}."
            yield warning("stuck_sessions", said, "Set track_activities = on.")
        if self.borrowed:
            said = f"A setting of the login makes {self.role} of it, so if workers use it: {harm}."
            yield warning("stuck_sessions", said, "Let workers connect as the role itself.")
        if len(self.worker_roles) > 1:
            said = f"Workers connect as several roles ({_some(self.worker_roles)}): {harm}."
            yield warning("stuck_sessions", said, "Let all workers of a store connect as one role.")
        for holder in self.lock_holders:
            yield problem(
                "locks_of_limits", f"{holder}: limits or counters wait for it.", holder.mend
            )
        if self.strangers:
            yield hint(
                "strangers",
                f"Roles without rights on the jobs may connect ({_some(self.strangers)}): they can"
                " hear the names of queues (LISTEN) and take locks that Outlast needs.",
                "REVOKE CONNECT ON DATABASE … FROM PUBLIC; then grant it to those who need it.",
            )

    def _check_connections(self, context: CheckContext) -> Iterator[Finding]:
        """Whether a pooler stands between, and whether there are enough connections for workers.
        Report how far the clocks are apart; nothing depends on it."""
        if self.pooled:
            yield warning(
                "pooler",
                "A pooler stands between: no lock of a session can show that a worker lives, and no"
                " wake-up arrives unless it pools sessions.",
                "Give workers the server's own address; until then a lease notices a dead host, and"
                " jobs begin up to a second later.",
            )
        else:
            yield ok("pooler", "No pooler stands between.")
        left = self.connections_max - self.connections
        said = (
            f"{self.connections} of {self.connections_max} connections are in use, at most"
            f" {context.workers * CONNECTIONS_OF_A_WORKER} of them by the {context.workers} live"
            " workers."
        )
        mend = f"Raise {self.limited_by}; one more worker takes up to {CONNECTIONS_OF_A_WORKER}."
        if left < CONNECTIONS_OF_A_WORKER:
            yield problem("connections", said, mend)
        elif self.connections > CROWDED * self.connections_max:
            yield warning("connections", said, mend)
        else:
            yield ok("connections", said)
        apart = self.clock - (context.now if context.asked_at is None else context.asked_at)
        way = "ahead of" if apart > 0 else "behind"
        said = f"The server's clock is {span(abs(apart))} {way} ours; nothing depends on it."
        yield ok("clock", said)

    def _check_tables(self) -> Iterator[Finding]:
        """Whether tables outlast a crash, hold every text, and are cleaned of dead rows."""
        for name in self.unlogged:
            said = f"{name} is unlogged: a crash of the server empties it."
            yield problem("unlogged", said, f"ALTER TABLE {name} SET LOGGED.")
        if self.behind:
            yield problem(
                "numbers",
                f"Rows are above what {_some(self.behind)} gives out next: they came without the"
                " numbers of their server. What is stored fails, or overtakes what waits.",
                "Run `outlast migrate --after-restore`, or start a worker.",
            )
        if self.lanes > LANES_MAX:
            yield warning(
                "many_queues",
                f"Jobs of the last day have stood in {self.lanes:,} queues, counted for each task"
                f" and priority: above {LANES_MAX:,}, each claim becomes slower.",
                "Use fewer queues. Customers take turns in one queue, too: pass their names"
                ' as `tenant`, and say fair="tenant" at the task.',
            )
        if self.misled:
            yield problem(
                "renamed_schema",
                f"{_some(self.misled)} look for tables in a schema of another name: theirs was"
                " renamed. They fail, or store jobs in a schema that has that name now.",
                "Run `outlast migrate` as the owner of the tables.",
            )
        if self.collation is not None:
            yield warning(
                "collation",
                f"The server's library sorts texts in another way than when the database was made"
                f" (version {self.collation}): indexes of your own tables may be wrong.",
                "REINDEX DATABASE, then ALTER DATABASE … REFRESH COLLATION VERSION. Outlast's own"
                " indexes sort by bytes.",
            )
        if self.encoding != "UTF8":
            yield warning(
                "encoding",
                f"The encoding of this database is {self.encoding}: arguments, results and reports"
                " with characters that it lacks are refused.",
                "Move Outlast to a database with ENCODING 'UTF8'.",
            )
        if self.track_counts == "off":
            yield problem(
                "track_counts",
                "track_counts is off: autovacuum never cleans a table, and claims do not notice"
                " that they read dead entries of an index again and again.",
                "Set track_counts = on (postgresql.conf).",
            )
        harm = "claims become slower with every job that was ever run"
        if self.autovacuum == "off":
            said = f"autovacuum is off for the whole server: {harm}."
            yield warning("autovacuum", said, "Set autovacuum = on.")
        elif self.not_vacuumed:
            said = f"autovacuum is off for {', '.join(self.not_vacuumed)}: {harm}."
            mend = f"ALTER TABLE {self.not_vacuumed[0]} RESET (autovacuum_enabled), and so on."
            yield warning("autovacuum", said, mend)
        else:
            yield ok("autovacuum", "autovacuum is on.")

    def _check_transactions(self) -> Iterator[Finding]:
        """Whether a transaction keeps dead rows from being cleaned away, and whether wake-ups stand
        in the way of commits."""
        oldest, prepared = self.oldest_transaction, self.oldest_prepared
        if oldest is not None and oldest > LONG_TRANSACTION:
            yield warning(
                "long_transaction",
                f"A transaction of this database has been open for {span(oldest)}: dead rows pile"
                " up behind it, and claims become slower.",
                "Find it in pg_stat_activity by xact_start, and end it;"
                " idle_in_transaction_session_timeout prevents the next one.",
            )
        if self.prepared and prepared is not None and prepared > LONG_PREPARED:
            yield warning(
                "prepared_transactions",
                f"{self.prepared} prepared transactions wait, the oldest for {span(prepared)}: they"
                " hold their locks, and dead rows pile up behind them.",
                "Find them in pg_prepared_xacts; COMMIT PREPARED or ROLLBACK PREPARED each.",
            )
        if self.two_phase:
            yield hint(
                "two_phase",
                "This server allows prepared transactions, and PostgreSQL refuses to prepare one"
                " that has sent a notification.",
                "If you enqueue in such transactions: outlast.App(…, notify=False).",
            )
        if self.notify_queue > NOTIFY_FULL:
            yield warning(
                "notify_queue",
                f"The queue of notifications is {int(self.notify_queue * 100)}% full; once it is,"
                " commits that notify fail.",
                "A session that listens has been in a transaction for too long: end it.",
            )


def _some(names: list[str]) -> str:
    told = ", ".join(line(name, 63) for name in names[:NAMED_MAX])
    return f"{told} and others" if len(names) > NAMED_MAX else told
