"""The functions of the schema are those of the files; a file that is edited later is noticed."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from outlast.errors import SchemaMismatch
from outlast.store import migrations
from outlast.store.postgres import schema
from outlast.store.postgres.exchange import AskedClaim
from outlast.store.postgres.store import PostgresStore

FOLDER = Path(str(resources.files("outlast.store").joinpath("postgres", "sql")))
IN_THE_DATABASE = """SELECT p.proname, p.prosrc FROM pg_proc p
                     WHERE p.pronamespace = 'public'::regnamespace"""


async def test_the_functions_of_the_schema_are_those_of_the_files(session: Any) -> None:
    files = {file.stem: file.read_text() for file in FOLDER.glob("functions/*.sql")}
    rows = await session.fetch(IN_THE_DATABASE)
    assert sorted(row["proname"] for row in rows) == sorted(files)
    other = [row["proname"] for row in rows if f"$${row['prosrc']}$$" not in files[row["proname"]]]
    assert other == []


async def test_a_claim_is_asked_for_in_the_order_of_the_fields_of_its_type(session: Any) -> None:
    """The call gives them one after the other, by their order alone."""
    of_type = """SELECT attname FROM pg_attribute
                 WHERE attrelid = 'outlast_claim_request_v1'::regclass ORDER BY attnum"""
    assert [row["attname"] for row in await session.fetch(of_type)] == [*AskedClaim._fields]


@pytest.mark.parametrize("edit", ["-- edited\n", "SELECT 1;\n"])
async def test_a_function_that_was_edited_later_is_refused_and_nothing_is_changed(
    edit: str, pg_url: str, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited = shutil.copytree(FOLDER, tmp_path / "sql")
    with (edited / "functions" / "outlast_end_v1.sql").open("a") as file:
        file.write(edit)
    before = await session.fetch(IN_THE_DATABASE)
    with monkeypatch.context() as later:
        later.setattr(schema, "load", lambda _: migrations.read(edited))
        store = PostgresStore(pg_url)
        for call in (store.open, store.migrate):
            with pytest.raises(SchemaMismatch, match=r"migration 0001 .* another build"):
                await call()
        await store.close()
    assert await session.fetch(IN_THE_DATABASE) == before
    unchanged = PostgresStore(pg_url)
    await unchanged.open()
    await unchanged.close()
