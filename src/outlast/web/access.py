"""Define a user of the page, and what that user may do there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum

from starlette.requests import Request

from outlast.errors import ConfigError


class Right(StrEnum):
    """What a user of the page may do.

    ``VIEW``: see the page at all. ``PAYLOAD``: also see arguments, results, checkpoints and output.
    ``BULK``: act on all jobs of a filter; each verb needs its own right as well.
    """

    VIEW = "view"
    PAYLOAD = "payload"
    REQUEUE = "requeue"
    CANCEL = "cancel"
    DISCARD = "discard"
    DRAIN = "drain"
    PAUSE = "pause"
    TRIGGER = "trigger"
    LIMIT = "limit"
    BULK = "bulk"


ANYONE = "anyone"  # the user of a page without sign-in
EVERYTHING = frozenset(Right)
READING = frozenset({Right.VIEW, Right.PAYLOAD})


class Access:
    """A user of the page, and what that user may do.

    Attributes:
        user: the user name written to the record of actions.
        can: the rights, out of ``view``, ``payload``, ``requeue``, ``cancel``, ``discard``,
            ``drain``, ``pause``, ``trigger`` (of schedules; events), ``limit`` and ``bulk``.
        tenant: the only tenant whose jobs the user may see and act on; None: all jobs.

    Raises ConfigError for a right that does not exist, and for an empty user or tenant: a tenant
    that is empty by mistake must not mean all tenants.
    """

    __slots__ = ("can", "tenant", "user")

    def __init__(self, user: str, *, can: Iterable[str], tenant: str | None = None) -> None:
        for what, name in (("user", user), ("tenant", tenant)):
            if not (isinstance(name, str) and name) and (what, name) != ("tenant", None):
                raise ConfigError(f"{what}={name!r}: it must be a name")
        self.user = user
        self.tenant = tenant
        try:
            self.can = frozenset(map(Right, [can] if isinstance(can, str) else can))
        except ValueError:
            known = ", ".join(Right)
            raise ConfigError(f"can={can!r}: rights are {known}") from None

    def __repr__(self) -> str:
        return f"<Access of {self.user!r}: {', '.join(sorted(self.can)) or 'nothing'}>"

    def may(self, right: str) -> bool:
        """Whether the user has this right; without ``view`` no other right counts."""
        return Right.VIEW in self.can and right in self.can

    def may_see(self, tenant: str | None) -> bool:
        """Whether the user may see jobs of this tenant (None: jobs without a tenant)."""
        return self.tenant in {None, tenant}

    def reading(self) -> Access:
        """Return the same user without the rights to change anything."""
        return Access(self.user, can=self.can & READING, tenant=self.tenant)


Judge = Callable[[Request], Access | Awaitable[Access | None] | None]
"""The type of ``dashboard(access=…)``: returns the user of a request; None: it is refused."""
