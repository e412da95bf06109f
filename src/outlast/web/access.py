"""Who looks at the page, and what that person may do there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum

from starlette.requests import Request

from outlast.errors import ConfigError


class Right(StrEnum):
    """What a user of the page may do.

    ``VIEW``: see anything at all. ``PAYLOAD``: also arguments, results, checkpoints and output.
    ``BULK``: act on all jobs of a filter, each verb by its own right besides.
    """

    VIEW = "view"
    PAYLOAD = "payload"
    REQUEUE = "requeue"
    CANCEL = "cancel"
    DISCARD = "discard"
    DRAIN = "drain"
    PAUSE = "pause"
    TRIGGER = "trigger"
    BULK = "bulk"


ANYONE = "anyone"  # the user of a page that asks for no name
EVERYTHING = frozenset(Right)
READING = frozenset({Right.VIEW, Right.PAYLOAD})


class Access:
    """A user of the page, and what that user may do.

    Attributes:
        user: the name under which actions are recorded.
        can: the rights: of ``view``, ``payload``, ``requeue``, ``cancel``, ``discard``, ``drain``,
            ``pause``, ``trigger`` (of schedules) and ``bulk``.
        tenant: the only tenant whose jobs are seen and touched; None: all jobs.

    Raises ConfigError for a right that does not exist, and for a user or a tenant without a name: a
    tenant that is empty by mistake must not mean all of them.
    """

    __slots__ = ("can", "tenant", "user")

    def __init__(self, user: str, *, can: Iterable[str], tenant: str | None = None) -> None:
        for what, name in (("user", user), ("tenant", tenant)):
            if not (isinstance(name, str) and name) and (what, name) != ("tenant", None):
                raise ConfigError(f"{what}={name!r}: it has to be a name")
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
        """Whether the user has this right; without ``view`` no other counts."""
        return Right.VIEW in self.can and right in self.can

    def may_see(self, tenant: str | None) -> bool:
        """Whether the user sees jobs of this tenant (None: of none)."""
        return self.tenant in {None, tenant}

    def reading(self) -> Access:
        """Return the same user without the rights to change anything."""
        return Access(self.user, can=self.can & READING, tenant=self.tenant)


Judge = Callable[[Request], Access | Awaitable[Access | None] | None]
"""What ``dashboard(access=…)`` takes: who the request is of; None: it is refused."""
