"""No part of a password is shown in URLs, in errors about them, or in other texts."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from itertools import product
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import outlast
from outlast.base.credentials import (
    check_encoded,
    hide_logins,
    make_hider,
    redact,
    secrets_of,
    without_secrets,
)
from outlast.errors import ConfigError, StoreUnavailable
from outlast.runner.protocol import Configure, RunnerSettings
from outlast.store.backend import open_store, resolve_url
from outlast.store.postgres.connection import connect
from outlast.store.sqlite.url import parse as parse_sqlite
from outlast.wakeup.kinds import BY_SCHEME, parse
from tests.cases import each_case


@each_case(
    ("url", "shown"),
    [
        ("postgresql://me:pa%40ss@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://me:@host/db", "postgresql://me@host/db"),
        ("postgresql://me:me@me/me", "postgresql://me:***@me/me"),
        ("postgresql:///db?user=me&password=pw", "postgresql:///db?user=me&password=***"),
        ("postgresql://host/db?pass%77ord=pw", "postgresql://host/db?pass%77ord=***"),
        ("postgresql://host/db?sslpassword=pw&a=b", "postgresql://host/db?sslpassword=***&a=b"),
        ("postgresql://me:pw@one:1,[::1]:2/db", "postgresql://me:***@one:1,[::1]:2/db"),
        ("postgresql://%2Frun%2Fpg/db", "postgresql://%2Frun%2Fpg/db"),
        ("nats://token@one,two:4223", "nats://***@one,two:4223"),
        ("nats://me:pw@host?replicas=3", "nats://me:***@host?replicas=3"),
        ("amqps://me:pw@host/%2Fvhost", "amqps://me:***@host/%2Fvhost"),
        ("sqlite:////a@b/c:d.db", "sqlite:////a@b/c:d.db"),
        ("sqlite:///a.db?unsafe_filesystem=1", "sqlite:///a.db?unsafe_filesystem=1"),
        ("sqlite:///a.db?key=pw", "sqlite:///a.db?key=***"),
        ("sqlite://jobs.db", "sqlite://jobs.db"),
        ("sqlite://me:pw@host/db", "sqlite://me:***@host/db"),
        ("jobs.db", "jobs.db"),
        ("host=h user=me password=pw", "***"),
        # a URL that would be split in the wrong place is hidden as a whole
        ("postgresql://me:pw@[::1/db", "postgresql://***"),
        ("postgresql://me:p/w@host/db", "postgresql://***"),
        ("postgresql://me:p?w@host/db", "postgresql://***"),
        ("postgresql://me:p#w@host/db", "postgresql://***"),
        ("postgresql://me:p@w@host/db", "postgresql://***"),
        ("postgresql://me:s3:cr/et", "postgresql://***"),
        ("postgresql://host/db?password=p@w", "postgresql://***"),
        ("postgresql:me:pw@host", "***"),
    ],
)
def test_no_password_is_shown(url, shown):
    assert redact(url) == shown


BREAKING = ["@", "/", "?", "#", "[", " ", "\n", "\t", "s3:cr/et", "a?b@c", "x#", "\u2100"]
SCHEMES = ["postgresql", "postgres", *BY_SCHEME]


def ways_of(url: str) -> list[Callable[[], object]]:
    """All code that reads a URL and may name it in an error."""
    return [
        lambda: outlast.App(url),
        lambda: resolve_url(url),
        lambda: open_store(url),
        lambda: parse(url),
        lambda: parse_sqlite(url),
    ]


@each_case("scheme", SCHEMES)
def test_a_password_that_is_not_encoded_is_not_shown_by_any_error(scheme):
    for breaking, hosts in product(BREAKING, ["host", "one:1,two:2"]):
        for read in ways_of(f"{scheme}://me:Zecret{breaking}Zauce@{hosts}/db"):
            with pytest.raises(ConfigError) as raised:
                read()
            told = "".join(traceback.format_exception(raised.value.with_traceback(None)))
            assert "Zecret" not in told, breaking
            assert "Zauce" not in told, breaking


@pytest.mark.parametrize("url", ["postgresql+asyncpgdb?password=Zecret&x=1"])
def test_what_stands_behind_a_plus_is_shown_where_it_is_a_driver_alone(url):
    with pytest.raises(ConfigError) as raised:
        open_store(url)
    assert "Zecret" not in str(raised.value)


@each_case("scheme", SCHEMES)
def test_the_error_says_to_percent_encode(scheme):
    for breaking in BREAKING:
        with pytest.raises(ConfigError, match="percent-encode the special characters"):
            check_encoded(f"{scheme}://me:Zecret{breaking}Zauce@host/db")
        check_encoded(f"{scheme}://me:{quote(f'Zecret{breaking}Zauce', safe='')}@host/db")


async def test_a_url_that_is_cut_in_the_wrong_place_never_reaches_the_driver():
    with pytest.raises(ConfigError, match="percent-encode") as raised:
        await connect("postgresql://me:Zecret/Zauce@127.0.0.1:1/")
    assert "Zecret" not in str(raised.value)


async def test_errors_of_the_driver_about_a_url_show_no_password():
    secret = "Zecret" + "-Zauce"  # in no line of a traceback
    url = f"postgresql://me:{secret}@127.0.0.1:1/db?sslmode="
    with pytest.raises(ConfigError) as raised:
        await connect(f"{url}nonsense")
    assert secret not in "".join(traceback.format_exception(raised.value))
    store = open_store(f"{url}disable")
    with pytest.raises(StoreUnavailable) as refused:
        await store.open()
    assert secret not in "".join(traceback.format_exception(refused.value))


ASCII, LETTERS = st.characters(codec="ascii"), st.characters(categories=["L"])


@settings(max_examples=25)  # `make fuzz` tries more
@given(
    st.sampled_from(SCHEMES),
    st.one_of([st.text(each, min_size=8, max_size=20) for each in (ASCII, LETTERS)]),
)
@example("postgresql", "postgres")
def test_no_piece_of_any_password_is_shown(scheme, password):
    """In each form: as it is, or encoded. A piece of four characters would be a leak."""
    hosts = "db.example.org:5432"
    for written in (password, quote(password, safe="")):
        url = f"{scheme}://me:{written}@{hosts}/shop"
        rest = f"{scheme}://me:***@{hosts}/shop"
        pieces = (written[at : at + 4] for at in range(len(written) - 3))
        assert all(piece in rest or piece not in redact(url) for piece in pieces)


def test_urls_in_a_text_are_hidden():
    text = (
        'no \'postgresql://me:pw@host/db\', {"a": "nats://tok@b"}, (amqp://u:p\'w@h/v).'
        " postgresql://me:p/w@host https://example.org/a?b=c ://me:pw@host"
    )
    assert hide_logins(text) == (
        'no \'postgresql://me:***@host/db\', {"a": "nats://***@b"}, (amqp://u:***@h/v).'
        " postgresql://*** https://example.org/a?b=c ://me:***@host"
    )


def test_a_secret_outside_a_url_is_hidden_in_each_form():
    hide = make_hider("postgresql://me:p%40ss+w%3Ard@host/db", "nats://to-ken-1@host", None)
    for form in ("p%40ss+w%3Ard", "p@ss+w:rd", "p@ss w:rd", "to-ken-1"):
        assert hide(f"<{form}>") == "<***>"


@each_case("url", ["postgresql://postgres:postgres@h/db", "postgresql://me:pw@h/db"])
def test_a_password_that_is_a_common_word_is_hidden_in_urls_only(url):
    """Otherwise reports of a store with the password "postgres" could not name a driver."""
    assert secrets_of(url) == []
    assert make_hider(url)(f"{url} postgres pw").endswith(":***@h/db postgres pw")


@each_case(
    ("url", "left"),
    [
        ("postgresql://me:pw@host/db?sslmode=require&password=x", "postgresql://me@host/db?sslmode=require"),
        ("nats://token@host", "nats://host"),
        ("amqp://me:pw@host/v", "amqp://me@host/v"),
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("postgresql://me:p/w@host", ""),
    ],
)  # fmt: skip
def test_a_url_for_strangers_has_no_credentials(url, left):
    assert without_secrets(url) == left


def test_the_repr_of_objects_with_a_url_shows_no_secret():
    url, wakeup = "postgresql://me:Zecret@host/db", "nats://Zecret@host"
    settings = RunnerSettings(
        app="a:b", stacks=3, concurrency=1, store_id="", url=url, wakeup=wakeup
    )
    holders = [settings, Configure(settings), parse(wakeup), outlast.App(url)]
    for holder in holders:
        assert "Zecret" not in f"{holder} {holder!r}"
