"""Defines limits as a store keeps them: arguments and results of its verbs about them.

The rules are pure (``model/limits.py``). A limit's row holds the values of the code and those of a
person, which win until they are reset. Permits and streams get their rows when the first job
arrives that needs them.
"""

from __future__ import annotations

import msgspec

from outlast.base.text import line, span
from outlast.model.limits import LimitSpec

FOLD_MAX = 500  # notices that one exchange folds
HOLD_MAX = 1e9  # seconds of a hold
IDLE_SECONDS = 86_400.0  # after which the rows of unused permits and streams are deleted
LIMITS_SHOWN = 1_000
PERMITS_SHOWN = 1_000
WAITING_SHOWN = 100  # jobs that are counted for each key
RUNNING_LOOKED_AT = 20_000  # running jobs
BLOCKING_LOOKED_AT = 1_000  # permits that block streams
LONG_LOCK_SECONDS = 5.0  # that a worker's transaction keeps the lock of limits
RECOUNT_SECONDS = 10.0  # for which a permit that blocks streams has not changed


class NewLimit(msgspec.Struct, frozen=True):
    """A limit that the code of a worker declares."""

    name: str
    spec: LimitSpec


class DeclaredTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """How jobs of a task wait, as the code of a worker says, for those that SQL enqueues.

    ``limits``: the names of its limits; ``fair``: whether tenants take turns; ``aging``: seconds of
    waiting that a step of priority is worth; ``priority``: its own.
    """

    name: str
    limits: tuple[str, ...] = ()
    fair: bool = False
    aging: float | None = None
    priority: int = 0

    @property
    def is_in_streams(self) -> bool:
        """Whether its jobs wait in streams."""
        return bool(self.limits) or self.fair or self.aging is not None


class CodeLimits(msgspec.Struct, frozen=True):
    """The limits that the code of a worker declares, and all its tasks, by each of their names."""

    limits: list[NewLimit] = []
    tasks: list[DeclaredTask] = []


class SetLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The values that a person sets, which hold until a reset; None leaves a field as it is.
    ``key``: of this tenant or limit key alone, for which only ``running`` can be set. ``reset``:
    first drop what was set before, of the key, or of the limit and all its keys."""

    name: str
    key: str | None = None
    running: int | None = None
    spacing: float | None = None
    burst: float | None = None
    reset: bool = False


def in_force(declared: LimitSpec | None, own: LimitSpec | None) -> LimitSpec:
    """Return the values in force: a person's, else the code's; ``per`` is always the code's."""
    spec = declared or LimitSpec(running=0)
    if own is None:
        return spec
    return LimitSpec(
        running=spec.running if own.running is None else own.running,
        spacing=spec.spacing if own.spacing is None else own.spacing,
        burst=own.burst or spec.burst,
        per=spec.per,
    )


def with_own(own: LimitSpec | None, new: SetLimit) -> LimitSpec | None:
    """Return a person's values with ``new`` over ``own``; None: there are none. A burst of 0 leaves
    it to the code."""
    if new.running is None and new.spacing is None and new.burst is None:
        return own
    before = own or LimitSpec(burst=0.0)
    return LimitSpec(
        running=before.running if new.running is None else new.running,
        spacing=before.spacing if new.spacing is None else new.spacing,
        burst=before.burst if new.burst is None else new.burst,
    )


class Hold(msgspec.Struct, frozen=True):
    """Lets nothing start under a permit for ``seconds``; 0 ends that. ``key`` "": all permits of
    the limit."""

    name: str
    key: str
    seconds: float


class LimitRow(msgspec.Struct, frozen=True, kw_only=True):
    """A limit: ``declared`` by the code, a person's ``own`` values, and those in force.
    ``permits``: how many keys have a permit; ``used``: running attempts; ``waiting``: due jobs that
    wait for it. ``at_least`` names those of the three whose count stopped at its bound.
    ``recounted_at``: when a wrong count was last corrected. Times in seconds since 1970."""

    name: str
    declared: LimitSpec | None = None
    own: LimitSpec | None = None
    running: int | None = None
    spacing: float | None = None
    burst: float = 1.0
    per: str | None = None
    held_until: float | None = None
    recounted_at: float | None = None
    permits: int = 0
    used: int = 0
    waiting: int = 0
    at_least: list[str] = []


class PermitRow(msgspec.Struct, frozen=True, kw_only=True):
    """A permit. ``running``: its cap. ``noted``: recorded ends that ``used`` still includes.
    ``opens_at``: when a start may follow if only time is missing. ``waiting``: due jobs that wait
    for it, up to 100."""

    id: int
    name: str
    key: str
    running: int | None
    used: int
    noted: int = 0
    tat: float = 0.0
    held_until: float | None = None
    opens_at: float | None = None
    waiting: int = 0


class StreamPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a queued job in a stream stands. ``ahead``: jobs before it in its stream.
    ``blocked_by``: the permit that blocks the stream, with the ``cost`` of a start there and the
    ``holders``, the jobs that run under it (id, worker's name, seconds), longest first. ``holder``:
    the job that has to end before another one of an ordered stream starts. ``throttled_by``: the
    job that has found the limit exhausted, and waits for the end of that hold. ``others``: the
    same for each other permit that it needs, which may have room."""

    ahead: int
    holder: int | None = None
    blocked_by: PermitRow | None = None
    limit: LimitRow | None = None
    cost: float = 1.0
    holders: list[tuple[int, str, float]] = []
    throttled_by: int | None = None
    others: list[StreamPlace] = []


class LockHolder(msgspec.Struct, frozen=True):
    """A session that holds ``lock``. ``may_work``: whether workers may have its role. ``seconds``:
    the age of its transaction, if that is known."""

    lock: str
    process: int
    role: str
    application: str
    may_work: bool
    seconds: float | None

    def __str__(self) -> str:
        whose = f"process {self.process}, application {line(self.application, 63)}"
        role, lock = line(self.role, 63), line(self.lock)
        if self.may_work:
            return f"The role {role} holds {lock} for {span(self.seconds or 0.0)} ({whose})"
        return f"The role {role} has taken {lock} ({whose})"

    @property
    def fix(self) -> str:
        """What to do about it."""
        end = f"SELECT pg_terminate_backend({self.process}) ends that session"
        if self.may_work:
            return f"{end}: a worker that is stopped or cut off may have left it."
        return f"{end}; keep the role from this database: REVOKE CONNECT ON DATABASE … FROM …."


class Miscounted(msgspec.Struct, frozen=True, kw_only=True):
    """A permit with a wrong count of running attempts; without a row it has no name."""

    name: str | None
    key: str | None
    counted: int | None
    holders: int


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """A stream with due jobs at which no worker would look. ``name``: a limit that blocks it and
    has room."""

    task: str
    queue: str
    name: str | None
    key: str | None
