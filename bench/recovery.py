"""How long from a death to the moment it was noticed, and to the second start.

Real workers with their default settings, unless the line says otherwise. The cases and both
stores take turns, so that a slow minute of the machine hits all.

    python -m bench.recovery [ROUNDS] [--only TEXT]… [--minutes N] [--page]
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence

import msgspec

from bench.cases import CASES, Case, Seen
from bench.kit import APP, Row, announce, fresh, keep, server, table, why
from harness.scene import scene
from harness.servers import PostgresServer

PATIENCE = 120.0  # seconds on top of the longest wait of a round, until it is given up


class Line(msgspec.Struct):
    """One line of the table: what all rounds of a case have shown on one store."""

    case: Case
    store: str
    seen: list[Seen] = []
    failed: list[str] = []

    def row(self) -> Row:
        """Return the cells."""
        starts = [one.start for one in self.seen]
        noticed = [one.noticed for one in self.seen]
        return [
            self.case.name,
            self.case.since,
            self.store,
            "" if self.case.target is None else f"{self.case.target:g}",
            *spread(starts),
            *spread(noticed),
            f"{len(self.seen)}" + (f" ({len(self.failed)} failed)" if self.failed else ""),
            self.remarks(),
        ]

    def remarks(self) -> str:
        """Return why the attempts were closed, and what was not as it should be."""
        causes = Counter(one.cause for one in self.seen)
        said = [each if len(causes) == 1 else f"{n}x {each}" for each, n in causes.most_common()]
        left = sum(not one.gone for one in self.seen)
        if left:
            said.append(f"PROCESSES OF THE FIRST ATTEMPT ALIVE in {left}")
        if any(one.stack is not None for one in self.seen):
            named = sum(one.stack is True for one in self.seen)
            said.append(f"stack names the task in {named} of {len(self.seen)}")
        if self.case.target is not None and self.seen:
            met = statistics.median(one.start for one in self.seen) <= self.case.target
            said.append("target met" if met else "TARGET MISSED")
        return "; ".join(said)


HEADINGS = (
    "what happens",
    "counted from",
    "store",
    "target (s)",
    "second start, median",
    "max",
    "noticed, median",
    "max",
    "rounds",
    "seen as",
)


def spread(values: list[float]) -> tuple[str, str]:
    """Return median and maximum as people read them."""
    if not values:
        return "", ""
    return f"{statistics.median(values):.2f}", f"{max(values):.2f}"


async def once(case: Case, kind: str, postgres: PostgresServer) -> Seen:
    """Play one round of a case on a fresh store."""
    with fresh(kind, postgres) as (url, folder):
        async with asyncio.timeout(case.seconds + PATIENCE), scene(url, folder, app=APP) as stage:
            return await case.play(stage)


async def play(rounds: int, cases: Sequence[Case], minutes: float) -> list[Line]:
    """Play all rounds, interleaved; one that fails is noted, and the next one played."""
    lines = [Line(case, store) for case in cases for store in case.stores]
    began_at = time.monotonic()
    end = began_at + minutes * 60
    with server() as postgres:
        for number in range(1, rounds + 1):
            for line in lines:
                if number > (line.case.rounds or rounds):
                    continue
                if time.monotonic() + line.case.seconds > end:
                    print(f"stopped: {minutes:g} minutes are over", flush=True)
                    return lines
                await one_round(number, line, postgres)
            so_far = (time.monotonic() - began_at) / 60
            print(f"--- {number} of {rounds} rounds after {so_far:.1f} minutes", flush=True)
    return lines


async def one_round(number: int, line: Line, postgres: PostgresServer) -> None:
    """Play one round and say at once how it went."""
    try:
        one = await once(line.case, line.store, postgres)
    except Exception as error:
        line.failed.append(why(error))
        shown = f"FAILED: {why(error)}"
    else:
        line.seen.append(one)
        shown = f"start {one.start:.2f} s, noticed {one.noticed:.2f} s ({one.cause})"
    print(f"{number:>3} {line.case.name}, {line.store}: {shown}", flush=True)


def estimate(rounds: int, cases: Sequence[Case]) -> float:
    """Return about how many seconds this will take."""
    return sum(
        case.seconds * len(case.stores) * min(rounds, case.rounds or rounds) for case in cases
    )


def main(rounds: int, only: Sequence[str] = (), minutes: float = 120, page: bool = False) -> int:
    """Measure, print and keep. Return the number of rounds that failed."""
    cases = [case for case in CASES if not only or any(text in case.name for text in only)]
    announce(f"up to {rounds} rounds of {len(cases)} cases", estimate(rounds, cases))
    lines = asyncio.run(play(rounds, cases, minutes))
    table("recovery", HEADINGS, [line.row() for line in lines], page=page)
    keep("recovery", [msgspec.structs.asdict(line) | {"case": line.case.name} for line in lines])
    failed = [(line, each) for line in lines for each in line.failed]
    for line, each in failed:
        print(f"failed: {line.case.name}, {line.store}: {each}")
    return len(failed)


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="bench.recovery", description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=20)
    parser.add_argument("--only", action="append", default=[], help="cases with this in the name")
    parser.add_argument("--minutes", type=float, default=120, help="begin no round after that")
    parser.add_argument("--page", action="store_true", help="write the table to bench/results/")
    return parser


if __name__ == "__main__":
    chosen = arguments().parse_args()
    sys.exit(bool(main(chosen.rounds, chosen.only, chosen.minutes, chosen.page)))
