"""``python -m tests.sim FIRST [LAST]``: live through seeds; exit 1 at the first violation.

``python -m tests.sim --story SEED`` prints every event of one seed.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter

from tests.sim.world import World, total

ROUNDS_WITHOUT_FAULTS = 10  # each tenth seed is quiet: then nothing may be reclaimed


def main(first: int, last: int) -> int:
    """Return the exit code."""
    faults: list[Counter[str]] = []
    virtual, started = 0.0, time.monotonic()
    for seed in range(first, last + 1):
        world = World(seed, faults=seed % ROUNDS_WITHOUT_FAULTS != 0)
        keep.append(world)
        world.run()
        virtual += world.loop.now - 1_000
        faults.append(world.plan.seen)
        if world.witness.violations:
            tell(world)
            return 1
        if last > first:
            print(f"seed {seed} of {last}", end="\r", file=sys.stderr)
    spent = time.monotonic() - started
    print(f"{last - first + 1} seeds, {virtual / 3600:.2f} simulated hours in {spent:.1f} s")
    print(", ".join(f"{name} {count}" for name, count in total(faults).most_common()))
    return 0


def tell(world: World) -> None:
    """Print the story of a failure, and how to live through it again."""
    print(f"seed {world.seed}: {len(world.witness.violations)} violations")
    for sentence in world.witness.violations:
        print(f"  {sentence}")
    print("the last events:")
    for line in world.witness.events:
        print(f"  {line}")
    print(f"again: python -m tests.sim {world.seed}")
    print(f"all of it: python -m tests.sim --story {world.seed}")


def story(seed: int) -> int:
    """Print everything that happens in one seed; return the exit code."""
    world = World(seed, faults=seed % ROUNDS_WITHOUT_FAULTS != 0, memory=None)
    keep.append(world)
    world.run()
    for line in world.witness.events:
        print(line)
    return 1 if world.witness.violations else 0


keep: list[World] = []  # killed processes are never unwound

if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:] if each != "--story"] or [1]
    code = story(numbers[0]) if "--story" in sys.argv else main(numbers[0], numbers[-1])
    sys.stdout.flush()
    os._exit(code)
