"""Find the secrets in URLs of stores and messengers, and hide them in texts for people.

Every text that Outlast writes (logs, reports, errors, pages) shows a URL only through ``redact``.
If the end of a password cannot be recognized, the whole URL is hidden: half a password is a leak.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import unquote, unquote_plus, urlsplit

from outlast.errors import ConfigError

HIDDEN = "***"
BARE_LEAST = 6  # the shortest secret, in characters, that is hidden outside its URL too
ENCODE = (
    "percent-encode the special characters of the user, the password and the database"
    " (@ is %40, / is %2F, ? is %3F, # is %23, [ is %5B, a blank is %20)"
)

_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%]+\]|[^\s:/@\[\]?#,]*)(?::\d{0,5})?")
_NOT_IN_URLS = re.compile(r"[\s#\x00-\x1f\x7f]")
_NOT_IN_LOGINS = re.compile(r"[\[\]]")
_SECRET_SETTING = re.compile(r"pas|pw|secret|token|cred|key", re.IGNORECASE)
_URL_IN_TEXT = r"(?:\b[A-Za-z][A-Za-z0-9+.-]*)?://[^\s<>]+"
_AFTER_URLS = "'\"`,;:.)]}"  # punctuation of the text around a URL
FILE_SCHEMES: set[str] = set()  # of URLs that name a file; `store.backend` adds them
_TOKENS = frozenset({"nats", "tls"})  # schemes where a user without a password is a token


class _Parts(NamedTuple):
    """The parts of a URL. ``login`` is None if it has none; ``path`` begins with its slash."""

    scheme: str
    login: str | None
    hosts: str
    path: str
    query: str

    @property
    def user(self) -> str:
        return (self.login or "").partition(":")[0]

    @property
    def password(self) -> str | None:
        user, colon, password = (self.login or "").partition(":")
        if self.scheme.lower() in _TOKENS and not colon:
            return user or None
        return password or None


def redact(url: str) -> str:
    """Return ``url`` with ``***`` for its passwords or, if one cannot be told from the rest, for
    everything after the scheme."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return HIDDEN if "@" in url or "=" in url else url
    if _is_file(url):
        path, mark, query = url.partition("?")
        return f"{path}{mark}{_settings(query)}"
    parts = _cut(url)
    if parts is None:
        return f"{scheme}{separator}{HIDDEN}"
    settings = f"?{_settings(parts.query)}" if "?" in rest else ""
    return f"{scheme}://{_login(parts)}{parts.hosts}{parts.path}{settings}"


def _is_file(url: str) -> bool:
    """Whether a URL names a file, whose path may hold any character, instead of a server."""
    scheme, separator, _ = url.partition(":///")
    return bool(separator) and scheme.lower() in FILE_SCHEMES


def _settings(query: str) -> str:
    return "&".join(_redact_parts(piece) for piece in query.split("&"))


def _login(parts: _Parts) -> str:
    if parts.login is None:
        return ""
    if parts.scheme.lower() in _TOKENS and ":" not in parts.login:
        return f"{HIDDEN}@"
    return f"{parts.user}:{HIDDEN}@" if parts.password else f"{parts.user}@"


def _redact_parts(piece: str) -> str:
    name, equals, _ = piece.partition("=")
    if not equals:
        return HIDDEN if piece else ""
    return f"{name}={HIDDEN}" if _SECRET_SETTING.search(unquote(name)) else piece


def _cut(url: str) -> _Parts | None:
    """Return the parts of a URL; None if a special character splits it in the wrong place."""
    scheme, separator, rest = url.partition("://")
    if not separator or _NOT_IN_URLS.search(rest):
        return None
    authority = re.split(r"[/?]", rest, maxsplit=1)[0]
    beyond = rest[len(authority) :]
    login, at, hosts = authority.rpartition("@")
    if "@" in beyond or "@" in login or not all(map(_HOST.fullmatch, hosts.split(","))):
        return None
    if _NOT_IN_LOGINS.search(login) or not _is_known_to_python(url):
        return None
    path, _, query = beyond.partition("?")
    return _Parts(scheme, login if at else None, hosts, path, query)


def _is_known_to_python(url: str) -> bool:
    """Whether ``urlsplit``, which drivers use, accepts the URL: it refuses some characters."""
    try:
        urlsplit(url)
    except ValueError:
        return False
    return True


def check_ends(url: str) -> None:
    """Raise ConfigError if a URL begins or ends with white space, as it may if it was read from a
    file: it would name another file."""
    bare = url.strip()
    if url != bare:
        raise ConfigError(
            f"{redact(bare)!r} begins or ends with a line break or a blank: remove it (`printf`"
            " adds none); in the name of a file write %20"
        )


def check_encoded(url: str) -> str:
    """Return a server's URL. ConfigError if a special character splits it in the wrong place: a
    driver's message about that would show pieces of the password."""
    check_ends(url)
    parts = _cut(url)
    pieces = parts.query.split("&") if parts is not None and parts.query else []
    if parts is None or not all("=" in piece for piece in pieces):
        raise ConfigError(f"{redact(url)!r} cannot be read: {ENCODE}")
    return url


def hide_logins(text: str) -> str:
    """Return ``text`` with the secrets of all URLs in it hidden."""
    if "://" not in text:
        return text
    return re.sub(_URL_IN_TEXT, _hidden, text)


def _hidden(found: re.Match[str]) -> str:
    url = found[0].rstrip(_AFTER_URLS)
    return redact(url) + found[0][len(url) :]


def make_hider(*urls: str | None) -> Callable[[str], str]:
    """Return a function that hides the secrets of all URLs in a text, and the secrets of ``urls``
    also outside a URL, except those that are too short or occur in the rest of their URL."""
    secrets = [each for url in urls if url is not None for each in secrets_of(url)]

    def hide(text: str) -> str:
        text = hide_logins(text)
        for secret in secrets:
            text = text.replace(secret, HIDDEN)
        return text

    return hide


def secrets_of(url: str) -> list[str]:
    """Return the secrets of a URL, encoded and decoded, the longest first, without those that are
    short or also occur elsewhere in the URL."""
    parts = _cut(url)
    if parts is None:
        return []
    settings = [piece.partition("=") for piece in parts.query.split("&")]
    written = [value for name, _, value in settings if _SECRET_SETTING.search(unquote(name))]
    written += [parts.password] if parts.password else []
    meant = {form for text in written for form in (text, unquote(text), unquote_plus(text))}
    shown = redact(url)
    kept = [each for each in meant if len(each) >= BARE_LEAST and each not in shown]
    return sorted(kept, key=len, reverse=True)


def without_secrets(url: str) -> str:
    """Return a server's URL without secrets; "" if it cannot be parsed."""
    if _is_file(url):
        return redact(url)
    parts = _cut(url)
    if parts is None:
        return ""
    has_token = parts.scheme.lower() in _TOKENS and ":" not in (parts.login or "")
    login = f"{parts.user}@" if parts.user and not has_token else ""
    pieces = [piece for piece in parts.query.split("&") if piece and _redact_parts(piece) == piece]
    query = f"?{'&'.join(pieces)}" if pieces else ""
    return f"{parts.scheme}://{login}{parts.hosts}{parts.path}{query}"
