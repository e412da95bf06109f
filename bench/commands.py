"""The commands that read, on a PostgreSQL store of 50,000,000 jobs beside one of 10,000.

Each command is a process of its own, timed in turns on both databases of one server: what the start
of Python takes is seen on the small one. Then each once *cold*: PostgreSQL has just been started,
and its files were dropped from the system's cache. `verify` and what changes jobs is left out. Some
60 GB of space are needed for 50,000,000 rows (``TMPDIR``).

    python -m bench commands [--rows 50000000] [--rounds N] [--quick]
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from bench import large_store
from bench.environment import CARELESS, SETTINGS
from bench.kit import tell
from bench.series import Figure, Series
from harness.servers import PostgresServer

ROWS, QUICK_ROWS, SMALL, QUICK_SMALL = 50_000_000, 20_000, 10_000, 2_000
LARGE = "large"
SLOWEST = "the slowest command that reads"
COLD = "cold: "
MEGABYTE = 1e6

FREQUENT = (  # timed in turns on both stores; `bench size` has them, too
    "jobs",
    "jobs --state queued",
    "jobs --state scheduled",
    "jobs --state retrying",
    "jobs --state running",
    "jobs --state completed",
    "jobs --state dead",
    "jobs --queue queue3",
    "jobs --queue nomatch",
    "jobs --task nomatch",
    "jobs --tenant nomatch",
    "jobs --limit 10000 --json",
    "dead list",
    "dead list --task nomatch",
    "stats",
    "workers",
    "why {last}",
    "job {finished}",
    "doctor",
    "migrate --check",
)
MORE = (  # all others that read
    "jobs --state cancelled",
    "jobs --state suspect",
    "jobs --state unservable",
    "jobs --state paused",
    "jobs --state orphaned",
    "jobs --label sale",
    "flows",
    "flow show {last}",
    "jobs --label nomatch",
    "jobs --label sale --queue nomatch",
    "jobs --args nomatch",
    "jobs --error nomatch",
    "jobs --state dead --error nomatch",
    "jobs --since 1h",
    "jobs --args nomatch --since 7d",
    "dead list --group group7",
    "dead groups",
    "dead groups --queue queue7",
    "stats --json",
    "workers --all",
    "why {finished}",
    "why {dead}",
    "job {last}",
    "job {dead}",
    "logs {finished}",
    "schedules",
    "schedules show schedule7",
    "actions",
    "actions --job {dead}",
    "pauses",
    "limits",
)
LONG = "jobs --limit 10000 --json"  # writes 10,000 jobs, on a small store as well

# The peak of a process counts that of its parent, whose memory it shares until it runs a program of
# its own: so a small process starts it.
LAUNCHER = """
import os, subprocess, sys, time
began_at = time.monotonic()
null = subprocess.DEVNULL
running = subprocess.Popen([sys.argv[1], "-m", "outlast", *sys.argv[2:]], stdout=null, stderr=null)
_, status, usage = os.wait4(running.pid, 0)
running.returncode = os.waitstatus_to_exitcode(status)
print(time.monotonic() - began_at, usage.ru_maxrss, running.returncode)
"""


class Asked(Protocol):
    """A store that commands are asked about."""

    @property
    def name(self) -> str:
        """How it is called in the tables."""

    @property
    def url(self) -> str:
        """The URL of the store."""

    @property
    def words(self) -> Mapping[str, object]:
        """Numbers of its jobs, by the names that commands have for them."""


class Database:
    """A PostgreSQL store with this number of jobs."""

    def __init__(self, server: PostgresServer, name: str, rows: int) -> None:
        self.name, self.rows, self.url = name, rows, server.create_database(name)
        self.seconds = large_store.fill(self.url, rows)
        done = rows - rows // 50 - rows // 200
        self.words = {"last": rows, "finished": done // 2 // 1000 * 1000, "dead": 1507}
        size = server.sql(f"SELECT pg_database_size('{name}')", database=name)
        self.megabytes = int(size) / MEGABYTE


def command(url: str, words: Sequence[str]) -> tuple[float, float]:
    """Run a command; return its seconds and its peak memory in megabytes."""
    asked = [sys.executable, "-S", "-c", LAUNCHER, sys.executable, *words, "--url", url]
    seconds, kibibytes, code = subprocess.check_output(asked, text=True).split()
    if int(code) not in {0, 1}:
        raise RuntimeError(f"outlast {' '.join(words)[:60]} ended with {code}")
    return float(seconds), int(kibibytes) * 1024 / MEGABYTE


def line_of(series: Series, store: Asked, name: str, before: str = "") -> Figure:
    """Return the line of a command on one of the stores."""
    ids = {word: "ID…" if word == "ten_thousand" else "ID" for word in store.words}
    shown = name.format(**ids | {"last": "ID"})
    if name.startswith(("why {", "job {")) and "{last}" not in name:
        shown += f" ({name.partition('{')[2].removesuffix('}')})"
    return series.figure(store.name, f"{before}outlast {shown}", "s", 2)


def time_commands(
    series: Series, stores: Sequence[Asked], rounds: int, names: Sequence[str]
) -> None:
    """Note what these commands take on each of the stores, in turns."""
    for name in names:
        for _ in range(rounds):
            for store in stores:
                seconds, peak = command(store.url, name.format(**store.words).split())
                line = line_of(series, store, name)
                line.values.append(seconds)
                if store is stores[0]:
                    memory = series.figure(store.name, f"{line.what}: peak memory", "MB")
                    memory.values.append(peak)


def time_cold(
    series: Series, stores: Sequence[Asked], server: PostgresServer, names: Sequence[str]
) -> None:
    """Note what these commands take as the first one after a start, with nothing in memory."""
    for name in names:
        for store in stores:
            server.stop()
            forget(server.data)
            server.start()
            seconds, _ = command(store.url, name.format(**store.words).split())
            line_of(series, store, name, COLD).values.append(seconds)


def forget(folder: Path) -> None:
    """Drop all files below a folder from the system's cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def note_slowest(
    series: Series, stores: Sequence[Asked], names: Sequence[str], before: str
) -> None:
    """Note the largest median on each store, and say which command's it is."""
    for store in stores:
        lines = [line_of(series, store, name, before) for name in names if name != LONG]
        slowest = max(lines, key=Figure.median)
        series.figure(store.name, before + SLOWEST, "s", 2).values.append(slowest.median())
        print(f"{store.name}: the slowest is {slowest.what}, {slowest.shown()} s", flush=True)


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("commands", "commands that read, on a large PostgreSQL store")
    rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
    names = FREQUENT[:2] if options.quick else (*FREQUENT, *MORE)
    with (
        PostgresServer(settings=SETTINGS | CARELESS) as server,
        tell("commands", 3, 120 + rows / 100_000) as step,
    ):
        small = Database(server, "small", QUICK_SMALL if options.quick else SMALL)
        stores = (Database(server, LARGE, rows), small)
        step(f"{rows:,} jobs, made in {stores[0].seconds:.0f} s")
        for store in stores:
            series.figure(store.name, "size of the database", "MB").values.append(store.megabytes)
            series.figure(store.name, "jobs", "").values.append(store.rows)
        server.settings |= SETTINGS
        server.restart()

        def warm() -> None:
            time_commands(series, stores, options.rounds, names)
            note_slowest(series, stores, names, "")

        def cold() -> None:
            time_cold(series, stores, server, names)
            note_slowest(series, stores, names, COLD)

        for what, measure in {"warm": warm, "cold": cold}.items():
            series.attempt(LARGE, f"commands, {what}", "", measure)
            step(what)
    return series.finish(whole=rows == ROWS)
