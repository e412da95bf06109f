"""Events: every listener hears them, and no listener can harm the emitter."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from outlast import events
from tests.cases import each_case

SOURCES = sorted((Path(__file__).resolve().parents[2] / "src" / "outlast").rglob("*.py"))


Said = tuple[str, tuple[str, ...]]  # the name of an event, and its fields


def emits(source: str) -> Iterator[Said]:
    """Yield the event of each call of ``emit``; a name or field that cannot be parsed is "?"."""
    if "emit(" not in source:  # most files: they need not be parsed
        return
    for call in ast.walk(ast.parse(source)):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in {"emit", "events.emit"}:
            fields = tuple(keyword.arg or "?" for keyword in call.keywords)
            yield from ((name, fields) for name in names_of(call.args[0]))


def names_of(argument: ast.expr) -> list[str]:
    if isinstance(argument, ast.IfExp):
        return names_of(argument.body) + names_of(argument.orelse)
    plain = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    return [argument.value if plain else "?"]  # type: ignore[attr-defined]


def unlike_the_catalogue(said: Iterable[Said]) -> list[Said]:
    return [
        (name, fields)
        for name, fields in said
        if name not in events.CATALOGUE or sorted(fields) != sorted(events.CATALOGUE[name].fields)
    ]


def test_a_subscriber_hears_events_until_it_ends_that():
    heard = []
    end = events.subscribe(lambda name, fields: heard.append((name, fields)))
    events.emit("worker_started", worker="w1", worker_id=1)
    end()
    events.emit("worker_stopped", worker="w1", worker_id=1)
    assert heard == [("worker_started", {"worker": "w1", "worker_id": 1})]


def test_a_failing_subscriber_harms_neither_the_emitter_nor_the_others(caplog):
    heard = []

    def fails(name, fields):
        raise RuntimeError("boom")

    ends = [events.subscribe(fails), events.subscribe(lambda name, fields: heard.append(name))]
    with caplog.at_level(logging.ERROR, "outlast"):
        events.emit("jobs_pruned", rows=3)
    for end in ends:
        end()
    assert heard == ["jobs_pruned"]
    assert "jobs_pruned" in caplog.text


def test_an_unknown_event_is_an_error():
    with pytest.raises(AssertionError, match="no_such_event"):
        events.emit("no_such_event")


@each_case("fields", [{}, {"rows": 1, "more": 2}])
def test_other_fields_than_those_of_the_catalogue_are_an_error(fields):
    with pytest.raises(AssertionError, match="jobs_pruned"):
        events.emit("jobs_pruned", **fields)


def test_the_events_of_the_code_are_those_of_the_catalogue():
    emitted = {path: list(emits(path.read_text())) for path in SOURCES}
    wrong = {path: unlike_the_catalogue(said) for path, said in emitted.items()}
    assert {name: said for name, said in wrong.items() if said} == {}
    names = {name for said in emitted.values() for name, _ in said}
    assert set(events.CATALOGUE) - names == set(), "no code emits these"


@each_case(
    "source",
    [
        'emit("no_such_event")',
        'emit("jobs_pruned")',
        'emit("jobs_pruned", rows=1, more=2)',
        'emit("jobs_pruned", **fields)',
        'events.emit("jobs_pruned" if few else "worker_stopped", rows=1)',
        "emit(name, rows=1)",
    ],
)
def test_events_missing_from_the_catalogue_are_found_in_the_source(source):
    assert unlike_the_catalogue(emits(source))


def test_structlog_is_an_opt_in():
    fields = {"worker_id": 1, "reason": "silence", "running": 2}
    with capture_logs() as before:
        events.emit("lease_lost", **fields)
    end = events.log_to_structlog()
    with capture_logs() as after:
        events.emit("lease_lost", **fields)
    end()
    assert before == []
    assert after == [{"event": "lease_lost", "log_level": "warning", **fields}]


def test_importing_outlast_loads_no_driver_or_terminal_and_leaves_logging_alone():
    code = """
import logging, sys
before = (list(logging.root.handlers), logging.root.level, set(logging.root.manager.loggerDict))
import outlast
after = (list(logging.root.handlers), logging.root.level, set(logging.root.manager.loggerDict))
heavy = {"typer", "rich", "asyncpg", "sqlite3", "structlog", "outlast.worker"} & set(sys.modules)
named = [n for n in after[2] - before[2] if getattr(logging.getLogger(n), "handlers", None)]
print(sorted(heavy), after[:2] == before[:2], named)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] True []"


class Thinner:
    """A listener that takes half of the events."""

    def __call__(self, name, fields) -> None:
        """Ignore the event."""

    def thin(self, name: str, count: int) -> int:
        return count // 2


def test_count_wanted_returns_how_many_events_a_listener_takes():
    assert events.count_wanted("attempt_ended", 10) == 0, "no listener"
    end_thin = events.subscribe(Thinner())
    assert events.count_wanted("attempt_ended", 10) == 5
    end = events.subscribe(lambda name, fields: None)
    assert events.count_wanted("attempt_ended", 10) == 10, "a listener hears each"
    end_thin()
    assert events.count_wanted("attempt_ended", 10) == 10
    end()
