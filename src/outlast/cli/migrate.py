"""``outlast migrate``."""

from __future__ import annotations

from typing import Annotated

from outlast.base.clock import SYSTEM
from outlast.base.text import count_of, safe
from outlast.cli.connect import exists, using
from outlast.cli.errors import Failed
from outlast.cli.loop import run_loop
from outlast.cli.options import Url, flag, option
from outlast.errors import UsageError
from outlast.insight.acting import raise_tokens
from outlast.store.backend import describe_place, file_of, open_store, resolve_url
from outlast.store.values import MAY, Migration, Purpose


def migrate(
    check: Annotated[
        bool, flag("--check", "Change nothing; exit 1 if a migration is due.")
    ] = False,
    after_restore: Annotated[
        bool, flag("--after-restore", "Also raise tokens and numbers, as after rows were restored.")
    ] = False,
    grant: Annotated[
        str | None, option("--grant", "ROLE", "Also grant this PostgreSQL role what it needs.")
    ] = None,
    only: Annotated[
        Purpose, option("--only", "worker|enqueue|produce|view", "What the role of --grant is for.")
    ] = Purpose.WORKER,
    events: Annotated[
        bool, flag("--events", "Also let a role other than a worker's send events.")
    ] = False,
    verbose: Annotated[bool, flag("--verbose", "List each privilege that --grant grants.")] = False,
    url: Url = None,
) -> None:
    """Bring the store's schema up to date.

    If there is no store, it is created. This is safe while workers run: migrate first, then restart
    them one by one. A store that serves only newer programs is refused, with exit code 3. After a
    restore of rows only, into tables of PostgreSQL that stayed, and after a move by logical
    replication or COPY, run it with --after-restore before any program starts: attempts that began
    before may still run somewhere, and no token or id may be issued twice. After any other restore
    tokens jump by themselves.

    Run it as the owner of the tables, and workers as a role with only the privileges that they
    need: --grant ROLE grants these; repeat it after each upgrade. With --only enqueue it is enough
    to enqueue jobs and to read them and their results; with --only produce, to call the SQL
    function outlast_enqueue_v1, and nothing else; with --only view, to read all and change nothing.
    A job may wait for an event as a person's approval, so a role of --only enqueue or produce may
    send events only with --events.

    Examples:
        outlast migrate --url postgresql://app@db/shop
        outlast migrate --check
        outlast migrate --after-restore
        outlast migrate --url postgresql://owner@db/shop --grant shop_worker
        outlast migrate --url postgresql://owner@db/shop --grant shop_web --only enqueue
    """
    if check and (after_restore or grant is not None):
        other = "--after-restore" if after_restore else "--grant"
        raise UsageError(f"--check changes nothing, {other} does: choose one")
    if (only is not Purpose.WORKER or events or verbose) and grant is None:
        raise UsageError("--only, --events and --verbose belong to --grant ROLE: give that, too")
    if events and only is Purpose.VIEW:
        raise UsageError("--events lets a role send events, --only view does not: choose one")
    address = resolve_url(url)
    if check:
        run_loop(lambda: _check(address))
        return
    made = not exists(address)
    if made and after_restore:
        raise Failed(f"there is no database file {describe_place(address)}: restore it first")

    async def work() -> None:
        async with using(open_store(address)) as store:
            applied = await store.migrate()
            origin = " (a new file)" if made and file_of(address) else ""
            did = f": applied {_named(applied)}" if applied else " is up to date: nothing to do"
            print(f"{describe_place(address)}{origin}{did}")
            if after_restore:
                print(f"tokens go on above {await raise_tokens(store, SYSTEM.wall())}")
            if grant is not None:
                granted = await store.grant(grant, only, events=events)
                for each in granted if verbose else []:
                    print(f"granted to {safe(grant)}: {each}")
                new = count_of(len(granted), "new privilege") if granted else "no new privileges"
                may = f"{MAY[only]} and send events" if events else MAY[only]
                print(f"{safe(grant)} may {may} ({new})")

    run_loop(work)


async def _check(url: str) -> None:
    async with using(open_store(url)) as store:
        steps = await store.migrations()
        missing = [step for step in steps if step.applied_at is None]
        if not missing:
            await store.open()  # refuses a store that this program cannot work with
    if missing:
        raise Failed(f"{describe_place(url)} lacks {_named(missing)}: run `outlast migrate`")
    print(f"{describe_place(url)} is up to date ({count_of(len(steps), 'step')})")


def _named(steps: list[Migration]) -> str:
    return ", ".join(f"{step.number:04} {step.name}" for step in steps)
