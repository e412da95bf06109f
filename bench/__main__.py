"""``python -m bench [--rounds N]``: all measurements, one after the other: half an hour.

Each can be run alone: ``python -m bench.recovery``, ``bench.alarms``, ``bench.drain``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from bench import alarms, drain, recovery

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of recovery and drain")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs in a drain")
    parser.add_argument("--page", action="store_true", help="write the tables to docs/recovery.md")
    chosen = parser.parse_args()
    failed = recovery.main(chosen.rounds, page=chosen.page) + alarms.main(page=chosen.page)
    asyncio.run(drain.main(chosen.rounds, chosen.jobs))
    sys.exit(bool(failed))
