"""Tasks whose function takes the items of many jobs in one call: ``@app.task(batch=500)``.

A job is still one item, with its own attempt, token, lease and end. Only the call is shared.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, get_args, get_origin

from outlast.base.config import check_seconds, check_whole
from outlast.base.credentials import hide_logins
from outlast.client.task import Task
from outlast.errors import ConfigError, ItemErrors, UsageError
from outlast.model.crash import Progress
from outlast.payload.codec import class_of, format_annotation
from outlast.payload.signature import read_annotations, read_parameters

if TYPE_CHECKING:
    from outlast.client.attempt import Link

T = TypeVar("T")
R = TypeVar("R")

BATCH_MAX = 1_000
WAIT_SECONDS = 1.0  # unless batch_wait is given
WAIT_SECONDS_MAX = 60.0  # its jobs are running meanwhile, and hold a runner and their permits
WAIT_SECONDS_MAX_TIMED = 3.0  # with a timeout: the deadline on a row counts from the claim
_LISTS = {list, Sequence, Collection, Iterable}
_NOTHING = (None, type(None))
_OF_ONE = {
    "checkpoint": "a batch saves none",
    "logs": "its output does not belong to a single job",
    "own_runner": "a batch has a runner to itself",
    "stall_timeout": "timeout bounds its call",
    "unresponsive_timeout": "timeout bounds its call",
    "uses": "each of its jobs would count separately; choose workers by requires",
}
_USUAL: dict[str, object] = {"checkpoint": Any, "logs": False, "own_runner": True, "uses": {}}
_REFUSED = (
    "save, step, sleep, spawn, wait_for, wait_event and complete_in are for a task that takes one"
    " job: a batch is one call for many, and each of them ends with its item"
)


class BatchTask(Task[[T], R]):
    """A task whose function takes a list of items and returns a list of their results. A job is one
    item: ``await index.enqueue(item)``.

    Attributes:
        batch: the most items of one call.
        batch_wait: the seconds that a call waits for more items, from its first.
    """

    batch: int
    batch_wait: float

    def __init__(self, fn: Callable[..., Any], *args: Any) -> None:
        options: Mapping[str, Any] = args[-1]
        super().__init__(fn, *args)
        self.batch, self.batch_wait = check_batch(options)
        self.own_runner = True

    def _of_one(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        return _item_function(fn, self.name)

    def __call__(self, items: list[T], /) -> Any:  # type: ignore[override]
        """Call the function directly, with a list of items."""
        return self.fn(items)  # type: ignore[arg-type]


def check_batch(options: Mapping[str, Any]) -> tuple[int, float]:
    """Return the options of a batch, or raise ConfigError."""
    for name, why in _OF_ONE.items():
        if options.get(name) is not None and options[name] != _USUAL.get(name):
            raise ConfigError(f"batch cannot be combined with {name}: {why}")
    wait = check_seconds("batch_wait", options.get("batch_wait", WAIT_SECONDS), above_zero=True)
    is_timed = options.get("timeout") is not None
    most = WAIT_SECONDS_MAX_TIMED if is_timed else WAIT_SECONDS_MAX
    if wait > most:
        timed = " for a task with a timeout" if is_timed else ""
        raise ConfigError(
            f"batch_wait may be at most {most:g} s{timed}: jobs stay claimed while they wait"
        )
    return check_whole("batch", options["batch"], 1, BATCH_MAX), wait


def _item_function(fn: Callable[..., Any], task: str) -> Callable[..., Any]:
    """Return a function with the parameter and the result of one item, for its signature."""
    parameters = list(read_parameters(fn, task).parameters.values())
    kinds = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    if len(parameters) != 1 or parameters[0].kind not in kinds:
        raise ConfigError(
            f"task {task}: with batch=… a function takes one parameter, the list of its items, such"
            " as items: list[str]"
        )
    hints, (parameter,) = read_annotations(fn), parameters
    item = _element(hints.get(parameter.name, Any))
    if item is None:
        told = format_annotation(hints[parameter.name])
        raise ConfigError(
            f"task {task}: with batch=… the parameter {parameter.name!r} must be a list, such as"
            f" list[str], not {told}"
        )
    returns = hints.get("return", Any)
    result = None if returns in _NOTHING else _element(returns)
    if result is None and returns not in _NOTHING:
        raise ConfigError(
            f"task {task}: with batch=… a function must return a list with a result for each item,"
            f" or None, not {format_annotation(returns)}"
        )

    def one() -> None: ...

    only = parameter.replace(annotation=item, default=parameter.empty)
    one.__signature__ = inspect.Signature([only])  # type: ignore[attr-defined]
    one.__annotations__ = {parameter.name: item, "return": result}
    return one


def _element(annotation: Any) -> Any:
    """Return the type of the elements of a list; None if the annotation is of no list."""
    if annotation is Any or annotation in _LISTS:
        return Any
    return get_args(annotation)[0] if get_origin(annotation) in _LISTS else None


def sort_out(
    count: int, returned: Any, failed: ItemErrors | None = None
) -> list[tuple[Any, BaseException | None]]:
    """Return the result of each of ``count`` items, or its exception, from what the function
    returned or raised. UsageError if that does not fit the items."""
    errors = {} if failed is None else failed.errors
    results = returned if failed is None else failed.results
    if beyond := [place for place in errors if place >= count]:
        raise UsageError(
            f"ItemErrors names item {min(beyond)}, but the batch has {count}, counted from 0"
        )
    if results is None:
        results = [None] * count
    if not isinstance(results, (list, tuple)) or len(results) != count:
        is_list = isinstance(results, (list, tuple))
        found = f"{len(results)} results" if is_list else f"an object of class {class_of(results)}"
        where = "returned" if failed is None else "gave to ItemErrors"
        raise UsageError(
            f"a batch of {count} items needs as many results, but its task {where} {found}: give a"
            " list in the order of the items, or None"
        )
    return [(result, errors.get(place)) for place, result in enumerate(results)]


def function_of_one(task: Task[..., Any]) -> Callable[..., Any]:
    """Return the function of a task as one job calls it: a batch is then one of one item."""
    fn: Callable[..., Any] = task.fn
    if not task.batch:
        return fn

    def take(returned: Any, failed: ItemErrors | None = None) -> Any:
        ((result, error),) = sort_out(1, returned, failed)
        if error is not None:
            raise error
        return result

    @functools.wraps(fn)
    async def call(item: Any) -> Any:
        try:
            return take(await fn([item]))
        except ItemErrors as error:
            return take(None, error)

    @functools.wraps(fn)
    def call_plain(item: Any) -> Any:
        try:
            return take(fn([item]))
        except ItemErrors as error:
            return take(None, error)

    return call if task.is_async else call_plain


class BatchLink:
    """The ``Link`` of an attempt in a batch. It passes reports on, and refuses calls that only a
    job that runs by itself may make."""

    store_id: str

    def __init__(self, link: Link) -> None:
        self._link = link
        self.hide: Callable[[str], str] = getattr(link, "hide", hide_logins)

    @property
    def worker_id(self) -> int:
        """The id of the worker."""
        return self._link.worker_id

    def __getattr__(self, name: str) -> NoReturn:
        if name == "store_id":  # a transaction of the task asks for it
            self.refuse()
        raise AttributeError(name)

    def report(self, token: int, progress: Progress) -> None:
        """Pass on progress."""
        self._link.report(token, progress)

    def refuse(self, *_: object, **__: object) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(_REFUSED)

    save = step = refuse
