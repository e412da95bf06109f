"""What a URL of PostgreSQL asks for: libpq's parameters, services, settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg import pq

from outlast.errors import ConfigError
from outlast.store.backend import open_store
from outlast.store.postgres.route import read_sslmode
from outlast.store.postgres.url import KNOWN, LEFT_OUT, REFUSED, TAKEN, read_url
from tests.cases import each_case

NEON = "postgresql://u:p@ep-a-pooler.eu.aws.neon.tech/db?sslmode=require"


def test_each_parameter_of_libpq_is_in_a_table() -> None:
    """The driver would send it to the server, whose refusal looks like an outage."""
    names = {each.keyword.decode() for each in pq.Conninfo.get_defaults()}
    assert names - KNOWN == set()
    assert TAKEN.isdisjoint({*LEFT_OUT, *REFUSED})


@each_case(
    ("url", "dsn"),
    [
        ("postgresql://h/db?keepalives=1&keepalives_idle=30&sslmode=require",
         "postgresql://h/db?sslmode=require"),
        (f"{NEON}&channel_binding=prefer&options=endpoint%3Dep-a",
         f"{NEON}&options=endpoint%3Dep-a"),
        ("postgresql://h/db?gssencmode=disable&client_encoding=UTF8&sslsni=1&pgbouncer=true",
         "postgresql://h/db"),
        ("postgresql://h/db?search_path=a%2Cb&connect_timeout=3", "postgresql://h/db?search_path=a%2Cb"),
        ("postgresql://h/", "postgresql://h"),
        ("postgresql:///", "postgresql://"),
        ("postgresql:///?host=/run/pg", "postgresql://?host=/run/pg"),
        ("postgresql://h/db", "postgresql://h/db"),
    ],
)  # fmt: skip
def test_the_driver_gets_what_it_knows(url, dsn):
    assert read_url(url, {}).url == dsn


@each_case(
    ("query", "said"),
    [
        ("channel_binding=require", "channel_binding: the driver cannot bind .* Leave it out"),
        ("gssencmode=require", "gssencmode: the driver does not do that: leave it out"),
        ("hostaddr=10.0.0.1", "hostaddr: write the address as the host"),
        ("sslsni=0", "sslsni: the driver does not do that"),
        ("schema=shop", "schema: write search_path=NAME"),
        ("ssl=true", "ssl: write sslmode=require"),
        ("sslrootcert=system&sslmode=verify-full", "sslrootcert=system: the driver needs a file"),
        ("connect_timeout=soon", "connect_timeout must be a number of seconds"),
        ("client_encoding=latin1", "client_encoding: "),
        ("load_balance_hosts=random", "load_balance_hosts: leave it out"),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_to_write(query, said):
    for open_ in (read_url, open_store):
        with pytest.raises(ConfigError, match=rf"^postgresql://u:\*\*\*@h/db\?\S*: {said}"):
            open_(f"postgresql://u:secret@h/db?{query}")


@each_case(
    ("options", "settings"),
    [
        ("-csearch_path%3Dshop", {"search_path": "shop"}),
        ("-c%20search_path%3Dshop%20-c%20geqo%3Doff", {"search_path": "shop", "geqo": "off"}),
        ("--search-path%3Da%2C%5C%20b", {"search_path": "a, b"}),
        ("endpoint%3Dep-a", {}),
    ],
)
def test_options_name_settings(options, settings):
    assert read_url(f"postgresql://h/db?options={options}", {}).settings == settings
    assert read_url("postgresql://h/db?geqo=on", {"PGOPTIONS": "-c geqo=off"}).settings == {
        "geqo": "off"
    }


def test_a_timeout_is_for_one_connection() -> None:
    assert read_url("postgresql://h/db?connect_timeout=3", {}).connect_timeout == 3.0
    for asked in ("", "?connect_timeout=0", "?connect_timeout=-1"):  # without end
        assert read_url(f"postgresql://h/db{asked}", {}).connect_timeout is None


@pytest.fixture
def services(tmp_path: Path) -> dict[str, str]:
    """An environment with a service file."""
    file = tmp_path / "services"
    file.write_text(
        "# of us\n[prod]\nhost=db.example\nport=6432\ndbname=shop\nuser=me\npassword=a%b:c@d\n"
        "options=-c search_path=shop\nsslmode=require\n"
    )
    return {"PGSERVICEFILE": str(file)}


def test_a_service_gives_what_the_url_leaves_open(services: dict[str, str]) -> None:
    """All of it: the driver reads a part, and passes over the rest."""
    for slash in ("", "/"):
        asked = read_url(f"postgresql://{slash}?service=prod&user=you", services)
        assert asked.url.startswith("postgresql://?host=db.example&port=6432&dbname=shop&user=you&")
        assert asked.settings == {"search_path": "shop"}
        assert asked.parameters["password"] == "a%b:c@d"
        assert "a%" not in repr(asked)
    assert read_url("postgresql://", {**services, "PGSERVICE": "prod"}).url == asked.url.replace(
        "user=you", "user=me"
    )
    assert read_sslmode("postgresql:///?service=prod", services) == "require"


def test_a_service_that_is_not_there_is_an_error(services: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"services has no service 'test'"):
        read_url("postgresql:///?service=test", services)
    with pytest.raises(ConfigError, match=r"No such file"):
        read_url("postgresql:///?service=prod", {"PGSERVICEFILE": "/nowhere/services"})


@pytest.mark.parametrize("text", ["password=secret1", "[prod]\nsecret1", "[prod\nsecret1=\xff"])
def test_a_service_file_that_cannot_be_read_shows_no_secret(
    services: dict[str, str], text: str
) -> None:
    Path(services["PGSERVICEFILE"]).write_bytes(text.encode("latin1"))
    with pytest.raises(ConfigError, match=r"services is not a service file$"):
        read_url("postgresql:///?service=prod", services)
