"""The kinds of stores: which one a URL names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from outlast.errors import ConfigError
from outlast.store import backend
from outlast.store.backend import backend_of, file_of, resolve_url
from outlast.store.postgres.backend import POSTGRES
from outlast.store.sqlite.backend import SQLITE
from tests.cases import each_case

KINDS = backend._backends


@each_case(
    ("url", "kind"),
    [
        ("sqlite:///jobs.db", SQLITE),
        ("postgresql://h/d", POSTGRES),
        ("postgres://h/d", POSTGRES),
    ],
)
def test_the_scheme_says_which_store_it_is(url, kind):
    assert backend_of(url) is kind
    assert resolve_url(url) == url


@each_case("url", ["", "sqlite", "jobs.db", "mysql://h/d", "SQLITE:///x", ":", "://"])
def test_another_url_is_told_how_to_write_one(url):
    for read in (backend_of, resolve_url):
        with pytest.raises(ConfigError, match="write sqlite:///") as raised:
            read(url)
        for each in KINDS:
            assert all(form in str(raised.value) for form in each.forms)


def test_no_two_stores_have_a_scheme():
    schemes = [scheme for each in KINDS for scheme in each.schemes]
    assert sorted(schemes) == sorted(set(schemes))


def test_a_file_has_a_path_and_a_server_has_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert file_of("sqlite:///jobs.db") == tmp_path / "jobs.db"
    assert file_of("postgresql://h/d") is None


def test_a_file_may_have_any_character_and_a_server_may_not():
    assert resolve_url("sqlite:///a b@c") == "sqlite:///a b@c"
    with pytest.raises(ConfigError, match="percent-encode"):
        resolve_url("postgresql://me:a@b@host/db")


USED = """
import asyncio, sys
import outlast
from outlast.cli import main

app = outlast.App(sys.argv[1])

@app.task
async def double(number: int) -> int:
    return 2 * number

async def used() -> int:
    async with app.worker():
        return await (await double.enqueue(21)).result(timeout=60)

assert asyncio.run(used()) == 42
main(["doctor", "--url", sys.argv[1]])
print(sorted(name for name in sys.modules if name.split(".")[0] == "asyncpg"
    or name.startswith("outlast.store.postgres.")), file=sys.stderr)
"""


def test_who_uses_sqlite_loads_nothing_of_postgres_but_its_entry(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    done = subprocess.run(
        [sys.executable, "-c", USED, url], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stderr.splitlines()[-1] == "['outlast.store.postgres.backend']"
