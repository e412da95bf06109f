"""Checks the facts of a PostgreSQL server for the doctor: durability, connections, vacuum."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from outlast.base.text import line, span
from outlast.store.finding import CheckContext, Finding, Level, ok

OLDEST = 140_000
CONNECTIONS_OF_A_WORKER = 5  # exchange and reads 2, heartbeat 1, wake-ups 1, presence 1
LONG_TRANSACTION = 600.0  # seconds
LONG_PREPARED = 60.0
NOTIFY_FULL = 0.5
CROWDED = 0.8
NAMED_MAX = 5


class PostgresFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A PostgreSQL server as this role sees it. Times and ages are in seconds.

    Attributes:
        version: as ``server_version_num``: 140005 is 14.5.
        clock: the server's, in seconds since 1970.
        role: that of this connection; lacking: privileges that a worker needs and it does not
            have; limited_to: the other purposes that it has the privileges for, in words.
        pooled: whether our backend is another than the one that greeted us: a pooler.
        standby: whether it follows another server and takes no writes.
        connections: open ones of clients; connections_max: how many this role could have.
        oldest_transaction: of other sessions of this database, as far as this role may see.
        prepared, oldest_prepared: transactions that wait for their second phase.
        notify_queue: how full the queue of notifications is, 0 to 1.
        not_vacuumed: tables of Outlast that autovacuum is set to leave alone.
        track_activities: whether the server shows what its sessions do; worker_roles: those of the
            sessions that hold workers' presence.
        strangers: roles that may connect and have no rights on the jobs; some, if there are many.
        superuser, owner: whether the role of this connection is one, or owns the tables.
        open_schemas: those of the search_path in which every role may create.
        unlogged: tables of Outlast that a crash empties; encoding: of the database.
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
    owner: bool = False
    open_schemas: list[str] = []
    unlogged: list[str] = []
    encoding: str = "UTF8"
    track_activities: str = "on"
    worker_roles: list[str] = []
    strangers: list[str] = []
    oldest_transaction: float | None = None
    oldest_prepared: float | None = None

    def check(self, context: CheckContext) -> Iterator[Finding]:
        """Yield findings, good and bad."""
        return (one for check in CHECKS for one in check(self, context))


def version(server: PostgresFacts, _context: CheckContext) -> Iterator[Finding]:
    """Whether this server is new enough."""
    name = f"PostgreSQL {server.version // 10_000}.{server.version % 10_000}"
    if server.version < OLDEST:
        mend = f"Outlast is made for {OLDEST // 10_000} and later: upgrade the server."
        yield Finding(level=Level.PROBLEM, name="version", sentence=f"This is {name}.", mend=mend)
    else:
        yield ok("version", f"This is {name}.")


def durability(server: PostgresFacts, _context: CheckContext) -> Iterator[Finding]:
    """Whether a commit survives a crash of the server."""
    settings = (
        ("fsync", server.fsync, Level.PROBLEM, "a crash of its host can destroy the database"),
        ("full_page_writes", server.full_page_writes, Level.WARNING,
         "a page that was half written in a crash stays damaged"),
        ("synchronous_commit", server.synchronous_commit, Level.WARNING,
         "a crash of the server loses the last moment, also of jobs that were accepted"),
    )  # fmt: skip
    bad = [each for each in settings if each[1] == "off"]
    for name, _, level, harm in bad:
        where = "postgresql.conf" if level is not Level.WARNING else "postgresql.conf, or the role"
        mend = f"Set {name} = on ({where})."
        yield Finding(level=level, name=name, sentence=f"{name} is off: {harm}.", mend=mend)
    if not bad:
        yield ok("durability", "fsync, full_page_writes and synchronous_commit are on.")


def unlogged(server: PostgresFacts, _context: CheckContext) -> Iterator[Finding]:
    """Whether a crash would empty some tables."""
    for name in server.unlogged:
        yield Finding(
            level=Level.PROBLEM,
            name="unlogged",
            sentence=f"{name} is unlogged: a crash of the server empties it.",
            mend=f"ALTER TABLE {name} SET LOGGED.",
        )


def encoding(server: PostgresFacts, _context: CheckContext) -> Iterator[Finding]:
    """Whether the database can hold every text."""
    if server.encoding != "UTF8":
        yield Finding(
            level=Level.WARNING,
            name="encoding",
            sentence=f"The encoding of this database is {server.encoding}: arguments, results and"
            " reports with characters that it lacks are refused.",
            mend="Move Outlast to a database with ENCODING 'UTF8'.",
        )


def standby(server: PostgresFacts, _context: CheckContext) -> Iterator[Finding]:
    """Whether the server takes writes."""
    if server.standby:
        yield Finding(
            level=Level.PROBLEM,
            name="standby",
            sentence="This server is a standby: it takes no writes, so no worker can run here.",
            mend="Name the primary (for several hosts: ?target_session_attrs=read-write).",
        )


def privileges(server: PostgresFacts, _context: CheckContext) -> Iterator[Finding]:
    """Whether the role of this command may do what a worker does, or fits another purpose."""
    if server.limited_to is not None:
        told = f"The role {server.role} may {server.limited_to}, and is not for workers."
        yield ok("privileges", told)
    elif server.lacking:
        told = ", ".join(server.lacking[:NAMED_MAX])
        more = len(server.lacking) - NAMED_MAX
        yield Finding(
            level=Level.WARNING,
            name="privileges",
            sentence=f"As the role {server.role} no worker can start, since it lacks"
            f" {told}{f' and {more} more' if more > 0 else ''}.",
            mend="If workers are to use this role, run as the owner of the tables:"
            f" `outlast migrate --grant {server.role}`.",
        )
    else:
        yield ok("privileges", f"The role {server.role} may do all that a worker does.")


def stuck_sessions(server: PostgresFacts, _context: CheckContext) -> Iterator[Finding]:
    """Whether a worker may terminate the session of a dead worker that holds its row."""
    harm = (
        "a dead worker's session that waits for its client to read cannot be ended by the others,"
        " and the jobs of that worker wait until the server gives the connection up"
    )
    if server.track_activities == "off":
        yield Finding(
            level=Level.WARNING,
            name="stuck_sessions",
            sentence=f"track_activities is off: {harm}.",
            mend="Set track_activities = on.",
        )
    if len(server.worker_roles) > 1:
        yield Finding(
            level=Level.WARNING,
            name="stuck_sessions",
            sentence=f"Workers connect as several roles ({_some(server.worker_roles)}): {harm}.",
            mend="Let all workers of a store connect as one role.",
        )


def strangers(server: PostgresFacts, _context: CheckContext) -> Iterator[Finding]:
    """Whether roles may connect that have nothing to do with the jobs."""
    if server.strangers:
        yield Finding(
            level=Level.HINT,
            name="strangers",
            sentence=f"Roles without rights on the jobs may connect ({_some(server.strangers)}):"
            " they can hear the names of queues (LISTEN) and take locks that Outlast needs.",
            mend="REVOKE CONNECT ON DATABASE … FROM PUBLIC; then grant it to those who need it.",
        )


def _some(names: list[str]) -> str:
    told = ", ".join(line(name, 63) for name in names[:NAMED_MAX])
    return f"{told} and others" if len(names) > NAMED_MAX else told


def role(server: PostgresFacts, _context: CheckContext) -> Iterator[Finding]:
    """Whether the role of this command may do more than a worker has to."""
    if server.superuser or server.owner:
        may = "read and change all of the server" if server.superuser else "change the tables"
        what = "is a superuser" if server.superuser else "owns the tables"
        yield Finding(
            level=Level.WARNING if server.superuser else Level.HINT,
            name="role",
            sentence=f"The role {server.role} {what}: if workers use it, any task can {may}.",
            mend="Give workers a role that owns nothing: CREATE ROLE worker LOGIN PASSWORD '…';"
            " run `outlast migrate --grant worker` as the owner, and use it in the workers' URL.",
        )


def open_schema(server: PostgresFacts, _context: CheckContext) -> Iterator[Finding]:
    """Whether unrelated roles may create objects where our names are looked up."""
    for name in server.open_schemas:
        yield Finding(
            level=Level.WARNING,
            name="open_schema",
            sentence=f"Every role may create in the schema {name} of the search_path: a function or"
            " an operator that is put there can run as the roles of workers and clients.",
            mend=f"REVOKE CREATE ON SCHEMA {name} FROM PUBLIC, and GRANT it to those that need it.",
        )
    if not server.open_schemas:
        yield ok("open_schema", "Only named roles may create in the schemas of the search_path.")


def pooler(server: PostgresFacts, _context: CheckContext) -> Iterator[Finding]:
    """Whether a pooler stands between."""
    if server.pooled:
        yield Finding(
            level=Level.WARNING,
            name="pooler",
            sentence="A pooler stands between: no lock of a session can show that a worker lives.",
            mend="Give workers the server's own address; until then a lease notices a dead host.",
        )
    else:
        yield ok("pooler", "No pooler stands between.")


def connections(server: PostgresFacts, context: CheckContext) -> Iterator[Finding]:
    """Check that there are enough connections for workers."""
    left = server.connections_max - server.connections
    workers = context.workers
    said = (
        f"{server.connections} of {server.connections_max} connections are in use, at most"
        f" {workers * CONNECTIONS_OF_A_WORKER} of them by the {workers} live workers."
    )
    if left < CONNECTIONS_OF_A_WORKER or server.connections > CROWDED * server.connections_max:
        level = Level.PROBLEM if left < CONNECTIONS_OF_A_WORKER else Level.WARNING
        mend = f"Raise max_connections; one more worker takes up to {CONNECTIONS_OF_A_WORKER}."
        yield Finding(level=level, name="connections", sentence=said, mend=mend)
    else:
        yield ok("connections", said)


def clock(server: PostgresFacts, context: CheckContext) -> Iterator[Finding]:
    """Report how far the clocks are apart; nothing depends on it."""
    apart = server.clock - (context.now if context.asked_at is None else context.asked_at)
    way = "ahead of" if apart > 0 else "behind"
    yield ok(
        "clock", f"The server's clock is {span(abs(apart))} {way} ours; nothing depends on it."
    )


def vacuum(server: PostgresFacts, _context: CheckContext) -> Iterator[Finding]:
    """Whether dead rows are cleaned away."""
    if server.autovacuum == "off":
        said, mend = "autovacuum is off for the whole server", "Set autovacuum = on."
    elif server.not_vacuumed:
        said = f"autovacuum is off for {', '.join(server.not_vacuumed)}"
        mend = f"ALTER TABLE {server.not_vacuumed[0]} RESET (autovacuum_enabled), and so on."
    else:
        yield ok("autovacuum", "autovacuum is on.")
        return
    sentence = f"{said}: claims become slower with every job that was ever run."
    yield Finding(level=Level.WARNING, name="autovacuum", sentence=sentence, mend=mend)


def transactions(server: PostgresFacts, _context: CheckContext) -> Iterator[Finding]:
    """Whether an open transaction keeps dead rows from being cleaned away."""
    oldest = server.oldest_transaction
    if oldest is not None and oldest > LONG_TRANSACTION:
        yield Finding(
            level=Level.WARNING,
            name="long_transaction",
            sentence=f"A transaction of this database has been open for {span(oldest)}: dead rows"
            " pile up behind it, and claims become slower.",
            mend="Find it in pg_stat_activity by xact_start, and end it;"
            " idle_in_transaction_session_timeout prevents the next one.",
        )


def two_phase(server: PostgresFacts, _context: CheckContext) -> Iterator[Finding]:
    """Whether prepared transactions are left over, or cannot be used with wake-ups."""
    oldest = server.oldest_prepared
    if server.prepared and oldest is not None and oldest > LONG_PREPARED:
        yield Finding(
            level=Level.WARNING,
            name="prepared_transactions",
            sentence=f"{server.prepared} prepared transactions wait, the oldest for {span(oldest)}:"
            " they hold their locks, and dead rows pile up behind them.",
            mend="Find them in pg_prepared_xacts; COMMIT PREPARED or ROLLBACK PREPARED each.",
        )
    if server.two_phase:
        yield Finding(
            level=Level.HINT,
            name="two_phase",
            sentence="This server allows prepared transactions, and PostgreSQL refuses to prepare"
            " one that has sent a notification.",
            mend="If you enqueue in such transactions: outlast.App(…, notify=False).",
        )


def notifications(server: PostgresFacts, _context: CheckContext) -> Iterator[Finding]:
    """Whether a listening session does not read."""
    if server.notify_queue > NOTIFY_FULL:
        yield Finding(
            level=Level.WARNING,
            name="notify_queue",
            sentence=f"The queue of notifications is {int(server.notify_queue * 100)}% full; once"
            " it is, commits that notify fail.",
            mend="A session that listens has been in a transaction for too long: end it.",
        )


CHECKS: tuple[Callable[[PostgresFacts, CheckContext], Iterator[Finding]], ...] = (
    version,
    standby,
    privileges,
    role,
    open_schema,
    durability,
    stuck_sessions,
    strangers,
    pooler,
    connections,
    clock,
    unlogged,
    encoding,
    vacuum,
    transactions,
    two_phase,
    notifications,
)
