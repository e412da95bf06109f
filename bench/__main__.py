"""``python -m bench [--rounds N]``: all measurements, one after the other."""

from __future__ import annotations

import argparse
import asyncio

from bench import drain, recovery

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs in a drain")
    chosen = parser.parse_args()
    asyncio.run(recovery.main(chosen.rounds))
    asyncio.run(drain.main(chosen.rounds, chosen.jobs))
