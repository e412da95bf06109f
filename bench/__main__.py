"""``python -m bench [PART…]``: measure; without a part, all of them.

``recovery`` and ``alarms`` fill docs/recovery.md; the others fill docs/performance.md (``page``
writes it from what was measured). Each says before it begins how long it will take.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable

from bench import alarms, backlog, idle, lanes, latency, page, rates, recovery, running, steady

PARTS: dict[str, Callable[[argparse.Namespace], int]] = {
    "recovery": lambda chosen: recovery.main(chosen.rounds, page=chosen.page),
    "alarms": lambda chosen: alarms.main(page=chosen.page),
    "rates": rates.main,
    "latency": latency.main,
    "backlog": backlog.main,
    "lanes": lanes.main,
    "held": steady.held,
    "steady": steady.steady,
    "idle": idle.main,
    "memory": running.memory,
    "heartbeat": running.heartbeat,
    "page": page.main,
}
QUICK_JOBS = 300


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="bench", description=__doc__)
    made.add_argument("parts", nargs="*", metavar="PART", help=f"one of: {', '.join(PARTS)}")
    made.add_argument("--only", type=names, default=[], help="names (parts of them), with commas")
    made.add_argument("--what", type=names, default=[], help="of rates: one,many,drain")
    made.add_argument("--rounds", type=int, default=3, help="rounds of recovery and rates")
    made.add_argument("--jobs", type=int, default=20_000, help="jobs in a drain, at most")
    made.add_argument("--minutes", type=float, default=10, help="of steady load")
    made.add_argument("--quick", action="store_true", help="a minute that shows that all works")
    made.add_argument("--page", action="store_true", help="write the tables to docs/recovery.md")
    return made


def names(text: str) -> list[str]:
    """Return a list from a text with commas."""
    return [each.strip() for each in text.split(",") if each.strip()]


def main(arguments: list[str] | None = None) -> int:
    """Measure what was asked for; return how much of it has failed."""
    asked = parser()
    chosen = asked.parse_args(arguments)
    unknown = sorted(set(chosen.parts) - set(PARTS))
    if unknown:
        asked.error(f"no part is called {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    if chosen.quick:
        chosen.rounds, chosen.jobs = 1, min(chosen.jobs, QUICK_JOBS)
    return sum(PARTS[part](chosen) for part in chosen.parts or PARTS)


if __name__ == "__main__":
    # workers are in sessions of their own: whoever ends this ends them, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    sys.exit(bool(main()))
