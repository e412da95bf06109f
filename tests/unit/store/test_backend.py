"""The kinds of stores: which one a URL names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import outlast
from outlast.errors import ConfigError
from outlast.store import backend
from outlast.store.backend import backend_of, file_of, open_store, resolve_url
from outlast.store.postgres.backend import POSTGRES
from outlast.store.sqlite.backend import SQLITE
from outlast.wakeup import kinds
from tests.cases import each_case

KINDS = backend._backends


@each_case(
    ("url", "kind"),
    [
        ("sqlite:////var/jobs.db", SQLITE),
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


def test_a_file_may_have_any_character_and_a_server_may_not(tmp_path):
    assert resolve_url(f"sqlite:///{tmp_path}/a b@c") == f"sqlite:///{tmp_path}/a%20b%40c"
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


ENDS = ("\n", "\r", "\r\n", " ", "\t")


@each_case("end", ENDS)
@each_case("url", ["sqlite:///{}/jobs.db", "postgresql://h/d", "postgresql://h/d?sslmode=require"])
def test_white_space_around_a_url_is_refused(tmp_path, monkeypatch, url, end):
    """A line break of `echo` or of a file with CRLF: SQLite would make a file of that name."""
    url = url.format(tmp_path)
    for given in (f"{url}{end}", f"{end}{url}"):
        monkeypatch.delenv("OUTLAST_URL", raising=False)
        for read in (resolve_url, outlast.App, open_store, file_of):
            with pytest.raises(ConfigError, match=r"begins or ends with a line break or a blank"):
                read(given)
        monkeypatch.setenv("OUTLAST_URL", given)
        for find in (lambda: resolve_url(None), lambda: outlast.App().url):
            with pytest.raises(ConfigError, match=r"^\$OUTLAST_URL: .* begins or ends with"):
                find()
    assert list(tmp_path.iterdir()) == []


def test_a_blank_in_a_files_name_is_kept(tmp_path):
    assert file_of(f"sqlite:///{tmp_path}/a b%20") == tmp_path / "a b "


@each_case("end", ENDS)
def test_white_space_around_a_messengers_url_is_refused(end):
    with pytest.raises(ConfigError, match="begins or ends with"):
        kinds.parse(f"nats://h{end}")
