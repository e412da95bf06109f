"""What every measurement needs: stores to measure on, medians, and a place for the results."""

from __future__ import annotations

import contextlib
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console

from tests.servers import PostgresServer

RESULTS = Path(__file__).parent / "results"
PARTIAL = Path(__file__).parents[1] / ".bench" / "results"
PAGE = Path(__file__).parents[1] / "docs" / "recovery.md"
WIDTH = 120
Row = Sequence[str]
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


def keep(name: str, values: Sequence[object], *, whole: bool = True) -> None:
    """Write all that was measured to bench/results/NAME.json, with what it was measured on.

    What is not the whole measurement goes to .bench/results, where it changes no page.
    """
    folder = RESULTS if whole else PARTIAL
    folder.mkdir(exist_ok=True, parents=True)
    document = {
        "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M}Z",
        "machine": machine(),
        "values": values,
    }
    encoded = msgspec.json.format(msgspec.json.encode(document), indent=1)
    (folder / f"{name}.json").write_bytes(encoded + b"\n")
    print(f"kept in {folder / name}.json", flush=True)


def machine() -> dict[str, object]:
    """Return what the numbers depend on."""
    return {
        "cores": os.cpu_count(),
        "load_at_the_end": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.release()}",
    }


def screen() -> Console:
    """Return a terminal wide enough for the tables, also where the output is a file."""
    made = Console()
    return made if made.is_terminal else Console(width=WIDTH)


def clock(seconds: float) -> str:
    """Return a span of time as minutes and seconds."""
    return f"{seconds // 60:.0f}:{seconds % 60:02.0f}"


def announce(what: str, seconds: float) -> None:
    """Say before a long run what is coming."""
    print(f"{what}: about {seconds / 60:.0f} minutes", flush=True)


def why(error: BaseException) -> str:
    """Return an error as one line; the rest of it (logs of workers) goes to the terminal."""
    first, _, rest = str(error).partition("\n")
    if rest:
        print(rest, file=sys.stderr, flush=True)
    return f"{type(error).__name__}: {first}"


def table(name: str, headings: Row, rows: Sequence[Row], *, page: bool = False) -> None:
    """Print a table as Markdown; with ``page`` put it in its place in docs/recovery.md, too."""
    lines = ["| " + " | ".join(each) + " |" for each in (headings, ["---"] * len(headings), *rows)]
    text = "\n".join(lines)
    print(f"\n{text}\n", flush=True)
    if page:
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        head, _, rest = PAGE.read_text().partition(begin)
        tail = rest.partition(end)[2]
        on = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in machine().items())
        measured = f"Measured {datetime.now(UTC):%Y-%m-%d} on: {on}."
        PAGE.write_text(f"{head}{begin}\n\n{measured}\n\n{text}\n\n{end}{tail}")
