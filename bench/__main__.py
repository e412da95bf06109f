"""``python -m bench [PART…]``: measure; without a part, all of them.

``recovery`` and ``alarms`` are for docs/recovery.md, ``wakeups`` is for docs/messengers.md and
``fleet`` for docs/scaling.md, ``full`` for docs/beyond-one-database.md, ``retention`` for
docs/tuning.md, ``neutral`` and ``deaths`` for docs/comparison.md; ``django`` is on no page, and
``against COMMIT`` is run when it is named only: it measures that commit beside this one. The others
fill bench/results/tables.md: ``performance`` is all of these, and ``page`` alone writes it again
from what was measured. Each part says before it begins how long it will take. One that breaks is
reported, and the next begins.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from bench import (
    against,
    backlog,
    commands,
    crowds,
    deaths,
    django_enqueue,
    false_alarms,
    fleet,
    flows,
    full,
    idle,
    lanes,
    latency,
    life,
    limits,
    neutral,
    page,
    pages,
    rates,
    recovery,
    retention,
    running,
    schedules,
    size,
    starts,
    steady,
    wakeups,
    workers,
)
from bench.kit import clock

PERFORMANCE: dict[str, Callable[[argparse.Namespace], int]] = {
    "rates": rates.main,
    "held": steady.held,
    "latency": latency.main,
    "idle": idle.main,
    "heartbeat": running.heartbeat,
    "memory": running.memory,
    "lanes": lanes.main,
    "limits": limits.main,
    "flows": flows.main,
    "crowds": crowds.main,
    "backlog": backlog.main,
    "size": size.main,
    "commands": commands.main,
    "life": life.main,
    "steady": steady.steady,
    "schedules": schedules.main,
    "workers": workers.main,
    "pages": pages.main,
    "page": page.main,
}
PARTS: dict[str, Callable[[argparse.Namespace], int]] = {
    "recovery": lambda chosen: recovery.main(chosen.rounds, page=chosen.page),
    "alarms": lambda chosen: false_alarms.main(page=chosen.page),
    "wakeups": wakeups.main,
    "fleet": fleet.main,
    "full": full.main,
    "retention": retention.main,
    "deaths": deaths.main,
    "django": django_enqueue.main,
    "neutral": neutral.main,
    "starts": starts.main,
    "against": against.main,
    **PERFORMANCE,
}
UNASKED = [part for part in PARTS if part != "against"]
GROUPS = {"performance": list(PERFORMANCE)}
QUICK_JOBS = 300


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="bench", description=__doc__)
    made.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join([*PARTS, *GROUPS])}")
    made.add_argument("--only", type=names, default=[], help="names (parts of them), with commas")
    made.add_argument(
        "--what", type=names, default=[], help="of rates and against: one,many,drain,pickup"
    )
    made.add_argument("--rounds", type=int, default=3, help="rounds, of most parts")
    made.add_argument("--jobs", type=int, default=20_000, help="jobs in a drain, at most")
    made.add_argument("--minutes", type=float, default=10, help="of steady load, and of deaths")
    made.add_argument("--keep", help="of retention: for how long jobs are kept, as in 10m")
    made.add_argument("--rows", type=int, help="of pages and commands: jobs in the store")
    made.add_argument("--held", type=float, default=2, help="of neutral: minutes, 30 for the page")
    made.add_argument("--adapter", help="of neutral: the command of another system's adapter")
    made.add_argument("--store", choices=["postgres", "sqlite"], help="of pages: only this kind")
    made.add_argument("--after", type=Path, help="of pages: measure once this file exists")
    made.add_argument("--quick", action="store_true", help="a minute that shows that all works")
    made.add_argument("--page", action="store_true", help="write the tables to bench/results/")
    return made


def names(text: str) -> list[str]:
    """Return a list from a text with commas."""
    return [each.strip() for each in text.split(",") if each.strip()]


def main(arguments: list[str] | None = None) -> int:
    """Measure what was asked for; return how much of it has failed."""
    asked = parser()
    chosen = asked.parse_args(arguments)
    if "against" in chosen.parts:
        chosen.parts, chosen.commit = ["against"], the_commit(asked, chosen.parts)
    known = [*PARTS, *GROUPS]
    unknown = sorted(set(chosen.parts) - set(known))
    if unknown:
        asked.error(f"no part is called {', '.join(unknown)}; there are: {', '.join(known)}")
    if chosen.quick:
        chosen.rounds, chosen.jobs = 1, min(chosen.jobs, QUICK_JOBS)
    wanted = [each for part in chosen.parts or UNASKED for each in GROUPS.get(part, [part])]
    return sum(measured(part, chosen) for part in wanted)


def the_commit(asked: argparse.ArgumentParser, parts: list[str]) -> str:
    """Return the commit that is named behind ``against``."""
    if parts[0] != "against" or len(parts) != 2:
        asked.error("say which commit, and no other part: python -m bench against COMMIT")
    return parts[1]


def measured(part: str, chosen: argparse.Namespace) -> int:
    """Measure one part; return how much of it has failed."""
    began_at = time.monotonic()
    print(f"=== {part}", flush=True)
    try:
        return PARTS[part](chosen)
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        print(f"=== {part} took {clock(time.monotonic() - began_at)}", flush=True)


if __name__ == "__main__":
    # workers are in sessions of their own: a signal to this process ends them, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    sys.exit(bool(main()))
