"""``python -m tests.sim.caught [NAME…]``: which seed catches which broken twin, and by which check.

Each twin is first played at the seed that is known to catch it; where the code has changed
so that it no longer does, at the first SEEDS; those whose theme reaches the guard come first.
``--search`` ignores the known seeds.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import ExitStack

from tests.sim.chunks import answer_of, forked, live_through
from tests.sim.nemesis import theme_of
from tests.sim.twins import TWINS

SEEDS = 600  # within which every twin has to be caught
CHUNK = 6  # seeds in one process


def caught(name: str, seeds: list[int]) -> tuple[int, str] | None:
    """Return the first of the seeds with a violation, and its text."""
    for at in range(0, len(seeds), CHUNK):
        chunk = seeds[at : at + CHUNK]
        found = answer_of(*forked(lambda chunk=chunk: _first_violation(name, chunk)))  # type: ignore[misc]
        if found is not None and _is_sound(int(found[0])):
            return int(found[0]), str(found[1])
    return None


def _in_order(name: str) -> list[int]:
    return sorted(range(1, SEEDS + 1), key=lambda seed: theme_of(seed) != TWINS[name].theme)


def _first_violation(name: str, seeds: list[int]) -> tuple[int, str] | None:
    with ExitStack() as patches:
        for patch in TWINS[name].patches():
            patches.enter_context(patch)
        for seed in seeds:
            world = live_through(seed)
            if world.witness.violations:
                return seed, world.witness.violations[0]
    return None


def _is_sound(seed: int) -> bool:
    """Return whether this seed has no violation while every guard is in place."""
    return not answer_of(*forked(lambda: live_through(seed).witness.violations))


def main(names: list[str], *, search: bool) -> int:
    """Print the table; return 1 if a twin was not caught."""
    missed = 0
    for name in names or TWINS:
        seeds = [] if search else [TWINS[name].seed]
        found = caught(name, seeds) or caught(name, _in_order(name))
        missed += found is None
        seed, sentence = found or (0, f"NOT CAUGHT within {SEEDS} seeds")
        print(f"{name:56} {seed or '-':>4}  {sentence[:100]}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m tests.sim.caught", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of a twin; all by default")
    parser.add_argument("--search", action="store_true")
    asked = parser.parse_args()
    if unknown := ", ".join(set(asked.names) - set(TWINS)):
        parser.error(f"no twin is named {unknown}; there are: {', '.join(TWINS)}")
    code = main(asked.names, search=asked.search)
    sys.stdout.flush()
    os._exit(code)
