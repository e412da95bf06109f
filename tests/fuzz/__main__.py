"""All fuzzers, round by round, each round in a process of its own with new seeds.

    python -m tests.fuzz --minutes 30          # for 30 minutes, all in turn
    python -m tests.fuzz --examples 2000       # 2000 examples of each
    python -m tests.fuzz --only frames         # those with this in their names
    python -m tests.fuzz --one "lock files" --seed 7   # the examples of one seed again

A process may have 200 MB resident and has little more to allocate, and one that does not end is
stopped, with the stacks of its threads. Each of these is a finding, as is an error of a check. The
exit code is 1 where anything was found.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import json
import resource
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.kit import CHUNK, PEAK_MAX, SECONDS, begin_peak, peak_bytes

ROUND_SECONDS = 15.0
GRACE_SECONDS = 5 * SECONDS  # for the examples of one seed: then they hang
DATA_MAX = 2 * PEAK_MAX  # bytes that a process may have allocated, touched or not
FAULT_LINES = 60  # of what a round has written, with a finding


def main() -> int:
    """Run the fuzzers that were asked for; return the exit code."""
    asked = _asked()
    if asked.one is not None:
        return _one(asked)
    return _all(asked)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--examples", type=int, default=0, help="of each, however long that takes")
    parser.add_argument("--only", default="", help="those whose names hold this")
    parser.add_argument("--seed", type=int, help="of the first examples (default: the time)")
    parser.add_argument("--one", help="be one round of this fuzzer")
    parser.add_argument("--seconds", type=float, default=0.0, help="of that round")
    parser.add_argument("--url", help="of its database")
    return parser.parse_args()


# --- one round, in a process of its own


def _one(asked: argparse.Namespace) -> int:
    """Fuzz for the time asked for, at least one seed's examples; the last line says how it went."""
    from tests.fuzz.fuzzers import FUZZERS

    resource.setrlimit(resource.RLIMIT_DATA, (DATA_MAX, DATA_MAX))
    warnings.simplefilter("error")
    fuzzer = next(one for one in FUZZERS if one.name == asked.one)
    more = [asked.url] if fuzzer.database else []
    begin_peak()
    end = time.monotonic() + asked.seconds
    examples, number, found = 0, asked.seed, None
    for number in itertools.count(asked.seed):
        faulthandler.dump_traceback_later(GRACE_SECONDS, exit=True)
        try:
            examples += fuzzer.run(number, CHUNK * fuzzer.few, *more)
        except BaseException as error:  # of any kind
            traceback.print_exception(error, file=sys.stderr)
            found = type(error).__name__
        if found is not None or (time.monotonic() >= end and examples >= asked.examples):
            break
    print(json.dumps({"examples": examples, "peak": peak_bytes(), "seed": number, "found": found}))
    return 0 if found is None else 1


# --- all of them


@dataclass
class Counters:
    """The outcome of one fuzzer's rounds. ``found`` has each finding, and how to see it again."""

    name: str
    database: bool
    rounds: int = 0
    examples: int = 0
    peak: int = 0
    found: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Return it as text."""
        said = (
            f"{self.examples:>9,} examples, {self.rounds:>3} rounds, {self.peak / 2**20:>4.0f} MB"
        )
        return f"{self.name:<34}{said}: {', '.join(self.found) or 'nothing found'}"


def _all(asked: argparse.Namespace) -> int:
    from tests.fuzz.fuzzers import FUZZERS

    tallies = [Counters(one.name, one.database) for one in FUZZERS if asked.only in one.name]
    start = time.monotonic()
    first = asked.seed if asked.seed is not None else int(time.time())
    with _database(any(one.database for one in tallies)) as url:
        for number in itertools.count():
            for one in tallies:
                if not one.found and (not asked.examples or one.rounds == 0):
                    _round(one, asked, first + number * 1_000_000, url)
                if not asked.examples and _is_over(start, asked.minutes):
                    break
            if asked.examples or _is_over(start, asked.minutes):
                break
    return _report(tallies, time.monotonic() - start)


def _is_over(start: float, minutes: float) -> bool:
    return time.monotonic() - start >= minutes * 60


@contextmanager
def _database(wanted: bool) -> Iterator[str]:
    if not wanted:
        yield ""
        return
    from harness.servers import PostgresServer

    with PostgresServer() as server:
        yield server.create_database("fuzz")


def _round(one: Counters, asked: argparse.Namespace, seed: int, url: str) -> None:
    """Run a round in a process of its own, and note its outcome."""
    seconds = 0.0 if asked.examples else ROUND_SECONDS
    words = [sys.executable, "-m", "tests.fuzz", "--one", one.name, "--seed", str(seed)]
    options = ["--seconds", str(seconds), "--url", url]
    options += ["--examples", str(asked.examples)]
    done = subprocess.run([*words, *options], capture_output=True, text=True, check=False)
    said = _last(done.stdout)
    one.rounds += 1
    one.examples += said.get("examples", 0)
    one.peak = max(one.peak, said.get("peak", 0))
    found = said.get("found", f"no end (exit code {done.returncode})")
    if found is None and said["peak"] > PEAK_MAX:
        found = f"{said['peak'] / 2**20:.0f} MB of memory"
    if found is not None:
        one.found.append(found)
        _show(one, found, said.get("seed", seed), done.stderr)


def _last(text: str) -> dict[str, Any]:
    try:
        said: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return {}
    return said


def _show(one: Counters, found: str, seed: int, words: str) -> None:
    print(f"\n{one.name}: {found}; again: python -m tests.fuzz --one {one.name!r} --seed {seed}")
    print("\n".join(words.splitlines()[-FAULT_LINES:]), flush=True)


def _report(tallies: list[Counters], seconds: float) -> int:
    for one in tallies:
        print(one.line())
    examples = sum(one.examples for one in tallies)
    peak = max(one.peak for one in tallies) / 2**20
    found = sum(len(one.found) for one in tallies)
    print(
        f"{examples:,} examples in {seconds / 60:.1f} minutes,"
        f" at most {peak:.0f} MB, {found} findings"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
