"""Limits: ``app.limit(…)`` declares one in the code, ``app.limits`` changes all at run time.

A limit counts over the whole fleet. It is an object that tasks name in ``limits=[…]``; workers
announce it with their tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

import msgspec

from outlast.base.config import check_key, check_name, check_seconds, check_whole
from outlast.base.sync import blocking
from outlast.client.awaiting import running
from outlast.client.error_rules import Seconds
from outlast.client.stores import StoreProvider
from outlast.errors import BadData, ConfigError, NotInAttempt, UsageError, text_of
from outlast.insight.acting import hold_limit, set_limit
from outlast.model.limits import (
    COST_MAX,
    COST_MIN,
    LIMITS_MAX,
    RUNNING_MAX,
    LimitSpec,
    Need,
    Per,
    needs_text,
    parse_rate,
    permit_id,
    stream_id,
)
from outlast.payload.option_words import near, no_such_options
from outlast.store.limits import Hold, LimitRow, NewLimit, PermitRow, SetLimit
from outlast.store.values import Answer, NewJob

_NONE: Mapping[str, Any] = {}
_WORDS = {
    "concurrency": "running",
    "max_concurrency": "running",
    "concurrency_limit": "running",
    "limit": "running",
    "count": "running",
    "rate_limit": "rate",
    "key": "per",
    "by": "per",
}
"""What other queues call an option of a limit."""


class LimitOptions(TypedDict, total=False):
    """What a limit allows: a count, a rate, or both.

    Attributes:
        running: how many attempts may run at once.
        rate: how many may start in a span of time, such as ``"600/min"``, ``"5/s"`` or
            ``"100/15min"``.
        burst: how many of these may start at once; default: what the rate brings in a second, at
            least 1. In any span of w seconds at most ``burst`` plus w seconds' worth of the rate
            start.
        per: ``"tenant"``: each tenant has a count and a rate of its own; ``"limit_key"``: each
            key that the job brings, ``using(limit_keys={"host": "example.org"})``; default: one for
            all.
        ordered: with ``running=1``: strict order. The next job of a task (with the same queue, and
            the same tenant or key) starts once the one before it has ended for good, even if that
            one has to wait for a retry.
    """

    running: int | None
    rate: str | None
    burst: float | None
    per: Literal["tenant", "limit_key"] | None
    ordered: bool


class Limit:
    """A limit that the code declares with ``app.limit(…)``, for ``@app.task(limits=[…])``.

    Attributes:
        name: its name, unique in the store.
        spec: what it allows.
    """

    name: str
    spec: LimitSpec

    def __init__(self, name: str, spec: LimitSpec, stores: StoreProvider) -> None:
        self.name = name
        self.spec = spec
        self.stores = stores

    def __repr__(self) -> str:
        return f"<Limit {self.name}>"

    async def spend(self, cost: float) -> None:
        """Take more of this limit's rate, once the running attempt knows what it has used, such as
        the tokens of an answer. Later starts wait until the rate has made up for it, even for more
        than the burst; nothing can be given back. Does nothing where a call is tried without a
        worker (``inline``, ``outlast run-task``).

        Raises:
            NotInAttempt: no attempt runs here.
            UsageError: the job was enqueued by a task without this limit.
            ConfigError: ``cost`` is not a number from 0.000001 to 1,000,000.
            LostLease: the attempt has lost its job.
            StoreUnavailable: whether it was taken is not known.
        """
        try:
            await _spend(self, _check_cost("cost", cost))
        except BadData as error:
            raise UsageError(text_of(error)) from error

    spend_sync = blocking(spend)


async def _spend(limit: Limit, cost: float) -> None:
    if (attempt := running.get(None)) is None:
        raise NotInAttempt
    if not attempt.token:  # tried without a store: inline, run-task
        return
    answer = await limit.stores.ask(
        lambda store: store.spend(attempt.job_id, attempt.token, limit.name, cost)
    )
    if answer is Answer.REFUSED:
        raise attempt._lost("its spending was refused")  # noqa: SLF001


def make_limit_spec(options: Mapping[str, object]) -> LimitSpec:
    """Return what a limit allows, checked. ConfigError names an invalid option."""
    known = LimitOptions.__annotations__
    if unknown := sorted(options.keys() - known.keys()):
        meant = {name: _WORDS.get(name) or near(name, known) for name in unknown}
        raise ConfigError(no_such_options("a limit", meant, known))
    running, rate, burst = (options.get(name) for name in ("running", "rate", "burst"))
    if running is None and rate is None:
        raise ConfigError("a limit needs running=20 (at once), rate='600/min' (starts), or both")
    if burst is not None and rate is None:
        raise ConfigError("burst belongs to a rate: give rate='600/min'")
    spacing = None if rate is None else parse_rate(str(rate))
    if not isinstance(ordered := options.get("ordered", False), bool):
        raise ConfigError(f"ordered must be True or False, not {ordered!r}")
    if ordered and running != 1:
        raise ConfigError("ordered=True needs running=1: one job at a time")
    return LimitSpec(
        running=None if running is None else check_whole("running", running, 0, RUNNING_MAX),
        spacing=spacing,
        burst=_usual_burst(spacing) if burst is None else _check_burst(burst),
        per=_check_per(options.get("per")),
        ordered=ordered,
    )


def _usual_burst(spacing: float | None) -> float:
    return 1.0 if spacing is None else max(1.0, float(int(1.0 / spacing)))


def _check_burst(burst: object) -> float:
    if isinstance(burst, bool) or not isinstance(burst, (int, float)) or not 1 <= burst <= COST_MAX:
        raise ConfigError(f"burst must be a number from 1 to {COST_MAX:,.0f}, not {burst!r}")
    return float(burst)


def _check_cost(what: str, cost: object) -> float:
    of_kind = isinstance(cost, (int, float)) and not isinstance(cost, bool)
    number: float = cost if of_kind else 0.0  # type: ignore[assignment]
    if not COST_MIN <= number <= COST_MAX:
        raise ConfigError(
            f"{what} must be a number from {COST_MIN:f} to {COST_MAX:,.0f}, not {cost!r}"
        )
    return float(number)


def _check_per(per: object) -> Per | None:
    if per is None:
        return None
    try:
        return Per(str(per))
    except ValueError:
        raise ConfigError(f"per must be 'tenant' or 'limit_key', not {per!r}") from None


def make_set_limit(
    name: str,
    *,
    key: str | None = None,
    running: int | None = None,
    rate: str | None = None,
    burst: float | None = None,
) -> SetLimit:
    """Return the values that a person sets, checked. ConfigError names a wrong one."""
    if running is None and rate is None and burst is None:
        raise ConfigError("say what to set: running=40, rate='600/min' or burst=50")
    if key is not None and (rate is not None or burst is not None):
        raise ConfigError("for one key only running=… can be set")
    spacing = None if rate is None else parse_rate(rate)
    usual = None if rate is None else _usual_burst(spacing)
    return SetLimit(
        name=check_name("a limit's name", name),
        key=None if key is None else check_key("key", key),
        running=None if running is None else check_whole("running", running, 0, RUNNING_MAX),
        spacing=spacing,
        burst=usual if burst is None else _check_burst(burst),
    )


# -- what a task and a job say about limits


def check_limits(limits: object) -> tuple[Limit, ...]:
    """Return the limits of a task, or raise ConfigError."""
    if isinstance(limits, (str, Limit)) or not isinstance(limits, Iterable):
        raise ConfigError("limits must be a list of limits from app.limit(…), such as [openai]")
    found = tuple(limits)
    for each in found:
        if not isinstance(each, Limit):
            raise ConfigError(f"limits must be a list of limits from app.limit(…), not of {each!r}")
    if len({each.name for each in found}) < len(found):
        raise ConfigError("limits names a limit twice")
    if len(found) > LIMITS_MAX:
        raise ConfigError(f"limits has {len(found)} limits; {LIMITS_MAX} are allowed")
    return found


def check_fair(fair: object) -> Literal["tenant"] | None:
    """Return by what the jobs of a task take turns, or raise ConfigError."""
    if fair is None:
        return None
    if fair == "tenant":
        return "tenant"
    raise ConfigError(f"fair must be 'tenant' or None, not {fair!r}")


def check_aging(aging: object) -> float | None:
    """Return how many seconds of waiting a step of priority is worth, or raise ConfigError."""
    return None if aging is None else check_seconds("aging", aging, above_zero=True)


def make_costs(cost: object) -> dict[str, float]:
    """Return what a job takes of the rates of limits, by name, or raise ConfigError."""
    if not isinstance(cost, Mapping):
        raise ConfigError("cost must map names of limits to numbers, such as {'openai': 3}")
    return {
        check_name("a limit's name", name): _check_cost(f"the cost of {name!r}", each)
        for name, each in cost.items()
    }


def make_limit_keys(keys: object) -> dict[str, str]:
    """Return the keys that a job brings for limits, by name, or raise ConfigError."""
    if not isinstance(keys, Mapping):
        raise ConfigError("limit_keys must map names of limits to keys: {'host': 'example.org'}")
    for name, key in keys.items():
        check_name("a limit's name", name)
        check_key(f"the key of {name!r}", key)
    return {str(name): str(key) for name, key in keys.items()}


def _check_order(
    task: str, limit: Limit, limits: Sequence[Limit], costs: Mapping[str, float]
) -> None:
    """Refuse options that would spread the jobs of one key of an ordered limit over streams."""
    if costs:
        raise ConfigError(
            f"{task} is under the ordered limit {limit.name!r}: jobs of other costs would overtake"
        )
    for other in limits:
        same = limit.spec.per is Per.TENANT is other.spec.per
        if other is not limit and other.spec.per is not None and not same:
            raise ConfigError(
                f"{task} is under the ordered limit {limit.name!r}: jobs with other keys of"
                f" {other.name!r} would overtake"
            )


def find_needs(
    task: str,
    limits: Sequence[Limit],
    *,
    tenant: str | None,
    costs: Mapping[str, float],
    keys: Mapping[str, str],
) -> list[Need]:
    """Return the permits that a job of a task needs. ConfigError if it lacks a key, or brings a key
    or a cost for a limit that its task is not under."""
    keyed = {each.name for each in limits if each.spec.per is Per.LIMIT_KEY}
    rated = {each.name: each for each in limits if each.spec.spacing is not None}
    if unknown := sorted(keys.keys() - keyed):
        raise ConfigError(f"{task} is under no limit per='limit_key' called {unknown[0]!r}")
    if unknown := sorted(costs.keys() - rated.keys()):
        raise ConfigError(f"{task} is under no limit with a rate called {unknown[0]!r}")
    for name, cost in costs.items():
        if cost > (burst := rated[name].spec.burst):
            raise ConfigError(
                f"a cost of {cost:g} is above the burst of {name!r}, {burst:g}: it can never start"
            )
    for each in limits:
        if each.spec.ordered:
            _check_order(task, each, limits, costs)
    return [
        Need(
            permit_id(each.name, key),
            each.name,
            key,
            costs.get(each.name, 1.0),
            each.spec.ordered,
        )
        for each in limits
        for key in [_key_of(task, each, tenant, keys)]
    ]


def _key_of(task: str, limit: Limit, tenant: str | None, keys: Mapping[str, str]) -> str:
    if limit.spec.per is None:
        return ""
    if limit.spec.per is Per.TENANT:
        if tenant is None:
            raise ConfigError(
                f"{task} is under {limit.name!r}, a limit per tenant: say whose job it is,"
                f" {task}.using(tenant='acme'), or --tenant acme"
            )
        return tenant
    if limit.name not in keys:
        raise ConfigError(
            f"{task} is under {limit.name!r}, a limit per limit_key: say which,"
            f" {task}.using(limit_keys={{{limit.name!r}: 'example.org'}}), or --limit-key"
            f" {limit.name}=example.org"
        )
    return keys[limit.name]


def in_stream(
    job: NewJob,
    limits: Sequence[Limit],
    *,
    own_priority: int,
    fair: str | None = None,
    aging: float | None = None,
    costs: Mapping[str, float] = _NONE,
    keys: Mapping[str, str] = _NONE,
) -> NewJob:
    """Return a job with its stream and the permits that it needs; ConfigError as ``find_needs``.
    Tenants that take turns each have a stream; jobs without a tenant share one. Where waiting
    raises priorities, all of them share a stream. ``own_priority``: that of its task."""
    needs = find_needs(job.task, limits, tenant=job.tenant, costs=costs, keys=keys)
    if not needs and fair is None and aging is None:
        return job
    if job.priority != own_priority and any(need.ordered for need in needs):
        raise ConfigError(
            f"{job.task} is under an ordered limit: all its jobs have its own priority,"
            f" {own_priority}, so that none overtakes another; this one has {job.priority}"
        )
    tenant = None if fair is None else job.tenant or ""
    aged_by = None if aging is None else job.priority * aging
    priority = job.priority if aged_by is None else None
    stream = stream_id(job.task, job.queue, priority, needs, tenant)
    return msgspec.structs.replace(job, stream=stream, needs=needs_text(needs), aged_by=aged_by)


# -- at run time


class Limits:
    """The limits of an application's store: ``app.limits``.

    A value that is set here overrides the code, on all workers, until it is reset. Jobs that a
    change allows start within about a second; running attempts continue if a limit is lowered
    below their number.

    Attributes:
        declared: the limits of this application's code, by name.
    """

    declared: dict[str, Limit]

    def __init__(self, stores: StoreProvider) -> None:
        self._stores = stores
        self.declared = {}

    def __repr__(self) -> str:
        return f"<Limits: {len(self.declared)} of the code>"

    def _make(self, name: str, options: Mapping[str, object]) -> Limit:
        """Return a limit, which is not yet declared. ConfigError names a wrong option."""
        check_name("a limit's name", name)
        if name in self.declared:
            raise ConfigError(
                f"another limit is already called {name!r}: use that one, or give this another name"
            )
        return Limit(name, make_limit_spec(options), self._stores)

    def _declare(self, name: str, options: Mapping[str, object]) -> Limit:
        """Note a limit of the code, for ``App.limit``."""
        self.declared[name] = made = self._make(name, options)
        return made

    def _news(self) -> list[NewLimit]:
        """Return what workers announce."""
        return [NewLimit(each.name, each.spec) for each in self.declared.values()]

    async def set(
        self,
        name: str,
        *,
        key: str | None = None,
        running: int | None = None,
        rate: str | None = None,
        burst: float | None = None,
    ) -> None:
        """Change a limit until ``reset``; an option that is left out stays as it is.

        Args:
            name: the limit.
            key: one tenant or limit key, if the limit counts ``per`` such; only with ``running``.
            running: how many attempts may run at once; 0: none starts.
            rate: such as ``"600/min"``.
            burst: how many may start at once under the rate.

        Raises:
            LimitNotFound: no code has declared such a limit.
            ConfigError: a value is invalid.
        """
        await self._set(make_set_limit(name, key=key, running=running, rate=rate, burst=burst))

    set_sync = blocking(set)  # noqa: A003

    async def reset(self, name: str, *, key: str | None = None) -> None:
        """Drop the values that were set: for one key, or for the limit and all its keys.
        LimitNotFound."""
        await self._set(SetLimit(name=name, key=key, reset=True))

    reset_sync = blocking(reset)

    async def hold(self, name: str, seconds: Seconds, *, key: str | None = None) -> None:
        """Let nothing start under a limit for this many seconds (or a timedelta); 0 ends that.

        ``key``: of this tenant or limit key alone. Raises LimitNotFound.
        """
        held = Hold(name, key or "", check_seconds("seconds", seconds))
        await self._stores.ask(lambda store: hold_limit(store, held, None))

    hold_sync = blocking(hold)

    async def list(self) -> Sequence[LimitRow]:
        """Return all limits by name, with their use."""
        return await self._stores.ask(lambda store: store.inspector.limits())

    list_sync = blocking(list)  # noqa: A003

    async def permits(self, name: str) -> Sequence[PermitRow]:
        """Return the permits of a limit that are in use, for the 1,000 busiest keys."""
        return await self._stores.ask(lambda store: store.inspector.permits(name))

    permits_sync = blocking(permits)

    async def _set(self, new: SetLimit) -> None:
        await self._stores.ask(lambda store: set_limit(store, new, None))
