"""``python -m tests.chaos STORE``: real workers under many faults, then quiet, then a verdict.

STORE is sqlite, postgres or hosts: PostgreSQL with a standby, where all are on hosts of their own
(network namespaces, which need root). Exit code 1 if anything was violated; then the folder with
all logs is kept, and the last lines show the last events and the command that plays the same plan
again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from harness import namespaces
from outlast import Encryption
from tests.chaos.disk import own_mounts
from tests.chaos.hosts import HostsApart
from tests.chaos.run import MARK, Chaos, Plan
from tests.chaos.summary import how_to_go_on, told
from tests.chaos.verdict import KEY, Verdict


def main() -> int:
    """Run, print the outcome, and keep or remove the folder; return the exit code."""
    parser = arguments()
    chosen = parser.parse_args()
    if chosen.clock and chosen.store != "postgres":
        parser.error("--clock: that of the database on postgres")
    if chosen.store == "hosts":
        if reason := namespaces.why_not():
            sys.exit(f"there can be no hosts: {reason}")
        namespaces.enter_own_network()
    plan = planned(chosen)
    os.environ[MARK] = plan.mark()
    if plan.encrypted:
        os.environ[KEY] = Encryption.make_key()
    try:
        chaos = HostsApart(plan) if plan.store == "hosts" else Chaos(plan)
        verdict = asyncio.run(interruptible(chaos))
    except asyncio.CancelledError:
        print("interrupted: nothing is left running", file=sys.stderr)
        return 130
    except BaseException:
        print("\n".join(how_to_go_on(plan)))
        raise
    lines = told(plan, verdict)
    (plan.folder / "summary").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    if verdict.violations:
        print("\n".join(how_to_go_on(plan, verdict.violations)))
        return 1
    if not plan.keep:
        shutil.rmtree(plan.folder)
    return 0


def planned(chosen: argparse.Namespace) -> Plan:
    """Return the complete plan."""
    folder = chosen.folder or Path(tempfile.mkdtemp(prefix="outlast-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    return Plan(
        store=chosen.store,
        seconds=chosen.seconds if chosen.minutes is None else chosen.minutes * 60,
        seed=random.SystemRandom().randrange(10**6) if chosen.seed is None else chosen.seed,
        folder=folder,
        workers=chosen.workers,
        wakeup=chosen.wakeup,
        only=chosen.only,
        keep=chosen.keep,
        mounts=chosen.store != "hosts" and own_mounts(),
        schedules=chosen.schedules,
        clock=chosen.clock,
        asynchronous=chosen.asynchronous,
        encrypted=chosen.encrypted,
    )


async def interruptible(chaos: Chaos) -> Verdict:
    """Run it so that SIGTERM ends it in order, too."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await chaos.play()


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="tests.chaos", description=__doc__)
    parser.add_argument("store", choices=["sqlite", "postgres", "hosts"])
    parser.add_argument("--seconds", type=float, default=60, help="of faults; then quiet")
    parser.add_argument("--minutes", type=float, help="instead of seconds")
    parser.add_argument("--seed", type=int, help="of the plan; default: a new one")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--schedules", type=int, default=0, help="of 1 to 10 seconds")
    parser.add_argument(
        "--clock",
        action="store_true",
        help="step the database's clock by an hour, too (PostgreSQL)",
    )
    parser.add_argument(
        "--asynchronous", action="store_true", help="hosts: commits do not wait for the standby"
    )
    parser.add_argument("--encrypted", action="store_true", help="encrypt all payloads")
    parser.add_argument("--only", help="deeds with this in the name")
    parser.add_argument("--wakeup", help="the applications' wakeup=; nats: a server of its own")
    parser.add_argument("--folder", type=Path, help="for the logs; default: a temporary one")
    parser.add_argument("--keep", action="store_true", help="keep the folder in any case")
    return parser


if __name__ == "__main__":
    sys.exit(main())
