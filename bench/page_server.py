"""``outlast web`` as `python -m bench pages` measures it: with two more addresses.

    python -m bench.page_server URL [--fresh] [--plans FILE]

``/bench/floor`` asks the store for nothing but the time, ``/bench/looks`` says how often the page
has looked. With ``--fresh`` nothing is kept: each request looks at the store. With ``--plans`` each
statement is noted in a file with what it has read.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from asyncpg.connection import Connection
from starlette.responses import Response

from outlast.cli import web_server
from outlast.metrics import exporter
from outlast.web.application import ENDPOINTS
from outlast.web.endpoint import Endpoint
from outlast.web.reader import StoreReader
from outlast.web.visit import Visit

STEPS = 50  # of SQLite's machine between two counts


async def floor(visit: Visit) -> Response:
    """Answer with the store's time, asked for now."""
    visit.site.reader.forget_all()
    return Response(str(await visit.ask("floor", lambda store: store.inspector.now())))


async def looks(visit: Visit) -> Response:
    """Answer with the number of looks at the store so far."""
    return Response(str(visit.site.reader.looks))


def keep_nothing() -> None:
    """Let each request look at the store."""
    StoreReader._is_stale = lambda _, look: look.result.done()  # type: ignore[method-assign,assignment]
    exporter.KEEP_SECONDS = 0.0


# --- what statements read -----------------------------------------------------------------------


def note_plans(file: TextIO) -> None:
    """Note each statement that ends and its reads, one document a line."""

    def note(text: str, rows: int, buffers: int, milliseconds: float, plan: str) -> None:
        told = {"text": text, "rows": rows, "buffers": buffers, "ms": milliseconds, "plan": plan}
        file.write(json.dumps(told) + "\n")
        file.flush()

    def heard(_: object, fields: dict[str, str], __: object) -> None:
        _, found, text = fields.get("M", "").partition("plan:\n")
        if found:
            told = json.loads(text)
            plan = told["Plan"]
            buffers = plan.get("Shared Hit Blocks", 0) + plan.get("Shared Read Blocks", 0)
            milliseconds = plan.get("Actual Total Time", 0.0)
            note(told["Query Text"], _rows(plan), buffers, milliseconds, _named(plan))

    Connection._process_log_message = heard
    _count_steps(note)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def _rows(plan: dict[str, Any]) -> int:
    """Return how many rows a plan has read from tables."""
    return sum(
        int((one["Actual Rows"] + one.get("Rows Removed by Filter", 0)) * one["Actual Loops"])
        for one in _nodes(plan)
        if "Relation Name" in one
    )


def _named(plan: dict[str, Any]) -> str:
    """Return the indexes that a plan uses."""
    return ", ".join(
        dict.fromkeys(
            f"{one['Node Type']} {one.get('Index Name', one['Relation Name'])}"
            for one in _nodes(plan)
            if "Relation Name" in one and one["Actual Loops"]
        )
    )


def _count_steps(note: Any) -> None:
    connect = sqlite3.connect

    class Cursor(sqlite3.Cursor):
        text: str | None = None

        def execute(self, text: str, *values: Any) -> Cursor:
            self.tell()
            Counted.steps = 0
            self.text = text
            return super().execute(text, *values)

        def tell(self) -> None:
            if self.text is not None and Counted.steps:
                note(self.text, 0, Counted.steps, 0.0, "")
            self.text = None

        def __del__(self) -> None:
            self.tell()

    class Counted(sqlite3.Connection):
        steps = 0

        def cursor(self, factory: Any = Cursor) -> Any:
            def count() -> None:
                Counted.steps += STEPS

            self.set_progress_handler(count, STEPS)
            return super().cursor(factory)

    def connected(*args: Any, **options: Any) -> sqlite3.Connection:
        return connect(*args, factory=Counted, **options)

    sqlite3.connect = connected  # type: ignore[assignment]


def main() -> None:
    """Print the address, and serve until the process is ended."""
    asked = argparse.ArgumentParser(prog="bench.page_server", description=__doc__)
    asked.add_argument("url")
    asked.add_argument("--fresh", action="store_true")
    asked.add_argument("--plans", type=Path)
    chosen = asked.parse_args()
    if chosen.fresh:
        keep_nothing()
    if chosen.plans is not None:
        note_plans(chosen.plans.open("a"))
    ENDPOINTS.extend([Endpoint("/bench/floor", floor), Endpoint("/bench/looks", looks)])
    users = web_server.choose_users(None, None, [], no_auth=True)
    site = web_server.Site(chosen.url, users.judge)
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(web_server.serve(site, users, "127.0.0.1", 0, "a large store"))


if __name__ == "__main__":
    main()
