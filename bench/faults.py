"""What is done to healthy workers in bench/false_alarms.py. None of it is a reason to take a job
away.

Each fault says what it really did (``ground.proof``), so that a row of zeros is not the row of a
fault that never took place.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import msgspec

from harness.faketime import HOUR, write_offset
from harness.proxy import Proxy
from harness.scene import Scene
from harness.servers import PostgresServer

BOTH = ("sqlite", "postgres")
SQLITE, POSTGRES = ("sqlite",), ("postgres",)
STARVED_SECONDS = 75.0  # longer than a lease
OUTAGE_SECONDS = 45.0
STALL_SECONDS = 5.0
TERMINATIONS = 30  # one each second
HELD_SECONDS = 20.0  # a user's write transaction
STEP_SECONDS = 15.0  # with a stepped clock, and again after it was put back
BUSY_PER_CORE = 4


class Ground(msgspec.Struct, kw_only=True):
    """Where a fault takes place. ``clock`` is the file that libfaketime reads, where it is used."""

    stage: Scene
    clock: Path
    server: PostgresServer | None = None
    standby: PostgresServer | None = None
    proxy: Proxy | None = None
    proof: list[str] = []


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table. ``seconds`` is how long it lasts. ``faked`` names whose clock can be
    stepped. ``healthy`` is false for the control: there the counters must count."""

    name: str
    inflict: Callable[[Ground], Awaitable[None]]
    seconds: float
    stores: tuple[str, ...] = POSTGRES
    proxied: bool = False
    standby: bool = False
    faked: str | None = None
    healthy: bool = True


async def nothing(ground: Ground) -> None:
    await asyncio.sleep(10)


async def kill_one_worker(ground: Ground) -> None:
    ground.stage.workers[0].kill_tree()
    ground.proof.append("one worker killed with kill -9")
    await asyncio.sleep(10)


async def starve(ground: Ground) -> None:
    number = BUSY_PER_CORE * (os.cpu_count() or 1)
    busy = [burn() for _ in range(number)]
    try:
        await asyncio.sleep(STARVED_SECONDS)
        ground.proof.append(f"{number} busy processes, load {os.getloadavg()[0]:.0f}")
    finally:
        for process in busy:
            process.kill()
            process.wait()


def burn() -> subprocess.Popen[bytes]:
    """Start a process that does nothing, as fast as it can."""
    return subprocess.Popen([sys.executable, "-S", "-c", "while 1: 0"])


# --- the database -----------------------------------------------------------------------------


async def restart(ground: Ground) -> None:
    """Once as an operator does it, once as after a crash."""
    assert ground.server is not None
    for stop in (ground.server.stop, ground.server.kill):
        began_at = time.monotonic()
        await asyncio.to_thread(stop)
        await asyncio.to_thread(ground.server.start)
        ground.proof.append(f"{stop.__name__}, back after {time.monotonic() - began_at:.1f} s")
        await asyncio.sleep(10)


async def outage(ground: Ground) -> None:
    assert ground.server is not None
    began_at = time.monotonic()
    await asyncio.to_thread(ground.server.stop)
    await asyncio.sleep(OUTAGE_SECONDS - (time.monotonic() - began_at))
    await asyncio.to_thread(ground.server.start)
    ground.proof.append(f"away for {time.monotonic() - began_at:.1f} s")


async def fail_over(ground: Ground) -> None:
    """The primary dies, its synchronous standby is promoted, the address leads to it."""
    assert ground.server is not None
    assert ground.standby is not None
    assert ground.proxy is not None
    began_at = time.monotonic()
    await asyncio.to_thread(ground.server.kill)
    await asyncio.sleep(5)  # until a worker has noticed
    await asyncio.to_thread(ground.standby.promote)
    ground.proxy.lead_to("127.0.0.1", ground.standby.port)
    await ground.proxy.cut()
    timeline = ground.standby.sql("SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)")
    ground.proof.append(
        f"promoted after {time.monotonic() - began_at:.1f} s, now timeline {int(timeline, 16)}"
    )
    await asyncio.sleep(20)


async def terminate(ground: Ground) -> None:
    assert ground.server is not None
    hangman = await asyncpg.connect(ground.server.url("bench"))
    ended = 0
    for _ in range(TERMINATIONS):
        ended += await hangman.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        await asyncio.sleep(1)
    await hangman.close()
    ground.proof.append(f"{ended} connections terminated in {TERMINATIONS} s")


async def stall(ground: Ground) -> None:
    assert ground.proxy is not None
    for _ in range(2):
        ground.proxy.hold()
        await asyncio.sleep(STALL_SECONDS)
        ground.proxy.release()
        ground.proof.append(f"all bytes held for {STALL_SECONDS:g} s")
        await asyncio.sleep(10)


async def long_transaction(ground: Ground) -> None:
    """A user's own transaction has the write lock of the file."""
    path = ground.stage.url.removeprefix("sqlite:///")
    user = sqlite3.connect(path, isolation_level=None, timeout=30)
    user.execute("CREATE TABLE IF NOT EXISTS of_the_user (value INTEGER)")
    user.execute("BEGIN IMMEDIATE")
    user.execute("INSERT INTO of_the_user VALUES (1)")
    await asyncio.sleep(HELD_SECONDS)
    user.execute("COMMIT")
    user.close()
    ground.proof.append(f"the write lock held for {HELD_SECONDS:g} s")


# --- clocks -----------------------------------------------------------------------------------


def step_clocks(*, of_server: bool = False) -> Callable[[Ground], Awaitable[None]]:
    """The wall clock jumps forward by an hour, back, back by an hour, and forth."""

    async def inflict(ground: Ground) -> None:
        for offset in (HOUR, 0, -HOUR, 0):
            write_offset(ground.clock, offset)
            await asyncio.sleep(STEP_SECONDS)
            if of_server:
                seen = await server_offset(ground)
                ground.proof.append(f"server's clock at {seen:+.0f} s")
            else:
                ground.proof.append(f"a task's clock at {offset_seen_by_tasks(ground):+.0f} s")

    return inflict


async def server_offset(ground: Ground) -> float:
    assert ground.server is not None
    stamp = await asyncio.to_thread(
        ground.server.sql, "SELECT extract(epoch FROM clock_timestamp())"
    )
    return float(stamp) - time.time()


def offset_seen_by_tasks(ground: Ground) -> float:
    """Return how far the wall clock of the last task that ended was off."""
    done = ground.stage.entries("done")
    to_wall = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return done[-1]["wall"] - (done[-1]["at"] + to_wall) if done else 0.0


STEPS_SECONDS = 4 * STEP_SECONDS
FAULTS = (
    Fault(name="nothing", inflict=nothing, seconds=10, stores=BOTH),
    Fault(
        name="4 busy processes per core for 75 s",
        inflict=starve,
        seconds=STARVED_SECONDS,
        stores=BOTH,
    ),
    Fault(name="database stopped and started, killed and started", inflict=restart, seconds=25),
    Fault(name="database away for 45 s", inflict=outage, seconds=OUTAGE_SECONDS),
    Fault(
        name="primary killed, standby promoted",
        inflict=fail_over,
        seconds=30,
        proxied=True,
        standby=True,
    ),
    Fault(
        name="pg_terminate_backend on every connection, each second for 30 s",
        inflict=terminate,
        seconds=TERMINATIONS,
    ),
    Fault(name="network stall of 5 s, twice", inflict=stall, seconds=30, proxied=True),
    Fault(
        name="workers' wall clocks one hour forth and back, back and forth",
        inflict=step_clocks(),
        seconds=STEPS_SECONDS,
        stores=BOTH,
        faked="workers",
    ),
    Fault(
        name="database's wall clock one hour forth and back, back and forth",
        inflict=step_clocks(of_server=True),
        seconds=STEPS_SECONDS,
        faked="server",
    ),
    Fault(
        name="a user's write transaction of 20 s",
        inflict=long_transaction,
        seconds=HELD_SECONDS,
        stores=SQLITE,
    ),
    Fault(
        name="control: a worker killed (must be counted)",
        inflict=kill_one_worker,
        seconds=10,
        stores=BOTH,
        healthy=False,
    ),
)
