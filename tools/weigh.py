"""Prints how heavy the code is, by counts that can be repeated: `make weigh`.

It counts lines, words and cases of what git knows, the claim of PostgreSQL with all that it calls,
what a reader has to know by name, and, in process, the Python calls of one job's life and of an
idle worker. Code is what is left of Python and SQL without blank lines, comments and docstrings.
Generated pages and the records of measurements (`bench/results`) are not counted.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import re
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from types import FrameType
from typing import get_type_hints

import asyncpg

import outlast
from harness.servers import PostgresServer
from harness.stores import opened
from outlast.base.clock import SYSTEM
from outlast.client.task_options import BatchOptions
from outlast.events import CATALOGUE

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "outlast"
LIVES = 5  # jobs whose lives are traced, one after another; the median counts
IDLE_SECONDS = 10
WARM_JOBS = 3
CLAIM_MODULES = ("exchange.py",)
CLAIM = "outlast_exchange_v1"
OTHER_DUTIES = ("outlast_end_v1", "outlast_notify_v1")  # the end, and wake-ups
OURS = "'outlast\\_%'"
COUNTED = {  # in a store on PostgreSQL
    "columns of outlast_jobs": "information_schema.columns WHERE table_name = 'outlast_jobs'",
    "SQL functions": f"pg_proc WHERE proname LIKE {OURS}",
    "indexes": f"pg_indexes WHERE tablename LIKE {OURS}",
}
_ASKED = "SELECT state FROM outlast_jobs WHERE id ="
_FUNCTION = re.compile(r"\boutlast_\w+_v1\b")


class Calls:
    """Counts the calls of functions of Outlast, in all threads, while it is on."""

    def __init__(self) -> None:
        self.count = self.hops = 0
        self.files: Counter[str] = Counter()
        self._is_on = False
        self._last: dict[int, str] = {}
        self._known: dict[str, str | None] = {}

    def start(self) -> None:
        """Forget what was counted, and count from here on."""
        self.count = self.hops = 0
        self.files.clear()
        self._last.clear()
        self._is_on = True

    def stop(self) -> None:
        """Stop counting."""
        self._is_on = False

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Take in an event of the interpreter, as `sys.setprofile` gives them."""
        if not self._is_on or event != "call":
            return
        path = frame.f_code.co_filename
        if path not in self._known:
            inside = path.startswith(str(SOURCE))
            self._known[path] = path.removeprefix(f"{SOURCE}/") if inside else None
        name = self._known[path]
        if name is None:
            return
        self.count += 1
        self.files[name] += 1
        thread = threading.get_ident()
        self.hops += self._last.get(thread, name) != name
        self._last[thread] = name


async def trace(url: str, calls: Calls) -> tuple[tuple[int, int, int], float]:
    """Return files, hops and calls of one job's life, from its enqueue to its answered end, and
    the calls a second of a worker in process that has nothing to do."""
    app = outlast.App(url)

    @app.task
    async def nothing() -> None:
        return

    lives: list[tuple[int, int, int]] = []
    async with app, app.worker():
        for number in range(WARM_JOBS + LIVES):
            calls.start()
            job = await nothing.enqueue()
            async with asyncio.timeout(30):
                while not await _is_completed(url, job.id):  # noqa: ASYNC110  # a row
                    await asyncio.sleep(0.01)
            calls.stop()
            if number >= WARM_JOBS:
                lives.append((len(calls.files), calls.hops, calls.count))
        await asyncio.sleep(1)
        calls.start()
        began = SYSTEM.boot()
        await asyncio.sleep(IDLE_SECONDS)
        calls.stop()
        idle = calls.count / (SYSTEM.boot() - began)
    files, hops, count = (int(median(column)) for column in zip(*lives, strict=True))
    return (files, hops, count), idle


async def _is_completed(url: str, job_id: int) -> bool:
    """Whether a job is completed, asked without any function of Outlast."""
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
            return bool(file.execute(f"{_ASKED} ?", [job_id]).fetchone()[0] == "completed")
    connection = await asyncpg.connect(url)
    try:
        return bool(await connection.fetchval(f"{_ASKED} $1", job_id) == "completed")
    finally:
        await connection.close()


def tracked(*patterns: str) -> list[Path]:
    """Return the files that git knows."""
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return [ROOT / each for each in listed]


def count_lines(paths: Iterable[Path]) -> int:
    """Return the number of lines of these files."""
    return sum(path.read_bytes().count(b"\n") for path in paths)


def count_code(paths: Iterable[Path]) -> int:
    """Return how many lines of these files are code."""
    return sum(
        _code_of_sql(path) if path.suffix == ".sql" else _code_of_python(path)
        for path in paths
        if path.suffix in {".py", ".sql"}
    )


def _code_of_sql(path: Path) -> int:
    lines = map(str.strip, path.read_text().splitlines())
    return sum(bool(line) and not line.startswith("--") for line in lines)


def _code_of_python(path: Path) -> int:
    text = path.read_text()
    prose = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    return sum(
        bool(line) and not line.startswith("#") and number not in prose for number, line in lines
    )


def count_verbs() -> int:
    """Return how many methods the protocols of a store have."""
    trees = [
        ast.parse((SOURCE / "store" / name).read_text()) for name in ("protocol.py", "acts.py")
    ]
    protocols = [
        node
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
        and node.name != "Acting"  # a transaction, which no caller of a store sees
    ]
    return sum(
        isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name[0] != "_"
        for protocol in protocols
        for each in protocol.body
    )


async def count_names(url: str) -> dict[str, int]:
    """Return what a reader has to know by name: kinds of things, and how many there are."""
    async with opened(url) as store:
        await store.migrate()
    connection = await asyncpg.connect(url)
    try:
        counted = {
            what: int(await connection.fetchval(f"SELECT count(*) FROM {of}"))  # noqa: S608
            for what, of in COUNTED.items()
        }
    finally:
        await connection.close()
    return {
        **counted,
        "verbs of the store protocols": count_verbs(),
        "options of a task": len(get_type_hints(BatchOptions)),
        "kinds of events": len(CATALOGUE),
    }


def claim_functions() -> set[Path]:
    """Return the SQL of PostgreSQL's claim: the exchange and, from there on, each function that is
    called, but for the ones that end attempts and send wake-ups."""
    folder = SOURCE / "store" / "postgres" / "sql" / "functions"
    found: set[Path] = set()
    left = [CLAIM]
    while left:
        path = folder / f"{left.pop()}.sql"
        if path in found or not path.exists() or path.stem in OTHER_DUTIES:
            continue
        found.add(path)
        left += _FUNCTION.findall(_without_comments(path.read_text()))
    return found


def _without_comments(text: str) -> str:
    return re.sub(r"--.*", "", text)


def count_cases() -> int:
    """Return how many cases pytest collects."""
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    found = re.search(r"^(\d+) tests? collected", told, re.MULTILINE)
    return int(found[1]) if found else 0


def main(say: Callable[[str], object] = print) -> None:
    """Print the table."""
    source, sql = tracked("src"), tracked("src/*.sql")
    code = tracked("src/*.py")
    claim = claim_functions()
    modules = [SOURCE / "store" / "postgres" / name for name in CLAIM_MODULES]
    rows = [
        ("src: lines", count_lines(source)),
        ("src: code", count_code(source)),
        ("src: of it Python", count_lines(code)),
        ("src: of it SQL", count_lines(sql)),
        ("src: files", len(source)),
        ("claim on PostgreSQL: lines of SQL", count_lines(claim)),
        ("claim on PostgreSQL: lines of Python", count_lines(modules)),
        ("protocols", sum(len(re.findall(r"\(Protocol", path.read_text())) for path in code)),
        ("code of tests: lines", count_lines(tracked("tests/*.py"))),
        ("cases of tests", count_cases()),
        ("docs: words", sum(len(path.read_text().split()) for path in tracked("docs/*.md"))),
    ]
    for name, figure in rows:
        say(f"{name:44} {figure:>9,}")
    with PostgresServer() as server:
        names = asyncio.run(count_names(server.url("postgres")))
    for what, figure in [*names.items(), ("these names: the sum", sum(names.values()))]:
        say(f"{what:44} {figure:>9,}")
    calls = Calls()
    threading.setprofile(calls.note)
    sys.setprofile(calls.note)
    with tempfile.TemporaryDirectory() as folder, PostgresServer() as server:
        for name, url in [
            ("PostgreSQL", server.url("postgres")),
            ("SQLite", f"sqlite:///{folder}/outlast.db"),
        ]:
            (files, hops, count), idle = asyncio.run(trace(url, calls))
            say(f"{'a job on ' + name + ': files, hops, calls':44} {files}, {hops}, {count}")
            say(f"{'idle on ' + name + ': calls a second':44} {idle:>9,.0f}")


if __name__ == "__main__":
    main()
