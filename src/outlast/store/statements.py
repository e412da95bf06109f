"""Loads the SQL of the stores, which lives in files.

A file ``STORE/sql/TOPIC.sql`` holds the statements of one topic, each after a line ``-- name:
NAME``. Comments argue why they are right: at the head of the file for all of them, below a name for
one. A file ``sql/TOPIC.sql`` holds statements that all stores share, written for PostgreSQL; a
store of another dialect adapts them. In two places each store writes its own words: ``{now}``, the
time of its clock, and ``id {ids}``, whether an id is in the list of that name.

``{j.job}`` stands for the columns of a job (of the other rows: ``_ROWS``), each after ``j.``: all
fields of the row but the ones that the statement makes itself (``… AS waiting``). ``{columns}``, or
``{j.columns}``, are the columns of ``rows.CHOSEN``, and ``{chosen}`` says that a job has their
values; a value that is NULL lets every job pass.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

from outlast.errors import ConfigError
from outlast.store.actions import ActionRow
from outlast.store.new_rows import fill
from outlast.store.rows import CHOSEN, UNSTORED, AttemptRow, StoredJob, WorkerRow
from outlast.store.schedules import DueSchedule, ScheduleRow

Row = dict[str, Any]
"""A row by the names of its columns."""
Rows = Callable[..., Awaitable[list[Row]]]
"""``rows(topic, name, **values)``: returns the rows of a statement, given the values that it names.
"""

_WORDS = {
    "postgres": {
        "{now}": "date_part('epoch', statement_timestamp())",
        "{ids}": "= ANY (:ids::text::bigint[])",
    },
    "sqlite": {"{now}": ":now", "{ids}": "IN (SELECT e.value FROM json_each(:ids) AS e)"},
}
_ROWS = {
    "action": ActionRow,
    "attempt": AttemptRow,
    "due_schedule": DueSchedule,
    "job": StoredJob,
    "schedule": ScheduleRow,
    "worker": WorkerRow,
}
_COLUMNS = re.compile(rf"\{{(\w+\.)?({'|'.join(_ROWS)})\}}")
_MADE = re.compile(r" AS (\w+)")
_STORE = Path(__file__).parent
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_CHOSEN = re.compile(r"\{(?P<of>\w+\.)?(?P<what>chosen|columns)\}")


@cache
def statements(store: str, topic: str, adapt: Callable[[str], str] = str) -> dict[str, str]:
    """Return the statements of a topic by their names, without comments, as ``adapt`` returns them:
    the shared ones, replaced by the store's own of the same name, with the lists of columns."""
    read = _read("sql", topic) | _read(f"{store}/sql", topic)
    if not read:
        raise ConfigError(
            f"Outlast's files are not in {_STORE}: it does not run packed into one file, such as a"
            " zip; PyInstaller needs --collect-data outlast"
        )
    return {name: adapt(_complete(store, text)) for name, text in read.items()}


def _complete(store: str, text: str) -> str:
    """Return a statement with the words and lists for which its braces stand."""
    return fill(_list(_fill_in(store, text))) if "{" in text else text


def _list(text: str) -> str:
    """Return a statement with the columns of the rows that it reads."""
    others = {*UNSTORED, *_MADE.findall(text)}

    def name(found: re.Match[str]) -> str:
        before, row = found.groups("")
        return ", ".join(
            before + each for each in _ROWS[row].__struct_fields__ if each not in others
        )

    return _COLUMNS.sub(name, text)


def _fill_in(store: str, text: str) -> str:
    for place, words in _WORDS[store].items():
        text = text.replace(place, words)
    return _CHOSEN.sub(_choose, text)


def _choose(found: re.Match[str]) -> str:
    columns = [f"{found['of'] or ''}{one}" for one in CHOSEN]
    if found["what"] == "columns":
        return ", ".join(columns)
    each = zip(CHOSEN, columns, strict=True)
    return " AND ".join(f"(:{one}::text IS NULL OR {column} = :{one})" for one, column in each)


def _read(folder: str, topic: str) -> dict[str, str]:
    file = _STORE / folder / f"{topic}.sql"
    parts = _NAME.split(file.read_text("utf-8")) if file.is_file() else []
    return {name: _bare(text) for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def _bare(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    return " ".join(line for line in lines if line and not line.startswith("--"))
