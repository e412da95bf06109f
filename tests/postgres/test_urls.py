"""What a URL asks for is what the session has, or an error that says what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.pgbouncer import PgBouncerServer
from harness.stores import opened
from outlast.errors import ConfigError, StoreUnavailable
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import job

SHOP = "options=-csearch_path%3Dshop"
DROPPING = {"ignore_startup_parameters": "extra_float_digits, options, search_path"}


async def tables(url: str) -> list[str]:
    """Return the schemas that have our tables."""
    async with raw(url) as server:
        found = await server.rows(
            "SELECT schemaname FROM pg_tables WHERE tablename = 'outlast_jobs'"
        )
    return sorted(name for (name,) in found)


@pytest.fixture
async def shop_url(bare_pg_url: str) -> str:
    """A database with an empty schema."""
    async with raw(bare_pg_url) as server:
        await server.rows("CREATE SCHEMA shop")
    return bare_pg_url


@pytest.mark.parametrize("asked", [SHOP, "search_path=shop"])
@pytest.mark.pgbouncer
@pytest.mark.usefixtures("pgbouncer")
async def test_a_schema_that_a_pooler_drops_is_an_error(shop_url: str, asked: str) -> None:
    async with opened(f"{shop_url}?{asked}"):
        assert await tables(shop_url) == ["shop"]
    for mode in ("transaction", "session"):
        with PgBouncerServer(shop_url, mode, DROPPING) as pooler:
            url = f"{pooler.through(shop_url)}?{asked}"
            with pytest.raises(ConfigError, match=r"asks for search_path = shop, .*ALTER ROLE"):
                async with opened(url):
                    pass
            assert await tables(shop_url) == ["shop"]
    async with raw(shop_url) as server:
        await server.rows(f"ALTER DATABASE {shop_url.rpartition('/')[2]} SET search_path = shop")
    with PgBouncerServer(shop_url, "transaction", DROPPING) as pooler:
        async with opened(f"{pooler.through(shop_url)}?{asked}") as store:
            await store.enqueue([job()])


@pytest.mark.pgbouncer
async def test_a_pooler_that_refuses_a_setting_is_an_error_with_advice(
    shop_url: str, pgbouncer: PgBouncerServer
) -> None:
    with pytest.raises(ConfigError, match=r"unsupported startup parameter: options.*ALTER ROLE"):
        async with opened(f"{pgbouncer.through(shop_url)}?{SHOP}"):
            pass


async def test_settings_that_are_ours_may_differ_from_the_url(pg_url: str) -> None:
    async with opened(f"{pg_url}?options=-cstatement_timeout%3D5s%20-cjit%3Don"):
        pass


async def test_a_setting_for_the_start_of_a_session_is_compared(pg_url: str) -> None:
    asked = "options=-clog_connections%3Don%20-cwork_mem%3D65536kB%20-csearch_path%3Dpublic"
    async with opened(f"{pg_url}?{asked}", pooler=True) as store:
        await store.enqueue([job()])


@pytest.mark.parametrize("asked", ["supa=base-pooler", "fsync=off", "geqo=perhaps"])
async def test_a_setting_that_the_server_refuses_is_no_outage(pg_url: str, asked: str) -> None:
    with pytest.raises(ConfigError, match=rf"{asked.partition('=')[0]}.*leave it out"):
        async with opened(f"{pg_url}?{asked}"):
            pass


async def test_a_service_or_the_environment_names_the_database(
    pg_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, _, database = pg_url.rpartition("/")
    login, _, port = place.rpartition(":")
    user = login.removeprefix("postgresql://").partition("@")[0]
    (tmp_path / "services").write_text(
        f"[prod]\nhost=127.0.0.1\nport={port}\nuser={user}\ndbname={database}\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    async with opened(pg_url) as store:
        here = await store.store_id()
    monkeypatch.setenv("PGDATABASE", database)
    for url in (f"{place}/", place):
        async with opened(url) as store:
            assert await store.store_id() == here
    monkeypatch.setenv("PGDATABASE", "another")
    for url in ("postgresql:///?service=prod", "postgresql://?service=prod"):
        async with opened(url) as store:
            assert await store.store_id() == here


async def test_a_certificate_that_is_not_there_is_named(pg_url: str) -> None:
    for name in ("sslrootcert", "sslcert", "sslcrl"):
        with pytest.raises(StoreUnavailable, match=r"'/nowhere/a\.pem'; correct the path"):
            async with opened(f"{pg_url}?sslmode=verify-full&{name}=/nowhere/a.pem"):
                pass


@pytest.mark.parametrize("asked", ["sslmode=verify-full&sslrootcert={}", "sslcert={}"])
async def test_a_file_that_is_no_certificate_is_an_error(
    pg_url: str, tmp_path: Path, asked: str
) -> None:
    (tmp_path / "a.pem").write_text("no certificate")
    with pytest.raises(StoreUnavailable, match=r"certificate|SSL"):
        async with opened(f"{pg_url}?{asked.format(tmp_path / 'a.pem')}"):
            pass
