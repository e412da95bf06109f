"""Lists the kinds of messengers, with all differences between them before a connection.

A kind has one entry here, one branch that imports its broker (``outlast.wakeup``) and one module
with that broker. This module needs no driver. A URL is such as
``nats://user:password@one:4222,two:4222?replicas=3``.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

import msgspec

from outlast.base.credentials import check_encoded, redact
from outlast.errors import ConfigError, text_of

Check = Callable[[str, str], Any]
"""Takes name and text of a setting, and returns its value. ConfigError says what is wrong."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of messenger.

    Attributes:
        name: the name in events, errors and the extra ``outlast[NAME]``.
        needs: the words of the error about a missing package: what needs which package.
        package: the import name of the driver.
        ports: scheme of a URL -> the default port.
        tls_schemes: the schemes that ask for TLS.
        forms: example URLs, shown by the error about a wrong URL.
        settings: names in the query of a URL -> their checks.
    """

    name: str
    needs: str
    package: str
    ports: Mapping[str, int]
    tls_schemes: tuple[str, ...]
    forms: tuple[str, ...]
    settings: Mapping[str, Check]


def _whole(least: int, most: int) -> Check:
    def check(name: str, text: str) -> int:
        if not re.fullmatch(r"\d{1,18}", text) or not least <= int(text) <= most:
            raise ConfigError(
                f"the wake-up's {name} must be a whole number from {least} to {most}, not {text!r}"
            )
        return int(text)

    return check


def _word(*words: str) -> Check:
    def check(name: str, text: str) -> str:
        if text not in words:
            raise ConfigError(
                f"the wake-up's {name} must be one of {', '.join(words)}, not {text!r}"
            )
        return text

    return check


def _name(name: str, text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ConfigError(
            f"the wake-up's {name} must be 1 to 64 letters, digits, - and _, not {text!r}"
        )
    return text


def _file(name: str, text: str) -> str:
    if not text:
        raise ConfigError(f"the wake-up's {name} must be the path of a file")
    return text


_TLS: dict[str, Check] = {"tls_ca": _file, "tls_cert": _file, "tls_key": _file}
_LIMITS: dict[str, Check] = {
    "max_age": _whole(1, 10**9),
    "max_msgs": _whole(1, 10**12),
    "replicas": _whole(1, 7),
}

NATS = Kind(
    name="nats",
    needs="NATS needs nats-py",
    package="nats",
    ports={"nats": 4222, "tls": 4222},
    tls_schemes=("tls",),
    forms=("nats://host:4222", "nats://one,two,three?replicas=3"),
    settings={
        "stream": _name,
        "storage": _word("file", "memory"),
        **_LIMITS,
        "max_bytes": _whole(1, 10**15),
        "creds": _file,
        "nkey": _file,
        **_TLS,
    },
)
AMQP = Kind(
    name="amqp",
    needs="RabbitMQ needs aio-pika",
    package="aio_pika",
    ports={"amqp": 5672, "amqps": 5671},
    tls_schemes=("amqps",),
    forms=("amqp://user:password@host/vhost",),
    settings={**_LIMITS, **_TLS},
)

KINDS = {kind.name: kind for kind in (NATS, AMQP)}  # a third kind would be one more here
BY_SCHEME = {scheme: kind for kind in KINDS.values() for scheme in kind.ports}
TLS_SCHEMES = tuple(scheme for kind in KINDS.values() for scheme in kind.tls_schemes)


if TYPE_CHECKING:
    import ssl

_FORMS = " or ".join(form for kind in KINDS.values() for form in kind.forms)
PORT_MAX = 65_535


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A messenger's checked address: ``kind`` names its ``Kind``, ``settings`` holds the URL's."""

    kind: str
    tls: bool
    hosts: list[tuple[str, int]]
    user: str | None = None
    password: str | None = None
    path: str = ""
    settings: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<{self.kind} at {self.place}>"

    @property
    def place(self) -> str:
        """The host and port for people, without credentials."""
        return ",".join(f"{host}:{port}" for host, port in self.hosts)

    @property
    def secured(self) -> bool:
        """Whether the URL asks for TLS."""
        return self.tls or bool(self.settings.get("tls_ca") or self.settings.get("tls_cert"))

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context; None without TLS. ConfigError names a bad file."""
        ca, cert, key = (self.settings.get(f"tls_{name}") for name in ("ca", "cert", "key"))
        if not self.secured:
            return None
        import ssl

        try:
            context = ssl.create_default_context(cafile=ca)
            if cert:
                context.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"the TLS files of the wake-up cannot be used: {text_of(error)}"
            ) from error
        return context

    def check_login(self) -> None:
        """Raise ConfigError if a key cannot be read, or used without its package. The error does
        not repeat the given value: it may be the secret itself."""
        for name in {"creds", "nkey"} & self.settings.keys():
            if not os.access(self.settings[name], os.R_OK):
                raise ConfigError(f"the wake-up's {name} must be the path of a file to read")
            if importlib.util.find_spec("nkeys") is None:
                raise ConfigError(f"{name} needs nkeys: pip install 'outlast[{self.kind}]'")


def parse(url: str) -> Address:
    """Return the address. ConfigError says what is wrong with the URL."""
    scheme, separator, rest = url.partition("://")
    if scheme not in BY_SCHEME or not separator:
        raise ConfigError(f"{redact(url)!r} is not the URL of a messenger; write {_FORMS}")
    check_encoded(url)
    place, _, query = rest.partition("?")
    login, _, netloc = place.rpartition("@")
    netloc, _, path = netloc.partition("/")
    user, _, password = login.partition(":")
    kind = BY_SCHEME[scheme]
    return Address(
        kind=kind.name,
        tls=scheme in kind.tls_schemes,
        hosts=[_host(url, each, kind.ports[scheme]) for each in netloc.split(",")],
        user=unquote(user) or None,
        password=unquote(password) or None,
        path=unquote(path),
        settings=_settings(kind, query),
    )


def _host(url: str, text: str, port: int) -> tuple[str, int]:
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+)(?::(\d{1,5}))?", text)
    if not found or not 0 < int(found[2] or port) <= PORT_MAX:
        raise ConfigError(f"{redact(url)!r} does not name hosts; write {_FORMS}")
    return found[1].strip("[]"), int(found[2] or port)


def _settings(kind: Kind, query: str) -> dict[str, Any]:
    known = kind.settings
    found: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            raise ConfigError(
                f"{name!r} is not a setting of a wake-up by {kind.name};"
                f" choose from: {', '.join(known)}"
            )
        found[name] = known[name](name, text)
    return found
