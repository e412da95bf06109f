"""How long a person waits for the first word of a command, in starts of an empty Python.

The commands run in turns with an empty Python, each in a process of its own, and from compiled
modules, as an installed Outlast has them. A ratio is that of two medians.

    python -m bench starts [--rounds N] [--quick]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table

import outlast
from bench.kit import fresh, keep, screen, server, tell

ROUNDS = 20  # at least
SECONDS = 1.5  # of a round
EMPTY = "python -c pass"
PROGRAM = str(Path(sys.executable).with_name("outlast"))
COMMANDS = {"--version": 4, "--help": 12, "jobs": 12, "why 1": 12}
"""Command -> the most empty Pythons that it may take."""


class Start(msgspec.Struct, kw_only=True):
    """The seconds that a command takes, in each round."""

    command: str
    store: str
    wanted: int = 1
    seconds: list[float] = []


def fill(url: str) -> None:
    """Put some jobs into a store."""
    app = outlast.App(url)

    @app.task
    def noop(value: int) -> None: ...

    app.enqueue_many_sync([noop.call(n) for n in range(30)])
    app.close_sync()


def play(start: Start, url: str, compiled: str) -> None:
    """Run a command once."""
    command = [PROGRAM, *start.command.split()]
    if start.command == EMPTY:
        command = [sys.executable, "-c", "pass"]
    compiling = {"PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
    env = os.environ | compiling | {"OUTLAST_URL": url}
    began_at = time.perf_counter()
    subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    start.seconds.append(time.perf_counter() - began_at)


def main(options: Any) -> int:
    """Measure, print and keep; return how many ratios are above what is wanted."""
    rounds = 2 if options.quick else max(ROUNDS, options.rounds)
    with (
        server() as postgres,
        fresh("sqlite", postgres) as (file, _),
        fresh("postgres", postgres) as (database, _),
        tempfile.TemporaryDirectory(prefix="outlast-compiled-") as compiled,
    ):
        urls = {"sqlite": file, "postgres": database}
        for url in urls.values():
            fill(url)
        starts = [Start(command=EMPTY, store="sqlite")] + [
            Start(command=command, store=store, wanted=wanted)
            for command, wanted in COMMANDS.items()
            for store in urls
            if store == "sqlite" or not command.startswith("--")
        ]
        for each in starts:  # compiles what is loaded
            play(each, urls[each.store], compiled)
            each.seconds.clear()
        with tell("starts", rounds, rounds * SECONDS) as step:
            for number in range(rounds):
                for each in starts:
                    play(each, urls[each.store], compiled)
                step(f"round {number + 1}")
    above = show(starts)
    keep("starts", starts, whole=False)  # it is on no page
    return above


def show(starts: list[Start]) -> int:
    """Print the table; return how many ratios are above what is wanted."""
    table = Table(title="from the call to its end; x: as many empty Pythons; medians")
    for column in ("command", "store", "ms", "x", "wanted"):
        table.add_column(column, justify="left" if column in {"command", "store"} else "right")
    empty = statistics.median(starts[0].seconds)
    above = 0
    for each in starts:
        median = statistics.median(each.seconds)
        ratio = median / empty
        above += ratio > each.wanted
        cells = (f"{median * 1000:.0f}", f"{ratio:.1f}", str(each.wanted))
        table.add_row(each.command, each.store, *cells)
    screen().print(table)
    return above
