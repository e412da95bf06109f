"""Keep people's passwords in a file of users, each as a hash that is slow to compute.

A line is ``USER:$scrypt$ln=14,r=8,p=5$SALT$DIGEST``: the name, the parameters of scrypt, salt and
digest in base 64. With the parameters in the line, other costs can be chosen later and old lines
stay valid.
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
from outlast.errors import ConfigError

PASSWORD_LEAST = 8  # characters
SALT_BYTES, DIGEST_BYTES = 16, 32
MEMORY_MAX = 64 * 1024 * 1024  # bytes for one hash
LANES_MAX = 16
_HASH = re.compile(r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})\$([\w+/=]+)\$([\w+/=]+)")
_NAME = re.compile(r"[^\s:#\x00-\x1f\x7f][^:\x00-\x1f\x7f]*(?<!\s)")
_SCHEME = "$scrypt$"


class Cost(NamedTuple):
    """The parameters of scrypt: 2**ln rounds over blocks of r * 128 bytes, p times."""

    ln: int = 14
    r: int = 8
    p: int = 5

    @property
    def memory(self) -> int:
        """How many bytes one hash takes."""
        return 128 * self.r * ((1 << self.ln) + self.p + 2)


class PasswordHash(NamedTuple):
    """The stored form of a password."""

    cost: Cost
    salt: bytes
    digest: bytes

    def is_of(self, password: str) -> bool:
        """Whether this is the password. It takes some tenths of a second, and 16 MiB; the GIL is
        free meanwhile."""
        return hmac.compare_digest(_digest(password, self.salt, self.cost), self.digest)

    def __str__(self) -> str:
        ln, r, p = self.cost
        return f"{_SCHEME}ln={ln},r={r},p={p}${_base64(self.salt)}${_base64(self.digest)}"


def hash_password(password: str, cost: Cost | None = None) -> PasswordHash:
    """Return a hash of a password, with a new salt."""
    chosen, salt = cost or Cost(), secret_bytes(SALT_BYTES)
    return PasswordHash(chosen, salt, _digest(password, salt, chosen))


def decoy_for(cost: Cost) -> PasswordHash:
    """Return a hash that matches no password, and takes as long to check as others."""
    return PasswordHash(cost, secret_bytes(SALT_BYTES), secret_bytes(DIGEST_BYTES))


def _digest(password: str, salt: bytes, cost: Cost) -> bytes:
    return hashlib.scrypt(
        password.encode(),
        salt=salt,
        n=1 << cost.ln,
        r=cost.r,
        p=cost.p,
        maxmem=2 * MEMORY_MAX,
        dklen=DIGEST_BYTES,
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def read_users(path: Path) -> dict[str, PasswordHash]:
    """Return the users of a file. Raises ConfigError if it cannot be used, if others may read it,
    or if it holds a password in plain text."""
    found: dict[str, PasswordHash] = {}
    for number, row in enumerate(_read_private(path).splitlines(), 1):
        user, colon, text = row.strip().partition(":")
        if not row.strip() or row.startswith("#"):
            continue
        if not (user and colon and text):
            raise ConfigError(f"{path}, line {number}: write USER:HASH, or let {_adding(path)}")
        found[user] = _parse(path, number, user, text)
    if not found:
        raise ConfigError(f"{path} has no user: {_adding(path)} adds one")
    return found


def read_secret(path: Path) -> str:
    """Return the one line of a file. Raises ConfigError if it has none or others may read it."""
    secret = _read_private(path).strip()
    if not secret or "\n" in secret:
        raise ConfigError(f"{path} has to hold one line: the secret that the proxy sends")
    return secret


def _adding(path: Path, user: str = "NAME") -> str:
    return f"`outlast web --password-file {path} --add-user {user}`"


def _parse(path: Path, number: int, user: str, text: str) -> PasswordHash:
    where = f"{path}, line {number}"
    if not text.startswith(_SCHEME):
        raise ConfigError(
            f"{where}: the password of {user!r} is no hash; passwords as they are have no place in"
            f" a file. {_adding(path, user)} asks for it, and replaces the line"
        )
    try:
        parts = _HASH.fullmatch(text)
        if parts is None:
            raise ValueError(text)
        ln, r, p = (int(part) for part in parts.groups()[:3])
        salt, digest = (base64.b64decode(part, validate=True) for part in parts.groups()[3:])
    except ValueError:
        raise ConfigError(f"{where}: {_adding(path, user)} has not written that hash") from None
    cost = Cost(ln, r, p)
    fits = ln > 0 and r > 0 and 0 < p <= LANES_MAX and cost.memory <= MEMORY_MAX
    if not fits or len(digest) != DIGEST_BYTES:
        raise ConfigError(f"{where}: ln={ln},r={r},p={p} is beyond what is checked here")
    return PasswordHash(cost, salt, digest)


def _read_private(path: Path) -> str:
    try:
        if stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(f"{path} can be read by others: chmod 600 {path}")
        return path.read_text()
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{path} cannot be read: {type(error).__name__}") from error


def put_user(path: Path, user: str, password: str) -> None:
    """Write a user and the hash of a password into a file, in place of that user's line if there is
    one. The file is replaced whole, with the mode 0600. Raises ConfigError."""
    if not _NAME.fullmatch(user):
        raise ConfigError(f"{user!r}: a name has no colon, begins with no #, and is one line")
    if len(password) < PASSWORD_LEAST:
        raise ConfigError(f"a password has {PASSWORD_LEAST} characters at least")
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
