"""Reads a URL of PostgreSQL: what its driver takes, and what it asks of the session.

The driver would send each parameter that it does not know to the server, as a setting. So two
tables name those of libpq and of other clients: what holds anyway is left out, and what cannot be
done is refused, with what to write instead. Any other name is a setting of the server.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec

from outlast.base.credentials import check_encoded, redact
from outlast.errors import ConfigError

# Files, and the sslmode from which on the driver reads them.
_FILES = {"sslrootcert": "require", "sslcrl": "require", "sslcert": "allow", "sslkey": "allow"}
_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
TAKEN = {  # by the driver
    *("host", "port", "dbname", "database", "user", "password", "passfile", "sslmode", *_FILES),
    *("sslpassword", "sslnegotiation", "ssl_min_protocol_version", "ssl_max_protocol_version"),
    *("target_session_attrs", "krbsrvname", "gsslib", "options"),
}
# Left out: with any value, or with one of these.
LEFT_OUT: dict[str, tuple[str, ...]] = {
    "application_name": (),  # sessions have a name of ours
    "fallback_application_name": (),
    "keepalives": (),  # each call, and each beat, has a timeout of its own
    "keepalives_idle": (),
    "keepalives_interval": (),
    "keepalives_count": (),
    "tcp_user_timeout": (),
    "sslcompression": (),
    "pgbouncer": (),  # a pooler is recognized
    "channel_binding": ("disable", "prefer"),
    "client_encoding": ("utf8", "utf-8", "auto"),
    "gssdelegation": ("0",),
    "gssencmode": ("disable", "prefer"),
    "load_balance_hosts": ("disable",),
    "max_protocol_version": ("3.0", "3.2", "latest"),
    "min_protocol_version": ("3.0",),
    "sslcertmode": ("allow",),
    "sslsni": ("1",),
}
_NOT_DONE = "the driver does not do that: leave it out"
_SCHEMA = "write search_path=NAME for a schema of its own"
REFUSED = {
    **dict.fromkeys(("oauth_issuer", "oauth_client_id", "oauth_client_secret"), _NOT_DONE),
    **dict.fromkeys(("oauth_scope", "scram_client_key", "scram_server_key"), _NOT_DONE),
    **dict.fromkeys(("requirepeer", "sslkeylogfile"), _NOT_DONE),
    "channel_binding": "the driver cannot bind a login to its TLS connection. Leave it out; what"
    " proves the server is sslmode=verify-full with sslrootcert=PATH",
    "connection_limit": "leave it out: a store opens few connections",
    "currentSchema": _SCHEMA,
    "hostaddr": "write the address as the host",
    "load_balance_hosts": "leave it out: only a primary runs jobs",
    "replication": "leave it out: no job runs in such a session",
    "require_auth": "leave it out: the driver answers as the server asks",
    "requiressl": "write sslmode=require",
    "schema": _SCHEMA,
    "ssl": "write sslmode=require",
    "sslcrldir": "write sslcrl=PATH, a file",
}
KNOWN = {*TAKEN, *LEFT_OUT, *REFUSED, "service", "connect_timeout"}
_SYSTEM = (
    "the driver needs a file: write its path (on Debian /etc/ssl/certs/ca-certificates.crt), and"
    " sslmode=verify-full"
)
_SLASHES_OF_ROOT = 3  # of "postgresql://host/"
_OPTION = r"(?:-c\s*|--)([A-Za-z][\w.-]*)=((?:\\.|\S)*)"


class ParsedUrl(msgspec.Struct, frozen=True):
    """What a URL asks for.

    Attributes:
        url: for the driver. It may hold the password of a service.
        parameters: of libpq, those of a service included.
        settings: of the session.
        connect_timeout: in seconds; None: nothing is asked.
    """

    url: str
    parameters: dict[str, str]
    settings: dict[str, str]
    connect_timeout: float | None

    def __repr__(self) -> str:
        return f"<{redact(self.url)}>"

    def check_files(self, environ: Mapping[str, str] = os.environ) -> None:
        """Raise an OSError that names a certificate or key, if it cannot be read now."""
        mode = self.parameters.get("sslmode") or environ.get("PGSSLMODE")
        for name, least in _FILES.items():
            path = self.parameters.get(name) or environ.get(f"PG{name.upper()}")
            if path and mode in _MODES[_MODES.index(least) :]:
                with open(path, "rb"):
                    pass


def read_url(url: str, environ: Mapping[str, str] = os.environ) -> ParsedUrl:
    place, _, query = check_encoded(url).partition("?")
    given = dict(parse_qsl(query))
    if service := given.pop("service", None) or environ.get("PGSERVICE"):
        given = _read_service(url, service, environ) | given
    if "PGOPTIONS" in environ:
        given.setdefault("options", environ["PGOPTIONS"])
    seconds = _read_seconds(url, given.pop("connect_timeout", "0"))
    if said := _find_misfit(given):
        raise ConfigError(f"{redact(url)}: {said}")
    parameters = {name: value for name, value in given.items() if name not in LEFT_OUT}
    settings = {name: value for name, value in parameters.items() if name not in TAKEN}
    if place.count("/") == _SLASHES_OF_ROOT:
        place = place.removesuffix("/")  # else the driver would take "" for the database
    end = f"?{urlencode(parameters, quote_via=quote, safe='/')}" if parameters else ""
    return ParsedUrl(place + end, parameters, settings | _read_options(parameters), seconds or None)


def read_hosts(url: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the hosts that a URL or the environment names, with commas; empty if none is named."""
    named = ""
    with suppress(ValueError):
        named = urlsplit(url).netloc.rpartition("@")[2]
    query = read_url(url, environ).parameters
    return named or query.get("host") or environ.get("PGHOST") or ""


def make_query(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the parameters of a URL for these options of libpq; ConfigError if it has none."""
    if unknown := options.keys() - KNOWN:
        raise ConfigError(f"a URL cannot have {', '.join(sorted(unknown))}")
    given = {name: str(value) for name, value in options.items()}
    if said := _find_misfit(given):
        raise ConfigError(said)
    return {name: value for name, value in given.items() if name not in LEFT_OUT}


def _find_misfit(given: Mapping[str, str]) -> str | None:
    for name, value in given.items():
        allowed = LEFT_OUT.get(name, None if name in REFUSED else ())
        if allowed is None or (allowed and value.lower() not in allowed):
            return f"{name}: {REFUSED.get(name, _NOT_DONE)}"
    return f"sslrootcert=system: {_SYSTEM}" if given.get("sslrootcert") == "system" else None


def _read_options(parameters: Mapping[str, str]) -> dict[str, str]:
    options = parameters.get("options")
    found = re.findall(_OPTION, options) if options else []
    return {name.replace("-", "_"): re.sub(r"\\(.)", r"\1", value) for name, value in found}


def _read_seconds(url: str, text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        raise ConfigError(f"{redact(url)}: connect_timeout must be a number of seconds") from None


def _read_service(url: str, service: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return all parameters of a service: the driver reads some, and passes over a missing one."""
    path = environ.get("PGSERVICEFILE") or os.path.expanduser("~/.pg_service.conf")
    services = configparser.ConfigParser(delimiters="=", interpolation=None, strict=False)
    try:
        services.read_string(Path(path).read_text())
        return dict(services[service])
    except KeyError:
        raise ConfigError(f"{redact(url)}: {path} has no service {service!r}") from None
    except OSError as error:
        raise ConfigError(f"{redact(url)}: {path}: {error.strerror}") from None
    except (ValueError, configparser.Error):  # its text may show a password
        raise ConfigError(f"{redact(url)}: {path} is not a service file") from None
