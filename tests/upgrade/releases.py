"""Installs two releases of Outlast, each in an environment of its own: the one that is named in
tools/upgrade-from, and this tree with migrations that only the rehearsal has.

The old one is a wheel that is kept in this folder, with the bytes that its users have: one that is
built again has today's build tools, and what git had is not what was published. Before the first
candidate it is a commit: migration 0001 may still change, and each change would need a new wheel.

The rehearsal always migrates, also while this tree has no migration of its own yet: its migrations
go into a copy of the tree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from outlast.store import migrations
from tests.package.wheel_kit import ROOT, UV, Installed, environment, run
from tools import release
from tools.release import Refused

FROM = ROOT / "tools" / "upgrade-from"
PARTS = ("src", "tools", "pyproject.toml", "README.md", "LICENSE")  # what a wheel is built from
SQL = Path("src", "outlast", "store")
EXTRAS = ("postgres", "web")
DIALECTS = ("postgres", "sqlite")

# What a release would do that counts something about each job, as CONTRIBUTING.md has it: the
# column has a default for programs that do not know it, the old rows are filled in a step of their
# own, in one order of locks, and the index is built while others write.
ORDERED = "id IN (SELECT id FROM outlast_jobs WHERE rehearsed = 0 ORDER BY id FOR UPDATE)"
REHEARSAL = {
    "column": {
        "postgres": "ALTER TABLE outlast_jobs ADD COLUMN rehearsed integer NOT NULL DEFAULT 0;",
        "sqlite": "ALTER TABLE outlast_jobs ADD COLUMN rehearsed INTEGER NOT NULL DEFAULT 0;",
    },
    "values": {
        "postgres": f"UPDATE outlast_jobs SET rehearsed = 1 WHERE {ORDERED};",
        "sqlite": "UPDATE outlast_jobs SET rehearsed = 1 WHERE rehearsed = 0;",
    },
    "index": {
        "postgres": "CREATE INDEX CONCURRENTLY outlast_jobs_rehearsed ON outlast_jobs (rehearsed);",
        "sqlite": "CREATE INDEX outlast_jobs_rehearsed ON outlast_jobs (rehearsed);",
    },
}

# `--break`: the new release writes checkpoints in a form that the old one cannot read.
BROKEN = SQL.parent / "payload" / "payloads.py"
CODEC = """class _Newer:
    def encode(self, data, kind):
        return ("newer", data) if kind == "checkpoint" else None

    encode_same = encode

    def decode(self, name, data, kind, most):
        return data if name == "newer" else None


class Payloads:"""
BREAK = {
    "class Payloads:": CODEC,
    "self._codecs = list(codecs)": "self._codecs = [*codecs, _Newer()]",
    "return Payloads(codecs) if codecs else PLAIN": "return Payloads(codecs)",
}


class Release:
    """One release: its programs, and the name that its workers carry."""

    def __init__(self, name: str, wheel: Path, folder: Path) -> None:
        self.name = name
        self._installed = Installed(folder, wheel, *EXTRAS)
        where = "import outlast; print(outlast.__file__)"
        found = run(self.python, "-c", where, cwd=ROOT).strip()
        if not Path(found).is_relative_to(self._installed.packages):
            raise Refused(f"the programs of {name} import {found}, and not their own wheel")

    @property
    def python(self) -> Path:
        """Its interpreter, which imports its wheel."""
        return self._installed.bin / "python"

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of its programs."""
        return environment(OUTLAST_RELEASE=self.name, **more)

    def start(self, *words: str, log: Path) -> subprocess.Popen[bytes]:
        """Start one of its commands in the root of this tree."""
        with log.open("ab") as output:
            return subprocess.Popen(
                [self._installed.bin / "outlast", *words],
                cwd=ROOT,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def ask(self, *words: str, url: str) -> tuple[int, str]:
        """Run one of its commands on a store; return its exit code and what it printed."""
        done = subprocess.run(
            [self._installed.bin / "outlast", *words, "--url", url],
            cwd=ROOT,
            env=self.environment(COLUMNS="200", OUTLAST_URL=url),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        return done.returncode, done.stdout.strip()


def build_both(folder: Path, *, breaks: bool = False) -> tuple[Release, Release]:
    """Return the old and the new release. Raises Refused, with what to do, if one cannot be."""
    old, new = folder / "old" / "tree", folder / "new" / "tree"
    copy_tree(new)
    name, kept = make_old_tree(old, new)
    add_migrations(new)
    if breaks:
        add_break(new)
    return (
        Release(f"old ({name})", kept or build(old), folder / "old"),
        Release("new", build(new), folder / "new"),
    )


def build(tree: Path) -> Path:
    """Return the wheel of a tree, which is built beside it."""
    folder = tree.parent / "dist"
    command = ("build", "--wheel", "--no-build-isolation", "--python", sys.executable)
    run(*UV, *command, "--out-dir", folder, cwd=tree)
    (wheel,) = folder.glob("*.whl")
    return wheel


def make_old_tree(old: Path, new: Path) -> tuple[str, Path | None]:
    """Make the tree of the old release; return its name, and its wheel if that is kept. Raises
    Refused if it is not there, or if a migration that is released is another one in the new
    tree."""
    name, kept = _extract(old)
    if _agree(old, new):
        return name, kept
    if release.read_released(release.RELEASED):
        raise Refused(
            f"a migration of {name} is another one in this tree: a released migration never"
            " changes; write the next one (CONTRIBUTING.md, A migration)"
        )
    print(
        f"{name} has another migration 0001, as it may until the first release: the old release"
        " is this tree without the migrations of the rehearsal"
    )
    shutil.rmtree(old)
    copy_tree(old)
    return "this tree", None


def copy_tree(tree: Path) -> None:
    """Copy what the wheel of this tree is built from."""
    tree.mkdir(parents=True)
    for each in PARTS:
        source, target = ROOT / each, tree / each
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)


def _extract(tree: Path) -> tuple[str, Path | None]:
    """Extract what tools/upgrade-from names; return its name, and its path if it is a wheel."""
    lines = [line for line in FROM.read_text().splitlines() if line and not line.startswith("#")]
    (name,) = lines
    tree.mkdir(parents=True)
    if name.endswith(".whl"):
        wheel = ROOT / name
        if not wheel.exists():
            raise Refused(f"tools/upgrade-from names {name}, which is not there")
        shutil.unpack_archive(wheel, tree / "src", "zip")
        return wheel.stem, wheel
    packed = subprocess.run(
        ["git", "archive", name, *PARTS], cwd=ROOT, capture_output=True, check=False
    )
    if packed.returncode:
        raise Refused(
            f"tools/upgrade-from names {name}, which git cannot show here (git fetch --tags"
            f" --unshallow brings it): {os.fsdecode(packed.stderr).strip()}"
        )
    subprocess.run(["tar", "-x", "-C", tree], input=packed.stdout, check=True)
    return name[:12], None


def _agree(old: Path, new: Path) -> bool:
    """Whether each migration of the old tree is the same in the new one."""
    return all(
        step in migrations.read(new / SQL / dialect / "sql")
        for dialect in DIALECTS
        for step in migrations.read(old / SQL / dialect / "sql")
    )


def add_migrations(tree: Path) -> None:
    """Add the migrations of the rehearsal to a copy of the tree."""
    for dialect in DIALECTS:
        folder = tree / SQL / dialect / "sql"
        number = len(migrations.read(folder))
        for name, texts in REHEARSAL.items():
            number += 1
            head = f"-- {number:04} rehearsal: its {name}.\n-- compatible_from: 0.1\n"
            path = folder / f"migration_{number:04}_rehearsal_{name}.sql"
            path.write_text(f"{head}{texts[dialect]}\n")


def add_break(tree: Path) -> None:
    """Let the programs of a copy write checkpoints that no other release reads."""
    text = (tree / BROKEN).read_text()
    for here, there in BREAK.items():
        if text.count(here) != 1:
            raise Refused(f"--break finds no {here!r} in {BROKEN}: mend BREAK of {__name__}")
        text = text.replace(here, there)
    (tree / BROKEN).write_text(text)
