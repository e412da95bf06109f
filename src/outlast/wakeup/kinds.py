"""Lists the kinds of messengers, with all differences between them before a connection.

A kind has one entry here, one branch that imports its broker (``outlast.wakeup``) and one module
with that broker. This module needs no driver.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from outlast.errors import ConfigError

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
        "duplicate_window": _whole(1, 10**9),
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
