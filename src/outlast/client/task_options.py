"""Define and check the options of tasks and of their next jobs.

``TaskOptions`` is the only list of the options of a task. They become a ``Policy``, the limits that
are copied to each job, and a ``Placement``, where and when a job is to run.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, ParamSpec, Required, TypedDict, TypeVar

import msgspec

from outlast.base.config import check_name, check_seconds, check_whole
from outlast.client.error_rules import Backoff, Errors, Seconds
from outlast.client.limits import Limit
from outlast.errors import BadArguments, ConfigError, text_of
from outlast.model.job import OF_ONE_JOB, PRIORITY_MAX, PRIORITY_MIN, Policy
from outlast.payload.codec import to_json
from outlast.payload.option_words import meant_for_tasks, no_such_options
from outlast.store.values import OnKey, Placed, Wants

P = ParamSpec("P")
R = TypeVar("R")

META_MAX = 4_096  # bytes of JSON
LABELS_MAX = 8  # of a job
LABEL_MAX = 100  # characters
Check = Callable[[str, object], Any]
BUDGET_MAX = 10_000  # of retries and losses


class Placement(Placed, frozen=True, kw_only=True):
    """The options of a task's next jobs. ``followers``: what runs after a job, calls or flows, and
    after which of its ends."""

    keep: float | None = None
    meta: str | None = None
    labels: tuple[str, ...] | None = None
    cost: dict[str, float] | None = None
    limit_keys: dict[str, str] | None = None
    wait: float | None = None
    followers: tuple[tuple[Any, Wants], ...] = ()
    connection: Any = None

    def adjust(self, policy: Policy) -> Policy:
        """Return a task's limits with the options that are set for its next jobs only."""
        own = {name: getattr(self, name) for name in ("keep", "meta", "labels")}
        own = {name: value for name, value in own.items() if value is not None}
        return msgspec.structs.replace(policy, **own) if own else policy


class TaskOptions(TypedDict, total=False):
    """The options of ``@app.task(…)``. Each may be left out; None means no limit.

    Attributes:
        name: the name by which jobs call it; default: the function's name. An explicit name stays
            when the function is renamed, as do ``aliases``.
        queue: where its jobs wait; default: ``default``.
        retries: charged failures that are forgiven; one more and the job is dead; default 3.
        max_losses: lost workers in a row, without a new checkpoint, that are forgiven; default 10.
            A checkpoint equal to the one from which the attempt resumed is not new, even if
            encryption changes its bytes.
        backoff_first: seconds before the first retry; doubles each time; default 2.
        backoff_max: the most seconds that a retry waits; default 600.
        backoff: the seconds before a retry after an error, instead of these two: one number, a list
            with one for each failure (the last counts for all later ones), or a function that takes
            the exception and the number of failures and returns seconds, or None for the usual
            delay. Used exactly, without jitter.
        retry_on: the exceptions that are worth another attempt; any other ends the job ``dead`` at
            once. Default: all. StoreUnavailable and errors outside ``Exception`` (such as
            SystemExit) are always worth one, unless ``dead_on`` names them.
        dead_on: the exceptions that are not worth another attempt. If both lists match, the class
            nearest to the exception's own counts; a group is worth an attempt if every exception in
            it is.
        timeout: seconds that one attempt may run; default: no limit.
        stall_timeout: seconds that an attempt may go without ``report`` or ``save``; default:
            no limit.
        unresponsive_timeout: seconds for which an attempt may block the event loop of its runner,
            by a blocking call in an ``async def`` or by C code; default: no limit.
        cancel_grace: seconds between the request to stop an attempt and the kill of its
            runner; default 1. Raise it for tasks with a long clean-up.
        checkpoint: the type of its checkpoints, such as a dataclass: ``attempt.checkpoint`` has
            this type, ``save`` refuses values of another one, and a release with another type
            refuses a checkpoint that does not fit before the task begins. Default: any JSON, read
            as plain values.
        keep_running_when_isolated: whether an attempt continues while its worker cannot renew
            its lease; default: no. For work that may be done twice at the same time.
        priority: -100 to 100, larger first; default 0.
        expires: seconds from its enqueuing until a job that has not begun is ``cancelled``; once an
            attempt has begun, it has no effect; default: never.
        keep: seconds for which a job's row is kept once it has completed or was cancelled; 0: the
            commit that ends the job deletes the row, with its result; default: no limit of its own:
            the workers' setting (``keep_completed``). Dead jobs are kept in any case.
        logs: whether the output of its attempts is kept in the store as they run: the last 200
            lines, or 64 KiB, of each (``outlast logs ID``); default: no. Needs runners: a worker in
            process keeps none.
        aliases: further names that jobs may call it by, such as names in earlier releases.
        own_runner: whether an attempt has its runner process to itself; default, or None: yes
            for a plain function, no for an ``async def``.
        requires: tags such as ``["gpu"]``: only workers that have all of them run its jobs.
        uses: units of its worker that an attempt uses, such as ``{"gpu": 1}``: a worker with
            ``--has gpu=2`` runs at most two such attempts at once, a worker without units none.
        limits: limits from ``app.limit(…)``, counted over all workers: its jobs start only as these
            allow.
        fair: ``"tenant"``: tenants take turns, however many jobs one of them has waiting; default:
            first come, first served.
        aging: how many seconds of waiting a step of priority is worth: with 60, a job of priority 5
            starts before one of priority 0 that has waited less than 5 minutes longer, and after
            one that has waited more than that. Default: a higher priority always comes first.
    """

    name: str | None
    queue: str
    retries: int
    max_losses: int
    backoff_first: Seconds
    backoff_max: Seconds
    backoff: Backoff | None
    retry_on: Errors | None
    dead_on: Errors | None
    timeout: Seconds | None
    stall_timeout: Seconds | None
    unresponsive_timeout: Seconds | None
    cancel_grace: Seconds
    checkpoint: Any
    keep_running_when_isolated: bool
    priority: int
    expires: Seconds | None
    keep: Seconds | None
    logs: bool
    aliases: Sequence[str]
    own_runner: bool | None
    requires: Collection[str]
    uses: Mapping[str, int] | None
    limits: Sequence[Limit]
    fair: Literal["tenant"] | None
    aging: Seconds | None


class BatchOptions(TaskOptions, total=False):
    """The options of a task whose function takes a list: the items of many jobs in one call.

    Attributes:
        batch: the most items of one call, up to 1,000.
        batch_wait: the seconds that a call with fewer items waits for more, from its first item;
            default 1. Its jobs count as running meanwhile. At most 60; 3 with a ``timeout``.
    """

    batch: Required[int]
    batch_wait: Seconds


def check_known(options: Mapping[str, object]) -> None:
    """Raise ConfigError for options that no task has, or that have invalid plain values; it names
    all of them."""
    known = sorted(BatchOptions.__annotations__)
    unknown = sorted(options.keys() - {*known})
    if unknown:
        raise ConfigError(no_such_options("a task", meant_for_tasks(unknown, known), known))
    if wrong := [*filter(None, map(_find_fault, options.keys(), options.values()))]:
        raise ConfigError("; ".join(wrong))


def _find_fault(name: str, value: object) -> str | None:
    check = _PLAIN.get(name)
    try:
        if check is not None:
            check(name, value)
    except ConfigError as error:
        return text_of(error)
    return None


def refuse_unknown(
    what: str, meant: Callable[[Sequence[str], Collection[str]], dict[str, str | None]]
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of a function whose keywords are options: an unknown one raises
    ConfigError, with the option of ours that ``meant(unknown, known)`` has for it."""

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        known = sorted(inspect.signature(function).parameters.keys() - {"self"})

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            if unknown := sorted(kwargs.keys() - {*known}):
                raise ConfigError(no_such_options(what, meant(unknown, known), known))
            return function(*args, **kwargs)

        return checked

    return wrap


def make_policy(options: TaskOptions) -> Policy:
    """Return the limits, all in seconds. ConfigError names an invalid one.

    ``Policy`` defines which options are limits and their defaults; its types define how each is
    checked.
    """
    given = options.items()
    policy = Policy(**{name: _CHECKS[name](name, each) for name, each in given if name in _CHECKS})
    first, most = policy.backoff_first, policy.backoff_max
    if most < first:
        raise ConfigError(f"backoff_max ({most:g} s) is below backoff_first ({first:g} s)")
    return policy


def make_placement(options: TaskOptions) -> Placement:
    """Return where jobs go unless ``using`` overrides it."""
    usual = Placement()
    return Placement(
        queue=check_name("queue", options.get("queue", usual.queue)),
        priority=check_priority(options.get("priority", usual.priority)),
        expires=_or_none(check_limit)("expires", options.get("expires")),
    )


def check_moment(what: str, at: object) -> float:
    """Return an aware datetime as seconds since 1970, or raise ConfigError."""
    if not isinstance(at, datetime):
        raise ConfigError(f"{what} must be a datetime, not {type(at).__name__}")
    if at.utcoffset() is None:
        raise ConfigError(
            f"{what} must know its time zone, such as datetime(2030, 1, 1, 8, tzinfo=UTC);"
            f" {at.isoformat()} could be in any zone"
        )
    return at.timestamp()


def make_expiry(expires: object) -> dict[str, float | None]:
    """Return the fields of a placement that say when a job expires, or raise ConfigError."""
    if isinstance(expires, datetime):
        return {"expires": None, "expires_at": check_moment("expires", expires)}
    return {"expires": check_limit("expires", expires), "expires_at": None}


def make_meta(meta: object) -> str:
    """Return notes on a job as JSON text, or raise ConfigError."""
    if not isinstance(meta, Mapping) or not all(isinstance(name, str) for name in meta):
        raise ConfigError("meta must be a dict whose keys are texts, such as {'trace': '4bf9'}")
    try:
        text = to_json("meta", dict(meta))
    except BadArguments as error:
        raise ConfigError(text_of(error)) from error
    if len(text) > META_MAX:
        raise ConfigError(f"meta has {len(text)} bytes of JSON; {META_MAX} are allowed")
    return text.decode()


def make_labels(labels: object) -> tuple[str, ...]:
    """Return the labels of a job, each once, or raise ConfigError."""
    names = tuple(dict.fromkeys(check_names("labels", "a label", labels, "names")))
    if len(names) > LABELS_MAX:
        raise ConfigError(f"labels has {len(names)} names; {LABELS_MAX} are allowed")
    for name in names:
        if len(name) > LABEL_MAX:
            raise ConfigError(f"a label has {len(name)} characters; {LABEL_MAX} are allowed")
    return names


def make_on_key(
    debounce: object, debounce_max: object, until: object, on_conflict: object, once_per: object
) -> OnKey | None:
    """Return what an enqueue does about the job that has its key, or raise ConfigError; None: the
    usual."""
    if until not in {None, "start"}:
        raise ConfigError(
            f"until must be 'start', not {until!r}: without it, a job holds its key until it ends"
        )
    if on_conflict not in {None, "replace"}:
        raise ConfigError(
            f"on_conflict must be 'replace', not {on_conflict!r}: without it, the unfinished job"
            " that has the key is returned"
        )
    if once_per is not None:
        if any(each is not None for each in (debounce, debounce_max, until, on_conflict)):
            raise ConfigError("once_per cannot be combined with debounce, until or on_conflict")
        return OnKey(window=check_limit("once_per", once_per))
    if debounce is None:
        if debounce_max is not None:
            raise ConfigError("debounce_max needs debounce")
        if until is None and on_conflict is None:
            return None
        return OnKey(replaces=on_conflict is not None, until_start=until is not None)
    least = check_limit("debounce", debounce)
    most = None if debounce_max is None else check_limit("debounce_max", debounce_max)
    if most is not None and most < least:
        raise ConfigError(f"debounce_max ({most:g} s) is below debounce ({least:g} s)")
    return OnKey(replaces=True, until_start=True, due_max=most)


def check_order(placement: Placement) -> None:
    """Raise ConfigError for a job that expires before it is due, and for options of a key without
    one."""
    if placement.on_key is not None:
        if placement.key is None:
            raise ConfigError("once_per, debounce, until and on_conflict need a key: using(key=…)")
        if placement.after or placement.followers:
            raise ConfigError(
                "once_per, debounce, until and on_conflict cannot be combined with after, then or"
                " on_dead"
            )
    due, end = placement.run_at, placement.expires_at
    if due is None:
        due, end = placement.delay, placement.expires
    if end is not None and end <= due:
        raise ConfigError("expires must be later than the job is due, or the job would never run")


def check_priority(priority: object) -> int:
    """Return the priority, or raise ConfigError."""
    return check_whole("priority", priority, PRIORITY_MIN, PRIORITY_MAX)


def check_limit(what: str, seconds: object) -> float:
    """Return a span of time above zero in seconds, or raise ConfigError."""
    return check_seconds(what, seconds, above_zero=True)


def _check_flag(what: str, flag: object) -> bool:
    if not isinstance(flag, bool):
        raise ConfigError(f"{what} must be True or False")
    return flag


def _or_none(check: Check) -> Check:
    return lambda what, value: None if value is None else check(what, value)


_BY_TYPE: dict[Any, Check] = {
    int: lambda what, number: check_whole(what, number, 0, BUDGET_MAX),
    float: check_seconds,
    float | None: _or_none(check_limit),
    bool: _check_flag,
}
_CHECKS = {
    field.name: _BY_TYPE[field.type]
    for field in msgspec.structs.fields(Policy)
    if field.name not in OF_ONE_JOB
} | {"keep": _or_none(check_seconds)}
"""Limit -> how it is checked: by its type, but 0 is allowed for ``keep``."""


_PLAIN: dict[str, Check] = {
    **_CHECKS,
    "queue": check_name,
    "priority": lambda _, value: check_priority(value),
    "expires": _or_none(check_limit),
    "own_runner": lambda _, value: check_own_runner(value, default=False),
}
"""Option of a task -> how its value is checked, if that depends on nothing else."""


def check_names(what: str, one: str, names: object, such_as: str) -> Iterator[str]:
    """Yield checked names; ConfigError for a single name in place of a list."""
    if isinstance(names, str) or not isinstance(names, Collection):
        raise ConfigError(f"{what} must be a list of {such_as}, such as [{names!r}]")
    return (check_name(one, each) for each in names)


def check_own_runner(chosen: object, *, default: bool) -> bool:
    """Return whether an attempt has a runner to itself, or raise ConfigError."""
    if chosen is not None and not isinstance(chosen, bool):
        raise ConfigError("own_runner must be True, False or None")
    return default if chosen is None else chosen
