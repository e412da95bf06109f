"""Turns values into arguments of statements on PostgreSQL, and rows into values."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from outlast.errors import BadData, text_of
from outlast.store.new_rows import OWN, PATHS, SHARED, TIMED
from outlast.store.statements import statements

if TYPE_CHECKING:
    from outlast.model.lifecycle import Transition
    from outlast.store.values import NamedStep, NewJob, Report, Save

_encode = msgspec.json.Encoder().encode

_NAMED = re.compile(r"(?<![:\w]):([a-z_]+)")


@cache
def numbered(topic: str, name: str) -> tuple[str, list[str], list[str]]:
    """Return a statement with numbered parameters, and their names in the order of the numbers:
    first the columns of a job, then the others."""
    text = statements("postgres", topic)[name]
    names = dict.fromkeys(_NAMED.findall(text))
    columns = [each for each in names if each in PATHS]
    others = [each for each in names if each not in PATHS]
    numbers = {each: f"${number}" for number, each in enumerate([*columns, *others], 1)}
    return _NAMED.sub(lambda found: numbers[found[1]], text), columns, others


@cache
def _reader_of(topic: str, name: str) -> Callable[[NewJob], tuple[Any, ...]]:
    """Return the function that reads the columns of a statement, at least two, of a job."""
    return attrgetter(*(PATHS[each] for each in numbered(topic, name)[1]))


def fetch(
    connection: Any, topic: str, name: str, values: Mapping[str, Any], job: NewJob | None = None
) -> Awaitable[Any]:
    """Return the rows of a statement; columns of a job are read of this one, if there is one."""
    text, columns, others = numbered(topic, name)
    given = [values[each] for each in columns] if job is None else _reader_of(topic, name)(job)
    rows: Awaitable[Any] = connection.fetch(text, *given, *[values[each] for each in others])
    return rows


Pair = tuple[int, int]  # a job's id and the token of an attempt, which guard each write about it


def pair_of(item: Transition | Save | Report | NamedStep) -> Pair:
    return item.job_id, item.token


def to_json(value: Any) -> str:
    """Return JSON text. Raises BadData for a lone surrogate."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError as error:
        raise BadData(f"not a text that can be stored: {text_of(error)}") from error


def storable(name: str, codec: str) -> str:
    """Return a name with escapes for characters that the database's encoding lacks. No row has such
    a name, so neither finds any, but the server refuses a name that it cannot convert."""
    return name.encode(codec, "backslashreplace").decode(codec)


def array_text(values: Iterable[float | str | None]) -> str:
    """Return numbers, truths or NULL as PostgreSQL reads an array. Of a list of them the driver
    asks the server what it is, for each session, and looks at each element for a nested list."""
    return f"{{{','.join(map(str, values)).replace('None', 'NULL')}}}"


def arrays_of(rows: Iterable[Iterable[Any]], texts: Container[int]) -> list[Any]:
    """Return rows as columns. ``texts``: the places of texts; numbers and truths are elsewhere."""
    columns = enumerate(zip(*rows, strict=True))
    return [list(each) if place in texts else array_text(each) for place, each in columns]


def job_columns(jobs: Sequence[NewJob], awaited: Container[int] = ()) -> dict[str, Any]:
    """Return the columns that enqueue.sql takes. ``awaited``: the places of awaited jobs."""
    columns: dict[str, Any] = {}
    for each in (*SHARED, *OWN, *TIMED):
        values = map(each.take, jobs)
        columns[each.name] = list(values) if each.type == "text" else array_text(values)
    return columns | {"awaited": array_text(place in awaited for place in range(len(jobs)))}


def ends_text(transitions: Iterable[Transition]) -> str:
    return to_json([_end(transition) for transition in transitions])


def _end(transition: Transition) -> dict[str, Any]:
    end = msgspec.structs.asdict(transition)
    if transition.crash is not None:
        end["crash"] = to_json(transition.crash)
    return end
