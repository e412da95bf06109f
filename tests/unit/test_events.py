"""Events: whoever listens hears them, and nobody who listens can hurt who speaks."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from outlast import events

SOURCES = sorted((Path(__file__).resolve().parents[2] / "src" / "outlast").rglob("*.py"))


def emitted(path: Path) -> list[str]:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    emits = [call for call in calls if ast.unparse(call.func).split(".")[-1] == "emit"]
    return [call.args[0].value for call in emits if isinstance(call.args[0], ast.Constant)]  # type: ignore[misc]


def test_a_subscriber_hears_events_until_it_ends_that():
    heard = []
    end = events.subscribe(lambda name, fields: heard.append((name, fields)))
    events.emit("worker_started", worker="w1")
    end()
    events.emit("worker_stopped")
    assert heard == [("worker_started", {"worker": "w1"})]


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


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_all_events_of_the_code_are_in_the_catalogue(path):
    assert [name for name in emitted(path) if name not in events.CATALOGUE] == []


def test_the_levels_name_events_of_the_catalogue():
    assert set(events.CATALOGUE) >= events._WARNINGS | events._ERRORS


def test_structlog_is_an_opt_in():
    with capture_logs() as before:
        events.emit("lease_lost", worker_id=1)
    end = events.log_to_structlog()
    with capture_logs() as after:
        events.emit("lease_lost", worker_id=1)
    end()
    assert before == []
    assert after == [{"event": "lease_lost", "log_level": "warning", "worker_id": 1}]


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
