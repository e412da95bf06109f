"""Checks the URL of a messenger, without a driver: hosts, credentials, TLS and settings.

``nats://user:password@one:4222,two:4222?replicas=3``. Schemes, ports and settings are in
``wakeup/kinds.py``.
"""

from __future__ import annotations

import importlib.util
import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

import msgspec

from outlast.base.credentials import check_encoded, redact
from outlast.errors import ConfigError, text_of
from outlast.wakeup.kinds import BY_SCHEME, KINDS, Kind

if TYPE_CHECKING:
    import ssl

_FORMS = " or ".join(form for kind in KINDS.values() for form in kind.forms)
PORT_MAX = 65_535


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A messenger's checked address. ``kind`` is the name of a ``Kind``. ``settings`` holds only
    the settings in the URL's query."""

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
        """Raise ConfigError if a key cannot be read, or cannot be used without its package. The
        error does not repeat the given value: it may be the secret itself."""
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
                f" there are: {', '.join(known)}"
            )
        found[name] = known[name](name, text)
    return found
