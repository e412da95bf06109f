"""Makes and migrates the schema on PostgreSQL, and refuses one that does not fit.

Each step runs in a separate transaction, under an advisory lock that admits one migrator; the next
one reads again which steps are applied. So any number of programs may start at once. A server that
refuses such locks, LISTEN or unlogged tables gets no schema.

A step that changes a table waits only briefly for its lock, since all statements on the table queue
behind it, and is tried again later. An index of a table with rows is built CONCURRENTLY, by a
session beside the transaction, which has read no table by then.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

from outlast.base.clock import SYSTEM
from outlast.errors import ConfigError, NotPermitted, SchemaMismatch, StoreUnavailable, text_of
from outlast.store.migrations import (
    Applied,
    Step,
    check_history,
    check_made,
    check_noted,
    check_same,
    check_usable,
    known,
    load,
    pending,
)
from outlast.store.postgres.connection import Transaction
from outlast.store.postgres.errors import TROUBLE, LockHeld, is_refusal
from outlast.store.postgres.pool import Verbs
from outlast.store.statements import statements
from outlast.store.values import Migration

_SQL = statements("postgres", "migrate")

_ADVICE = (
    "run `outlast migrate` as a role that may create tables; if they are there, this role does not"
    " see them: their owner lets it by `outlast migrate --grant ROLE`"
)
_LOCKED = (
    "PostgreSQL: another session holds the lock that migrations take ({}). Wait for it if it is one"
    " of Outlast that migrates; else end it (SELECT pg_terminate_backend(PROCESS)), and keep a role"
    " that has no business here from this database (REVOKE CONNECT)"
)
_POOLED = (
    "migration {:04} {} builds an index while others write, which a pooler does not allow: run"
    " `outlast migrate` with a URL that leads to PostgreSQL itself"
)
# what a store needs of its server, by the statements of migrate.sql that try it
_NEEDS = {
    "try_unlogged": "unlogged tables",
    "try_locks": "advisory locks",
    "try_notify": "NOTIFY",
    "try_listen": "LISTEN",
}
_FUNCTION = re.compile(r"\n(?:(CREATE)(?: OR REPLACE)?|DROP) FUNCTION (?:IF EXISTS )?(\w+)")
NAMED_MAX = 8  # functions or privileges named in an error
TURN_SECONDS = 0.05  # between two tries to be the one migrator
LOCK_SECONDS = 2.0  # that one try of a step waits for a lock, and others behind it
PAUSE_SECONDS = 0.5  # between two tries of a step: those others get their turn
STEP_SECONDS = 86_400.0  # for one step: it may have to build an index of a large table
_AS_MADE = "functions as they were made"
_NOT_ALLOWED = (
    "PostgreSQL: this role may not make or change the tables. If they are there, migrate as their"
    " owner; in a new database its owner has to migrate, or to GRANT CREATE ON SCHEMA public (or"
    " another) TO this role"
)
_NOT_OWNED = (
    "functions of Outlast are not as they were made (`outlast doctor` names them): run `outlast"
    " migrate` as their owner, or as a superuser"
)
_SESSION = statements("postgres", "session")


class PostgresSchema(Verbs):
    """The verbs of ``PostgresStore`` about the schema of its database (and search_path)."""

    @cached_property
    def _steps(self) -> Sequence[Step]:
        return load("postgres")

    async def ensure(self, *, make: bool = True) -> None:
        """Check the schema; make it if there is no table of Outlast, or raise SchemaMismatch. A
        program that enqueues then does so in this session, which keeps plans."""
        options = self._connections.options
        keeps_plans = not (options.read_only or options.reserved)
        async with self._connections.use(keeps_plans=keeps_plans) as connection:
            applied = await self._applied(connection)
        if not make:
            check_made(self._connections.url, applied)
            check_same(applied, self._connections.options.only)
        if not applied:
            await self._make()
            return
        check_usable(self._steps, applied)

    async def migrate(self) -> list[Migration]:
        """Raises StoreUnavailable if a step cannot have its locks in time; the steps before it stay
        applied."""
        done: list[Migration] = []
        try:
            while (step := await self._apply_next()) is not None:
                done.append(step)
        except NotPermitted as error:
            said = text_of(error.__cause__ or error)
            raise NotPermitted(f"{_NOT_ALLOWED} ({said})") from error.__cause__
        async with self._connections.use(kind=Transaction.COMMITTED) as connection:
            misled = await connection.fetch(_SQL["misled"])
            for each in misled:
                await connection.execute(each["statement"])
            # PostgreSQL only warns if this role has no right to revoke
            if misled and await connection.fetch(_SQL["misled"]):
                raise NotPermitted(_NOT_OWNED)
        return [*done, Migration(0, _AS_MADE, SYSTEM.wall())] if misled else done

    async def migrations(self) -> list[Migration]:
        async with self._connections.use() as connection:
            steps = known(self._steps, await self._applied(connection))
            if await connection.fetch(_SQL["misled"]):
                steps.append(Migration(0, _AS_MADE, None))
            return steps

    async def store_id(self) -> str:
        async with self._connections.use() as connection:
            rows = await connection.fetch(_SQL["store_id"])
        if not rows:
            raise SchemaMismatch("the schema has no id: run `outlast migrate`")
        return str(rows[0][0])

    async def _make(self) -> None:
        try:
            await self.migrate()
        except (SchemaMismatch, NotPermitted) as error:
            why = text_of(error.__cause__ or error)  # the server's own words: the advice is here
            raise SchemaMismatch(
                f"there is no schema of Outlast here: {_ADVICE} ({why})"
            ) from error

    async def _apply_next(self) -> Migration | None:
        give_up_at = SYSTEM.boot() + self._connections.options.statement_timeout
        while True:
            try:
                return await self._connections.run(self._next_step, kind=Transaction.COMMITTED)
            except LockHeld:
                if SYSTEM.boot() >= give_up_at:
                    raise
            await SYSTEM.sleep(PAUSE_SECONDS)

    async def _take_turn(self, connection: Any) -> None:
        """Wait for other migrators; StoreUnavailable names one that takes too long."""
        give_up_at = SYSTEM.boot() + self._connections.options.statement_timeout
        while not await connection.fetchval(_SQL["lock"]):
            if SYSTEM.boot() >= give_up_at:
                holders = await connection.fetch(_SQL["lock_holders"])
                raise StoreUnavailable(_LOCKED.format("; ".join(map(_holder, holders))))
            await SYSTEM.sleep(TURN_SECONDS)

    async def _next_step(self, connection: Any) -> Migration | None:
        patience = min(LOCK_SECONDS, self._connections.options.statement_timeout)
        await connection.execute(_SQL["patient"], str(int(patience * 1000)))
        if not await self._applied(connection):
            await _check_server(connection)
        await self._take_turn(connection)
        applied = await self._applied(connection)
        check_history(self._steps, applied)
        steps = pending(self._steps, applied)
        if not steps:
            return None
        step = steps[0]
        await self._run(connection, step)
        applied_at = await connection.fetchval(
            _SQL["note"], step.number, step.name, step.checksum, step.compatible_from
        )
        return Migration(step.number, step.name, applied_at)

    async def _applied(self, connection: Any) -> list[Applied]:
        # the server looks for strangers while this process reads its files
        _, names = await asyncio.gather(refuse_strangers(connection), self._functions())
        tables = (await connection.fetch(_SQL["tables"], list(names)))[0]
        applied = []
        if tables["schema_table"]:
            applied = [Applied(*row) for row in await connection.fetch(_SQL["applied"])]
        check_noted(applied, has_jobs=tables["jobs_table"])
        done = {row.number for row in applied}
        lost = [name for name in tables["lost"] if names[name] in done]
        if lost and max(done) <= len(self._steps):  # a later program may have dropped them
            some = f"{', '.join(lost[:NAMED_MAX])}{' and others' if lost[NAMED_MAX:] else ''}"
            raise SchemaMismatch(f"the schema has lost the functions {some}: restore a backup")
        return applied

    async def _functions(self) -> dict[str, int]:
        return _functions_of(tuple(self._steps))

    async def _run(self, connection: Any, step: Step) -> None:
        if step.index is None or await _has_no_jobs(connection):
            at_once = step.sql if step.index is None else step.sql.replace(" CONCURRENTLY", "")
            await connection.execute(at_once, timeout=STEP_SECONDS)
        elif connection.is_pooled:
            raise SchemaMismatch(_POOLED.format(step.number, step.name))
        else:
            await self._build(step.index, step.sql)

    async def _build(self, index: str, text: str) -> None:
        """Build an index beside the transaction; drop an invalid one of an earlier try."""
        session = await self._connections.connect(keeps_plans=False)
        try:
            await session.execute(_SQL["unlimited"])
            await session.execute(
                f"DROP INDEX CONCURRENTLY IF EXISTS {index}", timeout=STEP_SECONDS
            )
            await session.execute(text, timeout=STEP_SECONDS)
        finally:
            session.terminate()


@cache
def _functions_of(steps: tuple[Step, ...]) -> dict[str, int]:
    """Return the functions that these steps leave, each with the number of the step."""
    names: dict[str, int] = {}
    for step in steps:
        for made, name in _FUNCTION.findall(step.sql):
            names.pop(name, None)
            names |= {name: step.number} if made else {}
    return names


async def _has_no_jobs(connection: Any) -> bool:
    """Close the driver's last statement, whose snapshot the build of an index would wait for."""
    answer = await connection.fetchval(_SQL["has_no_jobs"])
    await connection.execute("SELECT")
    return bool(answer)


async def _check_server(connection: Any) -> None:
    """Raise ConfigError if the server refuses what Outlast needs of it. The tries are undone."""
    await connection.execute("SAVEPOINT outlast_tried")
    for name, what in _NEEDS.items():
        try:
            await connection.execute(_SQL[name])
        except TROUBLE as error:
            if not is_refusal(error):
                raise
            is_raised = getattr(error, "sqlstate", None) == "P0001"
            cure = "disable its event trigger" if is_raised else "name another server"
            raise ConfigError(
                f"PostgreSQL: this server refuses {what}, and Outlast needs"
                f" {', '.join(_NEEDS.values())} ({text_of(error)}): {cure}"
            ) from error
    await connection.execute("ROLLBACK TO outlast_tried")


def _holder(row: Any) -> str:
    since = "" if row["seconds"] is None else f", connected {row['seconds']:.0f} s ago"
    return (
        f"process {row['pid']} of the role {row['role']!r}, application {row['application']!r}"
        f"{since}"
    )


async def refuse_strangers(connection: Any) -> None:
    """Raise SchemaMismatch for an object of an untrusted role that could run as this one
    (``strangers`` of session.sql). That there is none takes one trip."""
    if await connection.execute(_SESSION["strangers"]) == "SELECT 0":
        return
    for found in await connection.fetch(_SESSION["strangers"]):
        more = f" (and so do {found['number'] - 1} more objects)" if found["number"] > 1 else ""
        raise SchemaMismatch(
            f"{found['what']} belongs to the role {found['owner']}{more}, which has no right of its"
            f" own to create objects in the schema {found['schema']}, and could make your role run"
            f" its code. If you trust {found['owner']}: {found['trusts']}. If not:"
            f" {found['removes']}, and REVOKE CREATE ON SCHEMA {found['schema']} FROM PUBLIC,"
            " or use a schema of your own"
        )
