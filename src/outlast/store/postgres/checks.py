"""Holds the facts of a PostgreSQL server, and what the doctor finds in them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from outlast.base.text import line, shell_word, span, stamp
from outlast.store.finding import (
    HINT,
    OK,
    PROBLEM,
    WARNING,
    Check,
    Each,
    Finding,
    NoWrites,
    Table,
    judge,
)
from outlast.store.limits import LockHolder
from outlast.store.postgres.hosts import PRIMARY, ROLES

CONNECTIONS_OF_A_WORKER = 5  # exchange and reads 2, heartbeat 1, wake-ups 1, presence 1
LONG_TRANSACTION = 600.0  # seconds
LONG_PREPARED = 60.0
NOTIFY_FULL = 0.5
STANDBY_LATE = 5.0  # seconds
CROWDED = 0.8
NAMED_MAX = 5
LANES_MAX = 1_000


class PostgresFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A PostgreSQL server as this role sees it. Times and ages are in seconds.

    Attributes:
        version: as ``server_version_num``: 140005 is 14.5.
        clock, read_at: the server's time and ours when it was read, in seconds since 1970.
        role: that of this connection; lacking: privileges that a worker needs and it does not
            have; limited_to: the other purposes that it has the privileges for, in words.
        pooled: whether our backend is another than the one that greeted us: a pooler.
        standby: whether it follows another server and takes no writes; read_only: whether it is
            set to take none.
        standby_names: synchronous_standby_names; standbys: how many follow it; standby_wait: since
            when a commit waits for one. idle_slots: replication slots that are not in use
            and keep dead rows; feedback: standbys that keep dead rows for their own queries.
        hosts: the role of each of several hosts of the URL, or why it accepts no session;
            attributes: the target_session_attrs.
        connections: open ones of clients; connections_max: how many this role could have;
            limited_by: the setting, or the command, which says that.
        oldest_transaction: of other sessions of this database, as far as this role may see;
            oldest_holder: which process it is, and whose.
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
        misled: functions that are not as they were made, by what is wrong with them.
        collation: the version of the library that the database was made with, and the present one.
        workers: how many are alive, which the doctor knows.
    """

    version: int
    clock: float
    read_at: float
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
    misled: dict[str, list[str]] = {}
    collation: str | None = None
    strangers: list[str] = []
    read_only: bool = False
    standby_names: str = ""
    standbys: int = 0
    standby_wait: float | None = None
    idle_slots: list[str] = []
    feedback: list[str] = []
    hosts: dict[str, str] = {}
    attributes: str = "any"
    limited_by: str = "max_connections"
    oldest_transaction: float | None = None
    oldest_holder: str | None = None
    oldest_prepared: float | None = None
    workers: int = 0

    def check(self, workers: int) -> Iterator[Finding]:
        """Yield findings, good and bad."""
        return judge(FINDINGS, msgspec.structs.replace(self, workers=workers))


def find_no_writes(
    *, standby: bool, read_only: bool, last: float | None, now: float, standby_wait: float | None
) -> NoWrites | None:
    """Return why a server stores nothing, and since when; None if it does."""
    if not (standby or read_only):
        late = f"commits {_describe_wait(standby_wait or 0.0, now)}"
        return NoWrites(late, is_refused=False) if (standby_wait or 0.0) > STANDBY_LATE else None
    what, of = (
        "this database is read-only (default_transaction_read_only is on)",
        "the last heartbeat of a worker",
    )
    if standby:
        what, of = "this server is a standby", "its last change"
    old = "" if last is None else f", and {of} is {span(now - last)} old ({stamp(last)})"
    why = f"{what}{old}: it takes no writes, so no worker can run here"
    return NoWrites(why, is_refused=True)


def _describe_wait(seconds: float, now: float) -> str:
    since = f"the oldest for {span(seconds)} (since {stamp(now - seconds)})"
    return (
        f"wait for a synchronous standby, {since}: no job is accepted, claimed or ended meanwhile"
    )


def _name(f: PostgresFacts) -> str:
    return f"This is PostgreSQL {f.version // 10_000}.{f.version % 10_000}."


def _hosts(f: PostgresFacts) -> str:
    return ", ".join(f"{name} is {role}" for name, role in f.hosts.items() if role in ROLES)


def _lacking(f: PostgresFacts) -> str:
    more = len(f.lacking) - NAMED_MAX
    return f"{', '.join(f.lacking[:NAMED_MAX])}{f' and {more} more' if more > 0 else ''}"


def _connections(f: PostgresFacts) -> str:
    return (
        f"{f.connections} of {f.connections_max} connections are in use, at most"
        f" {f.workers * CONNECTIONS_OF_A_WORKER} of them by the {f.workers} live workers."
    )


def _more_connections(f: PostgresFacts) -> str:
    return f"Raise {f.limited_by}; one more worker takes up to {CONNECTIONS_OF_A_WORKER}."


def _clock(f: PostgresFacts) -> str:
    apart = f.clock - f.read_at
    way = "ahead of" if apart > 0 else "behind"
    return f"The server's clock is {span(abs(apart))} {way} ours; nothing depends on it."


def _stuck(f: PostgresFacts) -> Iterator[tuple[str, str]]:
    """Yield why a worker may not end the session of a dead one, with what to do."""
    if f.track_activities == "off":
        yield "track_activities is off", "Set track_activities = on."
    if f.borrowed:
        said = f"A setting of the login switches it to the role {f.role}, so if workers use it"
        yield said, "Let workers connect as the role itself."
    if len(f.worker_roles) > 1:
        said = f"Workers connect as several roles ({_some(f.worker_roles)})"
        yield said, "Let all workers of a store connect as one role."


def _some(names: list[str]) -> str:
    told = ", ".join(line(name, 63) for name in names[:NAMED_MAX])
    return f"{told} and others" if len(names) > NAMED_MAX else told


SETTINGS = "postgresql.conf, or the role"
DEAD_ROWS = "tables grow, and claims become slower, most where many tenants take turns"
NEVER_CLEANED = "claims become slower with every job that was ever run"
OWN_ROLE = (
    "Give workers a role that owns nothing: CREATE ROLE worker LOGIN PASSWORD '…'; run"
    " `outlast migrate --grant worker` as the owner, and use it in the workers' URL."
)

_MISLED = {
    "renamed": "look for tables in a schema of another name: theirs was renamed. They fail, or"
    " store jobs in a schema that has that name now",
    "open": "run as their owner, and every role may call them, as after a restore without"
    " privileges: any role can make your workers run jobs",
    "owner": "run as an owner that may not use the tables, since only theirs was changed: enqueues"
    " fail",
}

FINDINGS: Table[PostgresFacts] = (
    Check(OK, "version", True, _name),
    Check(PROBLEM, "standby", lambda f: f.standby,
        "This server is a standby: it takes no writes, so no worker can run here.",
        "Name the primary (for several hosts: ?target_session_attrs=primary)."),
    Check(PROBLEM, "read_only", lambda f: f.read_only and not f.standby,
        "This database is read-only (default_transaction_read_only is on): no job is accepted,"
        " claimed or ended.",
        "Find out who set it: a server may protect itself this way when its disk is full."),
    Each(lambda f: [each for each in f.hosts.items() if each[1] not in ROLES],
        Check(WARNING, "lost_host", True,
            lambda host: f"{host[0]} accepts no session: {line(host[1], 200)}.",
            "Bring it back, or take it out of the URL.")),
    Check(PROBLEM, "hosts", lambda f: [*f.hosts.values()].count(PRIMARY) > 1,
        lambda f: f"Several hosts of the URL take writes: {_hosts(f)}.",
        "Workers on each of them run the same jobs: stop the one that should not be the primary."),
    Check(HINT, "hosts", lambda f: f.hosts and f.attributes == "any",
        lambda f: f"{_hosts(f)}; the URL takes the first that answers, even a standby.",
        "Add ?target_session_attrs=primary."),
    Check(OK, "hosts", lambda f: f.hosts, lambda f: f"{_hosts(f)}."),
    Check(PROBLEM, "replication", lambda f: (f.standby_wait or 0.0) > STANDBY_LATE,
        lambda f: f"Commits {_describe_wait(f.standby_wait or 0.0, f.clock)}.",
        lambda f: f"Bring one of synchronous_standby_names ({line(f.standby_names, 100)}) back, or"
        " take it out of that list; leases do not wait for it."),
    Check(WARNING, "replication",
        lambda f: f.standby_names and f.synchronous_commit in {"local", "off"},
        lambda f: f"synchronous_commit is {f.synchronous_commit}: commits do not wait for the"
        " standbys of synchronous_standby_names, and a failover loses the last jobs.",
        f"Set synchronous_commit = on ({SETTINGS})."),
    Check(OK, "replication", lambda f: f.standby_names,
        lambda f: f"Commits wait for a standby ({line(f.standby_names, 100)})."),
    Check(HINT, "replication", lambda f: f.standbys,
        "Commits do not wait for a standby: a failover loses the last jobs that were accepted.",
        "Set synchronous_standby_names (with Patroni: synchronous_mode)."),
    Each(lambda f: f.idle_slots,
        Check(WARNING, "replication_slots", True,
            lambda name: f"The replication slot {line(name, 63)} is not in use, and dead rows are"
            f" kept for it: {DEAD_ROWS}.",
            lambda name: "Bring its client back, or SELECT"
            f" pg_drop_replication_slot('{line(name, 63)}').")),
    Each(lambda f: f.feedback,
        Check(WARNING, "replication", True,
            lambda name: f"Dead rows are kept for a query on the standby {line(name, 63)}"
            f" (hot_standby_feedback): {DEAD_ROWS}.",
            "End its oldest transaction, or set hot_standby_feedback = off there.")),
    Check(OK, "privileges", lambda f: f.limited_to is not None,
        lambda f: f"The role {f.role} may {f.limited_to}, and is not for workers."),
    Check(WARNING, "privileges", lambda f: f.lacking,
        lambda f: f"As the role {f.role} no worker can start, since it lacks {_lacking(f)}.",
        lambda f: "If workers are to use this role, run as the owner of the tables:"
        f" `outlast migrate --grant {shell_word(f.role)}`."),
    Check(OK, "privileges", True, lambda f: f"The role {f.role} may do all that a worker does."),
    Check(WARNING, "role", lambda f: f.superuser,
        lambda f: f"The role {f.role} is a superuser: if workers use it, any task can read and"
        " change all of the server.", OWN_ROLE),
    Check(HINT, "role", lambda f: f.owner,
        lambda f: f"The role {f.role} owns the tables: if workers use it, any task can change the"
        " tables.", OWN_ROLE),
    Each(lambda f: f.open_schemas,
        Check(WARNING, "open_schema", True,
            lambda name: f"Every role may create in the schema {name} of the search_path: a"
            " function or an operator created there can run as the roles of workers and"
            " clients.",
            lambda name: f"REVOKE CREATE ON SCHEMA {name} FROM PUBLIC, and GRANT it to the"
            " roles that need it.")),
    Check(OK, "open_schema", lambda f: not f.open_schemas,
        "Only named roles may create in the schemas of the search_path."),
    Check(PROBLEM, "fsync", lambda f: f.fsync == "off",
        "fsync is off: a crash of its host can destroy the database.",
        "Set fsync = on (postgresql.conf)."),
    Check(WARNING, "full_page_writes", lambda f: f.full_page_writes == "off",
        "full_page_writes is off: a page that was half written in a crash stays damaged.",
        f"Set full_page_writes = on ({SETTINGS})."),
    Check(WARNING, "synchronous_commit", lambda f: f.synchronous_commit == "off",
        "synchronous_commit is off: a crash of the server loses its last commits, and with them"
        " jobs that were accepted.",
        f"Set synchronous_commit = on ({SETTINGS})."),
    Check(OK, "durability",
        lambda f: "off" not in {f.fsync, f.full_page_writes, f.synchronous_commit},
        "fsync, full_page_writes and synchronous_commit are on."),
    Each(_stuck,
        Check(WARNING, "stuck_sessions", True,
            lambda why: f"{why[0]}: a dead worker's session that waits for its client to read"
            " cannot be ended by the others, and the jobs of that worker wait until the server"
            " drops the connection.",
            lambda why: why[1])),
    Each(lambda f: f.lock_holders,
        Check(PROBLEM, "locks_of_limits", True,
            lambda holder: f"{holder}: limits or counters wait for it.",
            lambda holder: holder.fix)),
    Check(HINT, "strangers", lambda f: f.strangers,
        lambda f: f"Roles without rights on the jobs may connect ({_some(f.strangers)}): they can"
        " hear the names of queues (LISTEN) and take locks that Outlast needs.",
        "REVOKE CONNECT ON DATABASE … FROM PUBLIC; then grant it to the roles that need it."),
    Check(WARNING, "pooler", lambda f: f.pooled,
        "This connection goes through a pooler: no session lock can show that a worker is alive,"
        " and no wake-up arrives unless it pools sessions.",
        "Give workers the server's own address. Until then only a lease shows that a host has died,"
        " and jobs start up to a second late."),
    Check(OK, "pooler", True, "This connection does not go through a pooler."),
    Check(PROBLEM, "connections",
        lambda f: f.connections_max - f.connections < CONNECTIONS_OF_A_WORKER,
        _connections, _more_connections),
    Check(WARNING, "connections", lambda f: f.connections > CROWDED * f.connections_max,
        _connections, _more_connections),
    Check(OK, "connections", True, _connections),
    Check(OK, "clock", True, _clock),
    Each(lambda f: f.unlogged,
        Check(PROBLEM, "unlogged", True,
            lambda name: f"{name} is unlogged: a crash of the server empties it.",
            lambda name: f"ALTER TABLE {name} SET LOGGED.")),
    Check(PROBLEM, "numbers", lambda f: f.behind,
        lambda f: f"Rows have numbers above the next one of {_some(f.behind)}: they were copied"
        " without their server's sequences. New rows fail, or overtake waiting ones.",
        "Run `outlast migrate --after-restore`, or start a worker."),
    Check(WARNING, "many_queues", lambda f: f.lanes > LANES_MAX,
        lambda f: f"Jobs of the last day were in {f.lanes:,} queues, counted for each task"
        f" and priority: above {LANES_MAX:,}, each claim becomes slower.",
        "Use fewer queues. Customers can take turns in one queue: pass their names as `tenant`, and"
        ' give the task fair="tenant".'),
    Each(lambda f: f.misled.items(),
        Check(PROBLEM, "functions", True, lambda it: f"{_some(it[1])} {_MISLED[it[0]]}.",
            "Run `outlast migrate` as their owner, or as a superuser.")),
    Check(WARNING, "collation", lambda f: f.collation is not None,
        lambda f: "The server's library no longer sorts texts as it did when the database was"
        f" created (version {f.collation}): indexes of your own tables may be wrong.",
        "REINDEX DATABASE, then ALTER DATABASE … REFRESH COLLATION VERSION. Outlast's own indexes"
        " sort by bytes."),
    Check(WARNING, "encoding", lambda f: f.encoding != "UTF8",
        lambda f: f"The encoding of this database is {f.encoding}: arguments and names with"
        " characters that it lacks are refused, and reports show those as escapes.",
        "Move Outlast to a database with ENCODING 'UTF8'."),
    Check(PROBLEM, "track_counts", lambda f: f.track_counts == "off",
        "track_counts is off: autovacuum never cleans a table, and claims do not notice that they"
        " read dead entries of an index again and again.",
        "Set track_counts = on (postgresql.conf)."),
    Check(WARNING, "autovacuum", lambda f: f.autovacuum == "off",
        f"autovacuum is off for the whole server: {NEVER_CLEANED}.", "Set autovacuum = on."),
    Check(WARNING, "autovacuum", lambda f: f.not_vacuumed,
        lambda f: f"autovacuum is off for {', '.join(f.not_vacuumed)}: {NEVER_CLEANED}.",
        lambda f: f"ALTER TABLE {f.not_vacuumed[0]} RESET (autovacuum_enabled), and so on."),
    Check(OK, "autovacuum", True, "autovacuum is on."),
    Check(WARNING, "long_transaction", lambda f: (f.oldest_transaction or 0.0) > LONG_TRANSACTION,
        lambda f: "A transaction of this database has been open for"
        f" {span(f.oldest_transaction or 0.0)} ({line(f.oldest_holder or '', 200)}), and dead rows"
        f" are kept for it: {DEAD_ROWS}.",
        "End it (SELECT pg_terminate_backend(…)), unless it is a backup under way;"
        " idle_in_transaction_session_timeout prevents the next one."),
    Check(WARNING, "prepared_transactions",
        lambda f: f.prepared and (f.oldest_prepared or 0.0) > LONG_PREPARED,
        lambda f: f"{f.prepared} prepared transactions wait, the oldest for"
        f" {span(f.oldest_prepared or 0.0)}: they hold their locks, and dead rows are kept for"
        f" them: {DEAD_ROWS}.",
        "Find them in pg_prepared_xacts; COMMIT PREPARED or ROLLBACK PREPARED each."),
    Check(HINT, "two_phase", lambda f: f.two_phase,
        "This server allows prepared transactions, and PostgreSQL refuses to prepare one that has"
        " sent a notification.",
        "If you enqueue in such transactions: outlast.App(…, notify=False)."),
    Check(WARNING, "notify_queue", lambda f: f.notify_queue > NOTIFY_FULL,
        lambda f: f"The queue of notifications is {int(f.notify_queue * 100)}% full; once it is,"
        " commits that notify fail.",
        "A session that listens has been in a transaction for too long: end it."),
)  # fmt: skip
