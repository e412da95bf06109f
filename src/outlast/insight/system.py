"""Read the store itself, for one page: its surroundings, its schema, the doctor's findings."""

from __future__ import annotations

import msgspec

from outlast.base.clock import Clock
from outlast.base.credentials import redact
from outlast.insight.doctor import Exposure, Facts, examine, in_kubernetes, locks_of
from outlast.insight.overview import read_overview
from outlast.store.backend import file_of
from outlast.store.finding import Finding
from outlast.store.protocol import Store
from outlast.store.values import Migration

SCHEDULES_LOOKED_AT = 500  # by name


class SystemReport(msgspec.Struct, frozen=True):
    """A store's surroundings. ``place``: its URL without secrets, or its file; ``kind``: the scheme
    of its URL. ``facts``: the facts that the store itself reports, by name."""

    place: str
    kind: str
    store_id: str
    migrations: list[Migration]
    facts: dict[str, object]
    findings: list[Finding]


async def read_system(store: Store, clock: Clock) -> SystemReport:
    """Read the report, with the findings of all checks that need no application."""
    asked_at = clock.wall()
    environment = await store.inspector.environment()
    seen = await read_overview(store)
    facts = Facts(
        place=describe_place(store.url),
        now=clock.wall(),
        asked_at=asked_at,
        locks=locks_of(store.url),
        environment=environment,
        workers=list(seen.workers),
        held=await store.inspector.held(),
        pauses=list(seen.pauses),
        statistics=seen.statistics,
        schedules=await store.inspector.schedules(SCHEDULES_LOOKED_AT),
        exposure=Exposure(),
        kubernetes=in_kubernetes(),
    )
    return SystemReport(
        place=facts.place,
        kind=store.url.partition(":")[0],
        store_id=await store.store_id(),
        migrations=await store.migrations(),
        facts=msgspec.to_builtins(environment),
        findings=examine(facts),
    )


def describe_place(url: str) -> str:
    """Return where the store is: the file's absolute path, or the URL without secrets."""
    file = file_of(url)
    return redact(url) if file is None else str(file)
