"""Another commit beside this one: what a worker at its default settings costs, then and now.

The commit is unpacked into a folder of its own and imported from there, by the same interpreter
and with the same packages. Both are driven by the command line and the public functions alone, in
turns, and who begins changes from round to round. Each ratio is that of a pair of neighbours, so
what slows the whole machine for minutes cancels out.

    python -m bench against COMMIT [--rounds N] [--jobs N] [--only sqlite] [--what drain] [--quick]
"""

from __future__ import annotations

import statistics
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table

from bench import latency, rates
from bench.contenders import DEFAULTS, POSTGRES, SQLITE, Entry
from bench.environment import ROOT, Ground, ground
from bench.harness import Stand, stand
from bench.kit import keep, screen, tell, why

DRAIN_TIMES = 5  # as many jobs in a drain: the spare runner's start and the end weigh less
STEP_SECONDS = {"drain": 14.0, "one": 4.0, "many": 3.0, "pickup": 13.0}
DRAIN_FIGURES = {
    "CPU of worker and runners a job, us": "client_us",
    "CPU of the database a job, us": "database_us",
    "jobs a second, drain": "rate",
    "transactions a job": "transactions",
}
ONE_FIGURES = {"CPU to enqueue one, us": "client_us", "jobs a second, enqueue one": "rate"}
MANY_FIGURES = {"CPU to enqueue one of many, us": "client_us", "jobs a second, many": "rate"}


class Pair(msgspec.Struct, kw_only=True):
    """One figure of both commits, in each round."""

    name: str
    what: str
    then: list[float] = []
    now: list[float] = []

    def ratios(self) -> list[float]:
        """Return now divided by then, of each round."""
        return [now / then for then, now in zip(self.then, self.now, strict=True) if then]

    def cells(self) -> list[str]:
        """Return the figure as people read it."""
        ratios = self.ratios()
        shown = ""
        if ratios:
            shown = f"{statistics.median(ratios):.2f}"
            if ratios[1:]:
                shown += f" ({min(ratios):.2f} to {max(ratios):.2f})"
        medians = [_short(statistics.median(each)) for each in (self.then, self.now)]
        return [self.name, self.what, *medians, shown]


def _short(value: float) -> str:
    if value >= 10:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.4f}"


def unpack(commit: str, folder: Path) -> Path:
    """Put the tree of a commit into a folder; return where its packages are."""
    packed = folder / "commit.tar"
    git = ["git", "-C", str(ROOT), "archive", "--output", str(packed), commit, "src"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{commit} cannot be read: {done.stderr.strip()}")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def importing(entry: Entry, source: Path) -> Entry:
    """Return an entry whose processes import what is in a folder."""
    variables = entry.variables | {"PYTHONPATH": str(source)}
    return msgspec.structs.replace(entry, variables=variables)


def measured(what: str, one: Stand, place: Ground, jobs: int) -> dict[str, float]:
    """Measure one commit in one respect; return its figures."""
    if what == "pickup":
        seen = latency.idle(one, place, min(jobs, latency.IDLE_JOBS))
        return {"pickup, p50, ms": seen.p50, "pickup, p99, ms": seen.p99}
    if what == "drain":
        found, figures = rates.drain(one, DRAIN_TIMES * jobs, 1), DRAIN_FIGURES
    elif what == "one":
        found = rates.enqueue(one, rates.ONE, min(jobs, rates.ONE_JOBS))
        figures = ONE_FIGURES
    else:
        found, figures = rates.enqueue(one, rates.MANY, jobs), MANY_FIGURES
    values = {shown: float(getattr(found, name)) for shown, name in figures.items()}
    return {shown: value for shown, value in values.items() if value}


def play(
    place: Ground, entries: Sequence[tuple[Entry, Entry]], whats: Sequence[str], options: Any
) -> tuple[list[Pair], int]:
    """Play all rounds; return the pairs, and how many steps have failed."""
    pairs: dict[tuple[str, str], Pair] = {}
    failed = 0
    cost = sum(STEP_SECONDS[what] for what in whats) * 2 / len(whats)
    with tell("against", options.rounds * len(entries) * len(whats), cost) as step:
        for number in range(options.rounds):
            for both in entries:
                for what in whats:
                    try:
                        found = neighbours(place, both, what, options.jobs, swapped=number % 2 == 1)
                    except Exception as error:
                        failed += 1
                        step(f"{both[0].name}, {what}: FAILED: {why(error)}")
                        continue
                    for shown, (then, now) in found.items():
                        key = both[0].name, shown
                        pair = pairs.setdefault(key, Pair(name=key[0], what=shown))
                        pair.then.append(then)
                        pair.now.append(now)
                    told = (f"{shown} {_short(a)} → {_short(b)}" for shown, (a, b) in found.items())
                    step(f"{both[0].name}: {'; '.join(told)}")
    return list(pairs.values()), failed


def neighbours(
    place: Ground, both: tuple[Entry, Entry], what: str, jobs: int, *, swapped: bool
) -> dict[str, tuple[float, float]]:
    """Measure both, one right after the other; return each figure of then and now."""
    found: list[dict[str, float]] = [{}, {}]
    for at in (1, 0) if swapped else (0, 1):
        with stand(both[at], place) as one:
            found[at] = measured(what, one, place, jobs)
    return {shown: (found[0][shown], found[1][shown]) for shown in found[0] if shown in found[1]}


def show(pairs: Sequence[Pair], commit: str) -> None:
    """Print the table."""
    table = Table(title=f"today against {commit}; medians, and the ratio of neighbours (range)")
    for column in ("who", "what"):
        table.add_column(column, no_wrap=True)
    for column in ("then", "now", "now / then"):
        table.add_column(column, justify="right", no_wrap=True)
    for each in pairs:
        table.add_row(*each.cells())
    screen().print(table)


def main(options: Any) -> int:
    """Measure, print and keep; return how many steps have failed."""
    whats = [each for each in STEP_SECONDS if not options.what or each in options.what]
    stores = [each for each in (POSTGRES, SQLITE) if not options.only or each in options.only]
    with tempfile.TemporaryDirectory(prefix="outlast-against-") as folder, ground() as place:
        then = unpack(options.commit, Path(folder))
        entries = [
            (importing(entry, then), importing(entry, ROOT / "src"))
            for entry in DEFAULTS
            if entry.store in stores
        ]
        pairs, failed = play(place, entries, whats, options)
    show(pairs, options.commit)
    keep("against", pairs, whole=not (options.only or options.what or options.quick))
    return failed
