"""Kill the assistant with SIGKILL at each of its steps, and look for what happened twice."""

import sqlite3
import sys
from contextlib import closing

from examples.agent.app import TABLES, Approval, app, assist, use_tool
from outlast import Call
from outlast.testing.crashes import crash_test


def approved() -> Call[str]:
    """A person has approved before the assistant asks."""
    make_tables()
    app.send_event_sync("approve:dinner", Approval("ada"))
    return assist.call("dinner")


def unanswered() -> Call[str]:
    """No one answers: the test travels over the day."""
    make_tables()
    return assist.call("dinner")


def asked() -> Call[str]:
    make_tables()
    return use_tool.call("search", "dinner, where?")


def make_tables() -> None:
    with closing(sqlite3.connect("agent.db")) as connection:
        connection.executescript(TABLES)


def main() -> int:
    calls = (approved, unanswered, asked)
    names = [f"examples.agent.__main__:{call.__name__}" for call in calls]
    reports = [crash_test("examples.agent.app:app", name) for name in names]
    for report in reports:
        print(f"{report}\n")
    return 1 if any(report.findings for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
