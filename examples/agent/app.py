"""An assistant: it plans, calls tools, asks a person, and acts. No crash repeats any of it."""

import sqlite3
from contextlib import closing

import msgspec

import outlast
from outlast import group

app = outlast.App("sqlite:///agent.db")
tools = app.limit("tools", rate="50/s")  # of the API behind them, over all workers
DAY = 86_400.0

TABLES = """
CREATE TABLE IF NOT EXISTS asked (tool TEXT, question TEXT);
CREATE TABLE IF NOT EXISTS booked (job INTEGER, what TEXT);
"""


class ToolCall(msgspec.Struct, frozen=True):
    """What the model wants to know."""

    tool: str
    question: str


class Approval(msgspec.Struct):
    """What a person has said."""

    by: str
    fine: bool = True


def plan(goal: str) -> list[ToolCall]:
    """Stand in for a model: it says which tools to call."""
    return [ToolCall("search", f"{goal}, where?"), ToolCall("calendar", f"{goal}, when?")]


@app.task(limits=[tools], retries=10, backoff=0)
def use_tool(tool: str, question: str) -> str:
    """Call a tool. Its effect and the end of this job are one commit."""
    with closing(sqlite3.connect("agent.db", timeout=60, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO asked VALUES (?, ?)", (tool, question))
        answer = f"{tool} says: {len(question)}"
        outlast.current().complete_in_sync(connection, answer)
        connection.execute("COMMIT")
    return answer


def book(connection: sqlite3.Connection, job_id: int, found: list[str]) -> str:
    """Do what was approved."""
    connection.execute("INSERT INTO booked VALUES (?, ?)", (job_id, "; ".join(found)))
    return "booked"


@app.task(retries=10, backoff=0)
def assist(goal: str) -> str:
    """Reach a goal. Each attempt comes here again, and finds what earlier ones have done."""
    attempt = outlast.current()
    wanted = attempt.step_sync("plan", plan, goal)
    calls = group(use_tool.call(each.tool, each.question) for each in wanted)
    found = attempt.wait_for_sync(attempt.spawn_sync(calls))
    try:
        said = attempt.wait_event_sync(f"approve:{goal}", timeout=DAY, type=Approval)
    except TimeoutError:
        return "no one has answered for a day"
    if not said.fine:
        return f"{said.by} said no"
    with closing(sqlite3.connect("agent.db", timeout=60, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        done = attempt.step_in_sync(connection, "book", book, connection, attempt.job_id, found)
        connection.execute("COMMIT")
    return f"{done}, approved by {said.by}"
