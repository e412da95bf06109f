"""How long from a death to the second start, and to the moment it was noticed.

Real workers with their default settings, unless the line says otherwise. Both stores take turns,
so that a slow minute of the machine hits both. ``python -m bench.recovery [ROUNDS]``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable

from bench.kit import fresh, report, server
from tests.crash.harness import Scene, WorkerProcess, boot, scene

SHORT = ("--heartbeat", "1", "--lease", "3")
Kill = Callable[[Scene, WorkerProcess, int], Awaitable[None]]


async def kill_runner(stage: Scene, holder: WorkerProcess, runner: int) -> None:
    os.kill(runner, signal.SIGKILL)


async def kill_tree(stage: Scene, holder: WorkerProcess, runner: int) -> None:
    holder.kill_tree()


async def kill_worker_alone(stage: Scene, holder: WorkerProcess, runner: int) -> None:
    holder.signal(signal.SIGKILL)


async def kill_tree_unseen(stage: Scene, holder: WorkerProcess, runner: int) -> None:
    for lock in stage.lock_files():
        lock.unlink()
    holder.kill_tree()


CASES: dict[str, tuple[Kill, tuple[str, ...]]] = {
    "runner killed": (kill_runner, ()),
    "worker tree killed, another on the host": (kill_tree, ()),
    "worker process alone killed": (kill_worker_alone, ()),
    "tree killed, no lock files, lease 3 s": (kill_tree_unseen, SHORT),
}


async def once(
    url: str, folder: object, kill: Kill, options: tuple[str, ...]
) -> tuple[float, float]:
    """Return seconds from the kill to (the second start, the closing of the first attempt)."""
    async with scene(url, folder) as stage:  # type: ignore[arg-type]
        holder = await stage.worker(*options)
        job = await stage.enqueue("first_hangs_in_python")
        first = await stage.started(1)
        await stage.worker(*options)
        killed_at = boot()
        await kill(stage, holder, first["pid"])
        second = await stage.started(2, deadline=120)
        (closed,) = await stage.attempts(job)
        row = await stage.job(job)
        assert row.started_at is not None
        noticed_before_start = row.started_at - closed.ended_at
        started = second["at"] - killed_at
        return started, max(0.0, started - noticed_before_start)


async def main(rounds: int) -> None:
    """Measure every case on both stores, interleaved, and report."""
    starts: dict[tuple[str, str], list[float]] = defaultdict(list)
    notices: dict[tuple[str, str], list[float]] = defaultdict(list)
    with server() as postgres:
        for _ in range(rounds):
            for what, (kill, options) in CASES.items():
                for kind in ("sqlite", "postgres"):
                    with fresh(kind, postgres) as (url, folder):
                        started, noticed = await once(url, folder, kill, options)
                    starts[what, kind].append(started)
                    notices[what, kind].append(noticed)
    report("recovery", "from the kill to the second start", "s", starts)
    report("noticed", "from the kill to the closing of the attempt", "s", notices)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5))
