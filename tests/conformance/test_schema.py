"""The schema is made once, migrated once, and refused where this program cannot work with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from outlast.errors import SchemaMismatch
from outlast.store import migrations, open_store
from outlast.store.migrations import Step
from outlast.store.protocol import Store
from outlast.store.values import Migration
from tests.conformance.kit import enqueued

load_shipped = migrations.load


@pytest.fixture
def store_url(bare_store_url: str) -> str:
    """A place without a store: the test makes it."""
    return bare_store_url


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """The program's own steps; a test may add to the list or change what is in it."""
    extra: list[Step] = []

    def load(dialect: str) -> list[Step]:
        steps = load_shipped(dialect)
        replaced = {step.number: step for step in extra}
        numbers = sorted({step.number for step in steps} | set(replaced))
        return [replaced.get(number) or steps[number - 1] for number in numbers]

    for module in (
        "sqlite.schema",
        "sqlite.store",
        "sqlite.readable",
        "postgres.schema",
        "postgres.store",
        "postgres.readable",
        "migrations",
    ):
        monkeypatch.setattr(f"outlast.store.{module}.load", load, raising=False)
    return extra


def dialect(store: Store) -> str:
    """The folder of the store's SQL."""
    return "sqlite" if store.url.startswith("sqlite:") else "postgres"


def next_step(
    store: Store, *, compatible_from: str = "0.1", name: str = "more", after: int = 0
) -> Step:
    """A step that a newer program brings, after as many others of its own."""
    number = len(load_shipped(dialect(store))) + after + 1
    file_name = f"migration_{number:04}_{name}.sql"
    text = f"-- compatible_from: {compatible_from}\nCREATE TABLE outlast_{name} (id INTEGER);\n"
    return migrations.step_of(file_name, text)


@asynccontextmanager
async def program(url: str) -> AsyncIterator[Store]:
    """Return the store as a program that starts now sees it, not opened."""
    store = open_store(url)
    try:
        yield store
    finally:
        await store.close()


async def start(url: str) -> None:
    """Open the store as a program that starts now."""
    async with program(url) as store:
        await store.open()


async def migrate(url: str) -> list[Migration]:
    """`outlast migrate` of a program that starts now."""
    async with program(url) as store:
        return await store.migrate()


async def test_a_fresh_store_has_all_steps_and_an_id(store: Store) -> None:
    steps = await store.migrations()
    assert [step.number for step in steps] == list(range(1, len(steps) + 1))
    assert all(step.applied_at is not None for step in steps)
    assert len(await store.store_id()) >= 32


async def test_migrating_twice_does_nothing(store: Store) -> None:
    await enqueued(store)
    before = await store.migrations()
    identity = await store.store_id()
    assert await store.migrate() == []
    assert await store.migrations() == before
    assert await store.store_id() == identity


async def test_all_programs_see_the_same_id(store: Store, other_store: Store) -> None:
    assert await store.store_id() == await other_store.store_id()


async def test_listing_the_steps_makes_nothing(store_url: str) -> None:
    store = open_store(store_url)
    try:
        first = await store.migrations()
        second = await store.migrations()
    finally:
        await store.close()
    assert first == second
    assert {step.applied_at for step in first} == {None}


async def test_concurrent_programs_migrate_once(store_url: str) -> None:
    stores = [open_store(store_url) for _ in range(4)]
    try:
        applied = await asyncio.gather(*[store.migrate() for store in stores])
        numbers = sorted(step.number for steps in applied for step in steps)
        assert numbers == [step.number for step in await stores[0].migrations()]
        assert len({await store.store_id() for store in stores}) == 1
    finally:
        for store in stores:
            await store.close()


async def test_concurrent_programs_open_a_fresh_store(store_url: str) -> None:
    stores = [open_store(store_url) for _ in range(4)]
    try:
        await asyncio.gather(*[store.open() for store in stores])
        assert len({await store.store_id() for store in stores}) == 1
    finally:
        for store in stores:
            await store.close()


async def test_a_pending_step_is_named_and_migrate_applies_it(
    store: Store, shipped: list[Step]
) -> None:
    step = next_step(store)
    shipped.append(step)
    with pytest.raises(SchemaMismatch, match=r"more.*outlast migrate"):
        await start(store.url)
    async with program(store.url) as newer:
        assert (await newer.migrations())[-1].applied_at is None
        (applied,) = await newer.migrate()
        assert (await newer.migrations())[-1].applied_at is not None
    assert (applied.number, applied.name) == (step.number, "more")
    await start(store.url)


async def test_a_newer_schema_that_still_serves_this_program_is_used(
    store: Store, shipped: list[Step]
) -> None:
    shipped.append(next_step(store))
    await migrate(store.url)
    shipped.clear()
    await start(store.url)
    assert await migrate(store.url) == []
    assert (await store.migrations())[-1].name == "more"
    assert len(await enqueued(store)) == 1


async def test_a_newer_schema_that_does_not_serve_this_program_is_refused(
    store: Store, shipped: list[Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped.append(next_step(store, compatible_from="0.2"))
    with monkeypatch.context() as newer:
        newer.setattr(migrations, "PROGRAM_VERSION", "0.2")
        await migrate(store.url)
    shipped.clear()
    for attempt in (start, migrate):
        with pytest.raises(SchemaMismatch, match="newer Outlast"):
            await attempt(store.url)


async def test_a_changed_step_is_refused_and_nothing_is_applied(
    store: Store, shipped: list[Step]
) -> None:
    first = load_shipped(dialect(store))[0]
    changed = migrations.step_of(f"migration_0001_{first.name}.sql", first.sql + "-- changed\n")
    shipped += [changed, next_step(store)]
    for attempt in (start, migrate):
        with pytest.raises(SchemaMismatch, match="another build"):
            await attempt(store.url)
    shipped.clear()
    await start(store.url)
    assert {step.name for step in await store.migrations()} >= {first.name}
    assert "more" not in {step.name for step in await store.migrations()}


async def test_a_store_that_was_made_in_other_steps_is_refused_and_left_as_it_is(
    store_url: str, shipped: list[Step]
) -> None:
    async with program(store_url) as ours:
        tables = load_shipped(dialect(ours))[0].sql
        core = migrations.step_of("migration_0001_core.sql", tables + "-- functions follow\n")
        others = [core, next_step(ours, name="ends"), next_step(ours, name="exchange", after=1)]
        shipped += others
        made = await migrate(store_url)
        shipped.clear()
        for attempt in (start, migrate):
            with pytest.raises(SchemaMismatch, match=r"0001 \(core\).*another build"):
                await attempt(store_url)
        left = await ours.migrations()
    assert [step.name for step in made] == [step.name for step in others]
    assert [(step.number, step.applied_at) for step in left] == [
        (step.number, step.applied_at) for step in made
    ]
