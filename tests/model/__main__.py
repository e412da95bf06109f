"""``python -m tests.model [STATES]``: explore every scene; exit 1 at the first violation."""

from __future__ import annotations

import sys

from tests.model.explore import Found, explore
from tests.model.scenes import LARGE

STATES = 60_000
HEAD = f"{'scene':20} {'states':>9} {'steps':>10} {'seen to':>9} {'time':>9}"


def main(states_max: int, only: list[str]) -> int:
    """Print a table; return the exit code."""
    print(HEAD)
    for name in only or LARGE:
        found = explore(LARGE[name], states_max=states_max, on_depth=progress)
        print(f"\r{found.line()}", flush=True)
        if found.wrong:
            tell(found)
            return 1
    return 0


def progress(found: Found) -> None:
    """Print how far it is."""
    print(f"{found.line()}", end="\r", file=sys.stderr)


def tell(found: Found) -> None:
    """Print what is wrong and the shortest way there."""
    print(f"\n{found.wrong}\nafter these steps:")
    for number, words in enumerate(found.path, 1):
        print(f"  {number:>2}. {words}")


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:] if each.isdigit()]
    names = [each for each in sys.argv[1:] if not each.isdigit()]
    sys.exit(main(numbers[0] if numbers else STATES, names))
