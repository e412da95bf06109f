"""URLs, settings and the environment: documented errors, and no secret in any text."""

from __future__ import annotations

import asyncio
import contextlib
import os
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest import mock
from urllib.parse import quote

import msgspec
from hypothesis import strategies as st

import outlast
from outlast.base import config
from outlast.base.credentials import check_encoded, hide_logins, make_hider, redact, without_secrets
from outlast.errors import ConfigError, OutlastError
from outlast.store import lockfile, open_store
from outlast.store.backend import StoreOptions, file_of, resolve_url
from outlast.store.postgres.connection import connect
from outlast.store.postgres.errors import TROUBLE
from outlast.store.sqlite.url import parse as parse_sqlite
from outlast.wakeup import check_messenger
from outlast.wakeup.kinds import BY_SCHEME, parse
from tests.fuzz.kit import DIGITS, Fuzzer, json_values

PIECE = 6  # characters of a secret that are a leak; less may stand anywhere by chance
SERVERS = ["postgresql", "postgres", *BY_SCHEME]
SCHEMES = [*SERVERS, "sqlite", "POSTGRESQL", "jdbc:postgresql", "postgresql+asyncpg", "mysql", ""]
HOSTS = ["db.example.org", "127.0.0.1:1", "[::1]:5432", "one:1,two:2", "", "h:99999", "[::1", "h:x"]
PATHS = ["", "/", "/shop", "/shop/more", "/%2Fv", "//", "/~/x.db"]
HARMLESS = [
    "sslmode",
    "service",
    "channel_binding",
    "options",
    "replicas",
    "application_name",
    "storage",
    "stream",
    "unsafe_filesystem",
]
SECRET = ["password", "sslpassword", "PASSWORD", "pass%77ord", "token", "creds", "nkey", "pwd"]
BREAKING = [
    "",
    "",
    "@",
    "/",
    "?",
    "#",
    "[",
    "]",
    " ",
    "\n",
    "\t",
    ":",
    "&",
    "%",
    "%zz",
    "=",
    "\\",
    ";",
]
LETTERS = ["BCDFGHJKLM", "NPQRSTVWXZ"]  # of the two parts of a secret


class Given(msgspec.Struct, frozen=True):
    """A URL, and what of it is secret, in each of its parts."""

    url: str
    secrets: list[str]


@st.composite
def secret_urls(draw: st.DrawFn) -> Given:
    """A URL of any kind with a secret where one may stand, encoded or not, whole or broken."""
    parts = [draw(st.text(letters, min_size=9, max_size=12)) for letters in LETTERS]
    secret = draw(st.sampled_from(BREAKING)).join(parts)
    if draw(st.booleans()):
        secret = quote(secret, safe="")
    scheme = draw(st.sampled_from(SCHEMES))
    separator = draw(st.sampled_from(["://", "://", "://", "://", ":/", ":", "", ":///"]))
    host, path = draw(st.sampled_from(HOSTS)), draw(st.sampled_from(PATHS))
    settings = [f"{draw(st.sampled_from(HARMLESS))}={draw(st.sampled_from(['1', 'x', '']))}"]
    where = draw(st.sampled_from(["password", "token", "setting", "words"]))
    if where == "words":
        words = draw(st.sampled_from(["password", "pass", "pwd"]))
        text = f"host=db user=me {words}={secret}"
        return Given(draw(st.sampled_from([text, f"{words}={secret}", f"me:{secret}@db"])), parts)
    if scheme == "sqlite" and separator == ":///" and where == "password":
        return Given(f"{scheme}{separator}{secret}{path}", [])  # a path may hold any character
    login = {"password": f"me:{secret}@", "token": f"{secret}@"}.get(where, "")
    if where == "token":
        scheme, separator = draw(st.sampled_from(["nats", "tls"])), "://"
        parts = parts[":" in secret :]  # before a colon stands a user
    if where == "setting":
        settings.insert(draw(st.integers(0, 1)), f"{draw(st.sampled_from(SECRET))}={secret}")
    query = f"?{'&'.join(settings)}" if where == "setting" or draw(st.booleans()) else ""
    return Given(f"{scheme}{separator}{login}{host}{path}{query}", parts)


any_urls = st.one_of(
    st.text(max_size=40),
    st.builds(
        lambda *parts: "".join(parts),
        st.sampled_from(SCHEMES),
        st.sampled_from(["://", ":///", ":", ""]),
        st.text(max_size=20),
        st.sampled_from(HOSTS),
        st.sampled_from(PATHS),
        st.sampled_from(["", "?", "?a", "?a=b&&", "?=", "?mode=memory", "?unsafe_filesystem=2"]),
    ),
    st.builds(lambda scheme: f"{scheme}://{'[' * 3_000}", st.sampled_from(SCHEMES)),
    st.builds(
        lambda name: f"nats://h?{name}={DIGITS}", st.sampled_from(["max_age", "replicas", "stream"])
    ),
    st.sampled_from(
        [
            "sqlite:///\0",
            "sqlite:///~no-such-user/x.db",
            "sqlite:///%00",
            "sqlite:///" + "x/" * 3_000,
            "sqlite:///\ud8ff",
        ]
    ),
).map(lambda url: Given(url, []))


def _ways(url: str) -> list[Callable[[], object]]:
    """All code that reads a URL; what returns a text is for people."""
    return [
        lambda: redact(url),
        lambda: hide_logins(f"cannot reach {check_encoded(url)}, which is odd"),
        lambda: make_hider(url)(f"at {check_encoded(url)}"),
        lambda: without_secrets(url),
        lambda: repr(outlast.App(url)),
        lambda: repr(parse(url)),
        lambda: _kept(resolve_url(url)),
        lambda: _kept(open_store(url)),
        lambda: repr(parse_sqlite(url)),
        lambda: _kept(lockfile.directory_for(file_of(url))),
        lambda: repr(check_messenger(url, "postgresql://db/x")),
        lambda: repr(check_messenger("nats://host", url)),
    ]


def _kept(_: object) -> None:
    """A result that is not for people."""


def urls_are_read(one: Given) -> None:
    """A result, or ConfigError; and no text has a piece of the secret."""
    for read in [*_ways(one.url), *_in_the_environment(one.url)]:
        try:
            told = read()
        except ConfigError as error:
            told = _all_of(error)
        if isinstance(told, str):
            _shows_none(told, one)
    if "@127.0.0.1:1/" in one.url and one.url.startswith("postgres"):
        _shows_none(asyncio.run(_dialled(one.url)), one)


def _in_the_environment(url: str) -> list[Callable[[], object]]:
    """The same from variables, where they can hold it."""
    if "\0" in url:
        return []
    with contextlib.suppress(UnicodeEncodeError):
        os.fsencode(url)
        names = dict.fromkeys([config.URL_VARIABLE, config.WAKEUP_VARIABLE], url)

        def read() -> None:
            with mock.patch.dict(os.environ, names):
                _kept((resolve_url(None), config.resolve_wakeup(None)))

        return [read]
    return []


async def _dialled(url: str) -> str:
    try:
        connection = await connect(url, StoreOptions(connect_timeout=5.0))
    except (OutlastError, *TROUBLE) as error:  # the pool translates these
        return _all_of(error)
    connection.terminate()
    return ""


def _all_of(error: Exception) -> str:
    """All that is shown of an error, also as the cause of another; not its lines of code."""
    told = []
    seen: BaseException | None = error
    while seen is not None:
        told.append("".join(traceback.format_exception_only(seen)))
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return "\n".join([*told, repr(error)])


def _shows_none(told: str, one: Given) -> None:
    for secret in one.secrets:
        for at in range(len(secret) - PIECE + 1):
            assert secret[at : at + PIECE] not in told, f"{told!r} shows a secret of {one.url!r}"


# --- settings

odd = st.one_of(
    json_values,
    st.sampled_from(
        [10**400, -(10**400), 10**6_000, float("nan"), float("inf"), timedelta.max, b"x"]
    ),
    st.lists(st.text(max_size=8), max_size=3),
    st.sampled_from(["a" * 300, "\ud800", "a b", "\0", ""]),
)
patterns = st.lists(
    st.text("ab(){}[]*+?|\\^$0129,-", max_size=12)
    | st.sampled_from(["(" * 5_000, "a{" + "9" * 30 + "}", "(?:a{9999}){9999}", "(?i", "[[a]]"]),
    max_size=2,
)
worker_words = st.dictionaries(
    st.sampled_from(config.WorkerSettings.__struct_fields__) | st.text(max_size=5), odd, max_size=3
)
settings = st.tuples(worker_words, patterns, odd, st.text("0123456789.KMGiB ", max_size=25))


def settings_are_read(one: tuple[dict[str, Any], list[str], Any, str]) -> None:
    """A setting that can work, or ConfigError."""
    words, redact, value, size = one
    _settings_or_error(lambda: config.worker_settings(**words))
    _settings_or_error(lambda: config.worker_settings(redact=redact))
    _settings_or_error(lambda: config.check_name("it", value))
    _settings_or_error(lambda: config.check_key("it", value))
    _settings_or_error(lambda: config.check_seconds("it", value))
    _settings_or_error(lambda: config.check_whole("it", value, 0, 7))
    _settings_or_error(lambda: config.parse_size("it", size))
    _settings_or_error(lambda: config.parse_size("it", DIGITS))


def _settings_or_error(read: Callable[[], object]) -> None:
    with contextlib.suppress(ConfigError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the module re, about odd patterns
        read()


FUZZERS = [
    Fuzzer("URLs with a secret", secret_urls(), urls_are_read, few=60),
    Fuzzer("URLs", any_urls, urls_are_read, few=50),
    Fuzzer("settings", settings, settings_are_read, few=40),
]
