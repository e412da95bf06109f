"""``make upgrade``: an upgrade and its way back, under load, with kills and drains all along.

The wheels of the last release (tools/upgrade-from) and of this tree, with migrations of the
rehearsal's own, are installed in environments of their own. Then, on one store: the old schema with
old workers; migrate; old and new workers side by side; only new ones; back to the old ones. Nothing
may be lost, accepted late or fired twice; each release hears the pauses and cancels of the other
and reads its rows; both verify the history. Exit code 1 if anything was violated.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.__main__ import interruptible
from tests.chaos.run import MARK
from tests.chaos.summary import how_to_go_on, told
from tests.upgrade.releases import Release, build_both
from tests.upgrade.run import Upgrade, UpgradePlan
from tools.release import Refused

STORES = ("sqlite", "postgres")


def main() -> int:
    """Rehearse on each store; return the exit code."""
    chosen = arguments().parse_args()
    os.environ.pop("PYTHONPATH", None)  # the releases have modules of their own
    seed = random.SystemRandom().randrange(10**6) if chosen.seed is None else chosen.seed
    folder = Path(tempfile.mkdtemp(prefix="outlast-upgrade-"))
    try:
        old, new = build_both(folder / "releases", breaks=chosen.breaks)
        codes = []
        for store in STORES if chosen.store == "both" else [chosen.store]:
            (folder / store).mkdir()
            plan = UpgradePlan(
                store=store,
                seconds=chosen.seconds,
                seed=seed,
                workers=chosen.workers,
                folder=folder / store,
                schedules=3,
                breaks=chosen.breaks,
            )
            codes.append(rehearse(plan, old, new))
    except Refused as error:
        print(f"make upgrade: {error}", file=sys.stderr)
        return 2
    if not any(codes):
        shutil.rmtree(folder)
    return max(codes)


def rehearse(plan: UpgradePlan, old: Release, new: Release) -> int:
    """Play one plan and print the verdict; return the exit code."""
    print(f"upgrade on {plan.store}, seed {plan.seed}, from {old.name}", flush=True)
    os.environ[MARK] = plan.mark()
    try:
        verdict = asyncio.run(interruptible(Upgrade(plan, old, new)))
    except asyncio.CancelledError:
        print("interrupted: nothing is left running", file=sys.stderr)
        return 130
    except BaseException:
        print("\n".join(how_to_go_on(plan)))
        raise
    print("\n".join(told(plan, verdict)))
    if verdict.violations:
        print("\n".join(how_to_go_on(plan, verdict.violations)))
        return 1
    return 0


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="make upgrade", description=__doc__)
    parser.add_argument("store", choices=[*STORES, "both"], nargs="?", default="both")
    parser.add_argument("--seconds", type=float, default=120, help="of faults, on each store")
    parser.add_argument("--seed", type=int, help="of the plan; default: a new one")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument(
        "--break",
        dest="breaks",
        action="store_true",
        help="let the new release write what the old one cannot read: the verdict has to be red",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
