"""What every measurement needs: stores to measure on, medians, and a place for the results."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sqlite3
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.servers import PostgresServer

RESULTS = Path(__file__).parent / "results"
_numbers = iter(range(1, 1_000_000))


@contextlib.contextmanager
def server() -> Iterator[PostgresServer]:
    """Start a PostgreSQL that keeps its promises: fsync and synchronous_commit on."""
    with PostgresServer(settings={"fsync": "on", "synchronous_commit": "on"}) as started:
        yield started


@contextlib.contextmanager
def fresh(kind: str, postgres: PostgresServer) -> Iterator[tuple[str, Path]]:
    """Give the URL of an empty store and an empty folder."""
    with tempfile.TemporaryDirectory(prefix="outlast-bench-") as folder:
        if kind == "sqlite":
            yield f"sqlite:///{folder}/bench.db", Path(folder)
            return
        name = f"bench_{next(_numbers)}"
        url = postgres.create_database(name)
        try:
            yield url, Path(folder)
        finally:
            postgres.drop_database(name)


def summary(values: list[float], digits: int = 2) -> str:
    """Return median and range as people read them."""
    shown = [
        round(value, digits) for value in (statistics.median(values), min(values), max(values))
    ]
    return f"{shown[0]:g}  [{shown[1]:g} to {shown[2]:g}]"


def report(name: str, title: str, unit: str, measured: dict[tuple[str, str], list[float]]) -> None:
    """Print a table of what and store, and keep every value as JSON."""
    stores = sorted({store for _, store in measured})
    table = Table(title=f"{title} ({unit}; median and range)")
    table.add_column("what")
    for store in stores:
        table.add_column(store, justify="right")
    for what in dict.fromkeys(what for what, _ in measured):
        cells = [measured.get((what, store), []) for store in stores]
        table.add_row(what, *(summary(values) if values else "" for values in cells))
    Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    document = {
        "unit": unit,
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
        },
        "values": [
            {"what": what, "store": store, "values": values}
            for (what, store), values in measured.items()
        ],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
