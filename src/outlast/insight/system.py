"""Read the store itself, for one page: its surroundings, its schema, the doctor's findings."""

from __future__ import annotations

from typing import Any

import msgspec

from outlast.base.clock import Clock
from outlast.insight.doctor.facts import Facts, read_contents
from outlast.insight.doctor.findings import examine
from outlast.insight.doctor.host import in_kubernetes, locks_of
from outlast.store.backend import describe_place
from outlast.store.finding import Finding
from outlast.store.inspector import ReadableStore
from outlast.store.values import Migration


class SystemReport(msgspec.Struct, frozen=True):
    """A store's surroundings. ``place``: its URL without secrets, or its file; ``kind``: the scheme
    of its URL. ``facts``: the facts that the store itself reports, by name."""

    place: str
    kind: str
    store_id: str
    migrations: list[Migration]
    facts: dict[str, object]
    findings: list[Finding]


async def read_system(store: ReadableStore, clock: Clock) -> SystemReport:
    """Read the report, with the findings of all checks that need no application."""
    seen: dict[str, Any] = {"environment": await store.inspector.environment()}
    await read_contents(store, seen)
    facts = Facts(
        place=describe_place(store.url),
        now=clock.wall(),
        locks=locks_of(store.url),
        kubernetes=in_kubernetes(),
        **seen,
    )
    return SystemReport(
        place=facts.place,
        kind=store.url.partition(":")[0],
        store_id=await store.store_id(),
        migrations=await store.migrations(),
        facts=msgspec.to_builtins(facts.environment),
        findings=examine(facts),
    )
