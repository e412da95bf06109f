"""False alarms: what is taken from three healthy workers under a steady load when all goes wrong.

Expected: all zeros, but in the line of the control, where a worker is really killed. Workers have
their default settings. The columns are those of ``bench.load.Count``.

    python -m bench.false_alarms [--only TEXT]… [--page]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from bench.faults import FAULTS, Fault, Ground
from bench.kit import APP, Row, announce, keep, table, why
from bench.load import REST_SECONDS, WORKERS, Count, Load, all_ended, count
from harness.faketime import faked, no_faked_leftovers, write_offset
from harness.proxy import proxied
from harness.scene import scene
from harness.servers import PostgresServer

SETUP_SECONDS = 30.0  # of a line, beside the fault itself
LEAD_SECONDS, AFTER_SECONDS = 2.0, 8.0  # of load before and after the fault
ANCHOR_SECONDS = 5.0  # by which the anchors outlast the load
KEPT_PROMISES = {"fsync": "on", "synchronous_commit": "on"}
HEADINGS = (
    "what goes wrong",
    "store",
    "reclaimed",
    "interrupted",
    "begun twice",
    "workers lost",
    "unfinished",
    "jobs",
    "slowest start (s)",
    "seen",
)
COLUMNS = ("reclaimed", "interrupted", "twice", "lost", "unfinished", "jobs")


class Line(msgspec.Struct, kw_only=True):
    """One line of the table."""

    fault: Fault
    store: str
    count: Count | None = None
    proof: list[str] = []
    failed: str | None = None

    def row(self) -> Row:
        """Return the cells."""
        numbers = ["-"] * (len(COLUMNS) + 1)
        if self.count is not None:
            numbers = [str(getattr(self.count, name)) for name in COLUMNS]
            numbers.append(f"{self.count.slowest:.1f}")
        return [self.fault.name, self.store, *numbers, "; ".join(self.remarks())]

    def remarks(self) -> list[str]:
        """Return what really happened, and what else was counted."""
        failed = [f"FAILED: {self.failed}"] if self.failed is not None else []
        if self.count is None:
            return failed
        extra = {
            "claims given back unstarted": self.count.unstarted,
            "writes refused": self.count.refused,
            "leases given up": self.count.lapsed,
        }
        verdict = [] if self.as_expected() else ["NOT AS EXPECTED", *self.count.causes]
        return [*failed, *self.proof, *(f"{what}: {n}" for what, n in extra.items() if n), *verdict]

    def as_expected(self) -> bool:
        """Whether the alarms are zero, or, in the control, are not.

        A history that ``outlast verify`` does not accept is a failure of its own.
        """
        if self.count is None or self.failed is not None:
            return False
        return (self.count.alarms() == 0) is self.fault.healthy


@contextlib.asynccontextmanager
async def prepared(fault: Fault, kind: str) -> AsyncIterator[Ground]:
    """Start everything that a fault needs; leave nothing of it behind."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outlast-bench-")))
        if fault.faked:
            stack.enter_context(no_faked_leftovers())
        folder.chmod(0o755)  # the server may be another user, and reads the clock
        clock = folder / "clock"
        write_offset(clock, 0)
        if kind == "sqlite":
            file = f"sqlite:///{folder}/bench.db"
            stage = await stack.enter_async_context(scene(file, folder, app=APP))
            yield Ground(stage=stage, clock=clock)
            return
        env = faked(clock) if fault.faked == "server" else {}
        server = stack.enter_context(PostgresServer(settings=KEPT_PROMISES, env=env))
        url, standby, proxy = server.create_database("bench"), None, None
        if fault.standby:
            standby = stack.enter_context(PostgresServer(KEPT_PROMISES, standby_of=server))
            await in_step(server)
        if fault.proxied:
            proxy, url = await stack.enter_async_context(proxied(url))
        stage = await stack.enter_async_context(scene(url, folder, app=APP))
        yield Ground(stage=stage, clock=clock, server=server, standby=standby, proxy=proxy)


async def in_step(server: PostgresServer) -> None:
    """Make the standby a synchronous one: what was accepted is on both."""
    server.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    server.sql("SELECT pg_reload_conf()")
    async with asyncio.timeout(30):
        while server.sql("SELECT sync_state FROM pg_stat_replication") != "sync":
            await asyncio.sleep(0.05)


async def measure(fault: Fault, kind: str, line: Line) -> None:
    """Put the load on, inflict the fault, and count."""
    async with prepared(fault, kind) as ground:
        stage = ground.stage
        line.proof = ground.proof
        env = faked(ground.clock) if fault.faked == "workers" else {}
        for _ in range(WORKERS):
            await stage.worker("--runners", "2", env=env)
        load = Load(stage)
        span = LEAD_SECONDS + fault.seconds + AFTER_SECONDS + ANCHOR_SECONDS
        await load.anchors(span)
        async with load.running():
            await asyncio.sleep(LEAD_SECONDS)
            await fault.inflict(ground)
            await asyncio.sleep(AFTER_SECONDS)
        await all_ended(stage, span)
        line.count = await count(stage)
        line.count.slowest = load.slowest_start()
        if not line.as_expected():
            print(stage.logs(), file=sys.stderr, flush=True)


def run(faults: Sequence[Fault]) -> list[Line]:
    """Measure every fault on each of its stores; one that cannot be measured is noted."""
    lines = [Line(fault=fault, store=store) for fault in faults for store in fault.stores]
    for line in lines:
        patience = line.fault.seconds * 3 + SETUP_SECONDS + REST_SECONDS + 120
        try:
            asyncio.run(asyncio.wait_for(measure(line.fault, line.store, line), patience))
        except Exception as error:
            line.failed = why(error)
        print(" | ".join(line.row()), flush=True)
    return lines


def boot_clock_is_left_alone() -> bool:
    """Whether libfaketime, as it is used here, fakes the wall clock and no other."""
    code = (
        "import time; print(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic())"
    )
    with tempfile.TemporaryDirectory() as folder:
        clock = Path(folder) / "clock"
        write_offset(clock, 3600)
        shown = [
            subprocess.run(
                [sys.executable, "-S", "-c", code],
                env={**os.environ, **env},
                capture_output=True,
                text=True,
                check=True,
            ).stdout.split()
            for env in ({}, faked(clock))
        ]
    steps = [float(faked_) - float(real) for real, faked_ in zip(*shown, strict=True)]
    return steps[0] > 3500 and max(steps[1:]) < 60


def main(only: Sequence[str] = (), page: bool = False) -> int:
    """Measure, print and keep. Return the number of lines that are not as expected."""
    faults = [fault for fault in FAULTS if not only or any(text in fault.name for text in only)]
    if any(fault.faked for fault in faults) and not boot_clock_is_left_alone():
        print("libfaketime does not leave CLOCK_BOOTTIME alone here: its lines say nothing")
    seconds = sum(
        (fault.seconds + SETUP_SECONDS + AFTER_SECONDS) * len(fault.stores) for fault in faults
    )
    announce(f"{len(faults)} faults", seconds)
    lines = run(faults)
    table("alarms", HEADINGS, [line.row() for line in lines], page=page)
    keep(
        "alarms",
        [
            {
                "fault": line.fault.name,
                "store": line.store,
                "count": line.count,
                "seen": line.remarks(),
            }
            for line in lines
        ],
    )
    return sum(not line.as_expected() for line in lines)


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="bench.false_alarms", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="faults with this in the name")
    parser.add_argument("--page", action="store_true", help="write the table to bench/results/")
    return parser


if __name__ == "__main__":
    chosen = arguments().parse_args()
    sys.exit(bool(main(chosen.only, chosen.page)))
