"""``python -m tests.ha.producer FOLDER RATE``: enqueue this many jobs a second until SIGTERM.

What the store has acknowledged goes to the ledger. What got no answer is asked for again under the
same key, of which the store makes one job, also once that has ended.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

import outlast
from harness.journal import boot
from tests.ha.app import app, due, repeats, steps, work

OUTSTANDING_MAX = 40  # enqueues that wait for an answer at a time
AGAIN_SECONDS = 0.1
DUE_SECONDS, DUE_EVERY = 150.0, 0.5
DAY = 86_400.0
KINDS = 25  # one job in this many saves steps, and one runs twice


class Producer:
    """Enqueues at a fixed rate, whether or not the store answers at once."""

    def __init__(self, folder: Path, rate: float) -> None:
        self._ledger = folder / "ledger"
        self._rate = rate
        self._waiting: set[asyncio.Task[None]] = set()

    async def go_on(self) -> None:
        """Enqueue until cancelled; then wait for what is outstanding."""
        number_due = int(DUE_SECONDS / DUE_EVERY)
        await self._until_accepted(
            [due.using(key=f"due-{n}", delay=n * DUE_EVERY).call() for n in range(number_due)]
        )
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        try:
            for number in count():
                await asyncio.sleep(began_at + number / self._rate - loop.time())
                if len(self._waiting) >= OUTSTANDING_MAX:
                    await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)
                asked = asyncio.create_task(self._until_accepted([self._call(number)]))
                self._waiting.add(asked)
                asked.add_done_callback(self._waiting.discard)
        finally:
            if self._waiting:
                await asyncio.wait(self._waiting)

    @staticmethod
    def _call(number: int) -> Any:
        placed: dict[str, Any] = {"key": f"job-{number}", "once_per": DAY}
        if number % KINDS == 1:
            return steps.using(**placed).call(0.3)
        if number % KINDS == 2:
            return repeats.using(**placed).call(1.5)
        return work.using(**placed).call(0.05)

    async def _until_accepted(self, calls: list[Any]) -> None:
        while True:
            asked_at = boot()
            try:
                jobs = await app.enqueue_many(calls)
            except outlast.StoreUnavailable:
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            times = {"asked_at": asked_at, "at": boot()}
            lines = [
                json.dumps({"job": job.id, "key": call.job.key, **times})
                for job, call in zip(jobs, calls, strict=True)
            ]
            with self._ledger.open("a") as ledger:
                ledger.write("".join(f"{line}\n" for line in lines))
            return


async def main(folder: Path, rate: float) -> None:
    """Go on until SIGTERM."""
    going = asyncio.create_task(Producer(folder, rate).go_on())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, going.cancel)
    await asyncio.wait([going])
    await app.close()
    if not going.cancelled():
        going.result()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
