"""Keep people's passwords in a file of users, each as a hash that is slow to compute.

A line is ``USER:$scrypt$ln=14,r=8,p=5$SALT$DIGEST``: the name, the parameters of scrypt, salt and
digest in Base64.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import NamedTuple

from outlast.base.clock import secret_bytes
from outlast.base.text import shell_word
from outlast.errors import ConfigError

PASSWORD_LEAST = 8  # characters
SALT_BYTES, DIGEST_BYTES = 16, 32
COST = {"n": 1 << 14, "r": 8, "p": 5, "maxmem": 1 << 26}  # a few tenths of a second, and 16 MiB
_SCHEME = "$scrypt$ln=14,r=8,p=5$"
_NAME = re.compile(r"[^\s:#\x00-\x1f\x7f][^:\x00-\x1f\x7f]*(?<!\s)")


class PasswordHash(NamedTuple):
    """The stored form of a password."""

    salt: bytes
    digest: bytes

    def is_of(self, password: str) -> bool:
        """Whether this is the password. The GIL is released during the computation."""
        return hmac.compare_digest(_digest(password, self.salt), self.digest)

    def __str__(self) -> str:
        return _SCHEME + "$".join(base64.b64encode(part).decode() for part in self)


def hash_password(password: str) -> PasswordHash:
    """Return a hash of a password, with a new salt."""
    salt = secret_bytes(SALT_BYTES)
    return PasswordHash(salt, _digest(password, salt))


def _digest(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, dklen=DIGEST_BYTES, **COST)


def read_users(path: Path) -> dict[str, PasswordHash]:
    """Return the users of a file. Raises ConfigError if it cannot be used, if others may read it,
    or if it holds a password in plain text."""
    found: dict[str, PasswordHash] = {}
    for number, row in enumerate(_read_private(path).splitlines(), 1):
        user, colon, text = row.strip().partition(":")
        if not row.strip() or row.startswith("#"):
            continue
        if not (user and colon and text):
            raise ConfigError(f"{path}, line {number}: write USER:HASH, or run {_adding(path)}")
        found[user] = _parse(path, number, user, text)
    if not found:
        raise ConfigError(f"{path} has no user: {_adding(path)} adds one")
    return found


def read_secret(path: Path) -> str:
    """Return the one line of a file. Raises ConfigError if it has none or others may read it."""
    secret = _read_private(path).strip()
    if not secret or "\n" in secret:
        raise ConfigError(f"{path} must hold one line: the secret that the proxy sends")
    return secret


def _adding(path: Path, user: str = "NAME") -> str:
    return f"`outlast web --password-file {shell_word(str(path))} --add-user {shell_word(user)}`"


def _parse(path: Path, number: int, user: str, text: str) -> PasswordHash:
    try:
        salt, digest = map(_decode, text.removeprefix(_SCHEME).split("$"))
    except ValueError:
        salt = digest = b""
    if not text.startswith(_SCHEME) or len(digest) != DIGEST_BYTES:
        raise ConfigError(
            f"{path}, line {number}: the password of {user!r} is not hashed; plain-text passwords"
            f" are not allowed in this file. {_adding(path, user)} asks for the password and"
            " replaces the line"
        )
    return PasswordHash(salt, digest)


def _decode(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _read_private(path: Path) -> str:
    try:
        if stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(f"{path} can be read by others: chmod 600 {shell_word(str(path))}")
        return path.read_text()
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{path} cannot be read: {type(error).__name__}") from error


def put_user(path: Path, user: str, password: str) -> None:
    """Write a user and the hash of a password into a file, in place of that user's line if there is
    one. The file is replaced whole, with the mode 0600. Raises ConfigError."""
    if not _NAME.fullmatch(user):
        raise ConfigError(
            f"{user!r}: a user name must be one line without a colon, and not begin with #"
        )
    if len(password) < PASSWORD_LEAST:
        raise ConfigError(f"a password needs at least {PASSWORD_LEAST} characters")
    rows = _read_private(path).splitlines() if path.exists() else []
    kept = [row for row in rows if row.startswith("#") or row.strip().partition(":")[0] != user]
    _replace(path.resolve(), "\n".join([*kept, f"{user}:{hash_password(password)}", ""]))


def _replace(path: Path, text: str) -> None:
    try:
        number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(number, "w") as file:
                if path.exists():
                    known = path.stat()
                    os.fchown(number, known.st_uid, known.st_gid)
                file.write(text)
                file.flush()
                os.fsync(number)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        said = error.strerror or type(error).__name__
        raise ConfigError(f"{path} cannot be written: {said}") from error
