"""``python -m tests.sim FIRST [LAST]``: play seeds; exit 1 at the first violation.

``python -m tests.sim --story SEED`` prints every event of one seed. ``JOBS=2`` in the environment:
two processes at a time.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.sim.chunks import Figures, live_through, live_through_all, story_of


def main(first: int, last: int, jobs: int) -> int:
    """Play seeds and print the figures; return the exit code."""
    whole, started = Figures(), time.monotonic()
    for figures in live_through_all(first, last, jobs):
        whole.add(figures)
        if whole.failure:
            print(whole.failure)
            return 1
        print(f"{whole.seeds} of {last - first + 1} seeds", end="\r", file=sys.stderr, flush=True)
    spent = time.monotonic() - started
    print(
        f"{whole.seeds} seeds, 0 violations: {whole.hours:.2f} simulated hours in {spent:.0f} s"
        f" ({whole.hours / spent:.4f} per second), {whole.events} events;"
        f" all jobs ended at most {whole.quiet_seconds_max:.0f} virtual s after the last fault"
    )
    print(f"{whole.faults.total()} faults:")
    for name, count in whole.faults.most_common():
        print(f"  {count:9} {name}")
    return 0


def story(seed: int) -> int:
    """Print everything that happens in one seed; return the exit code."""
    world = live_through(seed, memory=None)
    for line in world.witness.story():
        print(line)
    if world.witness.violations:
        print(story_of(world).partition("the last events:")[0])
        return 1
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m tests.sim", description=__doc__)
    parser.add_argument("first", type=int, nargs="?", default=1)
    parser.add_argument("last", type=int, nargs="?", help="by default only the first")
    parser.add_argument("--story", action="store_true")
    asked = parser.parse_args()
    if asked.story:
        code = story(asked.first)
    else:
        last = asked.last or asked.first
        code = main(asked.first, last, int(os.environ.get("JOBS") or 1) or 1)
    sys.stdout.flush()
    os._exit(code)
