"""Faults done to workers, network, database and disk. Each deed says whether it could be done."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import psutil

from harness.faketime import HOUR, write_offset
from harness.scene import WorkerProcess
from harness.servers import PostgresServer
from tests.chaos.nemesis import Deed, Ground, Nemesis
from tests.chaos.supervisor import LEASE, send


def how_long(rng: random.Random) -> float:
    """Return seconds: a moment, or about a lease."""
    if rng.random() < 0.5:
        return rng.uniform(0.1, 2)
    return LEASE * rng.uniform(0.8, 1.8)


# --- processes --------------------------------------------------------------------------------


def killing(event: str, *, tree: bool) -> Deed:
    """Return the deed that kills a worker, alone or with all below it."""

    async def do(nemesis: Nemesis, rng: random.Random) -> bool:
        member = nemesis.some(rng)
        if member is None:
            return False
        nemesis.hit(event, member, member.below()[0])
        member.kill(tree=tree)
        return True

    return do


async def kill_runner(nemesis: Nemesis, rng: random.Random) -> bool:
    member = nemesis.some(rng)
    runners = member.below()[0] if member else []
    if member is None or not runners:
        return False
    runner = rng.choice(runners)
    nemesis.hit("runner killed", member, [runner])
    send(runner, signal.SIGKILL)
    return True


async def kill_tether(nemesis: Nemesis, rng: random.Random) -> bool:
    member = nemesis.some(rng)
    tether = member.below()[1] if member else None
    if tether is None:
        return False
    send(tether, signal.SIGKILL)
    return True


async def drain(nemesis: Nemesis, rng: random.Random) -> bool:
    member = nemesis.some(rng)
    if member is None:
        return False
    member.drain()
    return True


async def pause_past_a_deadline(nemesis: Nemesis, rng: random.Random) -> bool:
    """Stop a worker process with a long lease until its attempts are far above their timeout."""
    there = [each for each in nemesis.supervisor.alive() if each.has_long_lease]
    if not there or there[0].process is None:
        return False
    (member,) = there
    worker = member.process.pid  # type: ignore[union-attr]
    member.busy = True
    try:
        await nemesis.ground.scene.stop(lambda number: send(worker, number))
        await asyncio.sleep(rng.uniform(20, 30))
    finally:
        send(worker, signal.SIGCONT)
        member.busy = False
    return True


Victims = Callable[[WorkerProcess, list[psutil.Process], random.Random], list[int]]


def pausing(event: str, victims: Victims, *, tether_dies: bool = False) -> Deed:
    """Return the deed that stops processes of a worker for a moment, or for about a lease."""

    async def do(nemesis: Nemesis, rng: random.Random) -> bool:
        member = nemesis.some(rng)
        if member is None or member.process is None:
            return False
        runners, tether = member.below()
        targets = victims(member.process, runners, rng)
        member.busy = True
        try:
            if tether_dies and tether is not None:
                send(tether, signal.SIGKILL)
            await nemesis.ground.scene.stop(lambda number: _send_all(targets, number))
            seconds = how_long(rng)
            if seconds > LEASE:
                nemesis.hit(event, member, runners)
            await asyncio.sleep(seconds)
        finally:
            _send_all(targets, signal.SIGCONT)
            member.busy = False
        return True

    return do


def _send_all(targets: list[int], number: int) -> None:
    for target in targets:
        send(target, number)


async def unlink_lock(nemesis: Nemesis, rng: random.Random) -> bool:
    """Remove a lock file, as a cleaner of old files may: the worker then looks remote."""
    locks = [*nemesis.ground.scene.lock_files(), *_locks_beside(nemesis.ground.scene.url)]
    if not locks:
        return False
    rng.choice(locks).unlink(missing_ok=True)
    return True


def _locks_beside(url: str) -> list[Path]:
    return sorted(Path(f"{url.removeprefix('sqlite:///')}-locks").glob("*.lock"))


# --- the network ------------------------------------------------------------------------------


async def cut(nemesis: Nemesis, rng: random.Random) -> bool:
    """Reset all connections of one member, or of the clients."""
    await rng.choice(nemesis.ground.proxies).cut()
    return True


async def swallow(nemesis: Nemesis, rng: random.Random) -> bool:
    """Hold all bytes, of one member or of all; in the end pass them on, or reset."""
    everybody = rng.random() < 0.2
    proxies = nemesis.ground.proxies if everybody else [rng.choice(nemesis.ground.proxies)]
    for proxy in proxies:
        proxy.hold()
    await asyncio.sleep(how_long(rng))
    for proxy in proxies:
        if rng.random() < 0.3:
            await proxy.cut()
        proxy.release()
    return True


async def stop_reading(nemesis: Nemesis, rng: random.Random) -> bool:
    """Let the server wait for a member that does not read replies, for some leases."""
    proxy = rng.choice(nemesis.ground.proxies)
    proxy.stop_reading()
    await asyncio.sleep(LEASE * rng.uniform(0.5, 3))
    proxy.release()
    return True


async def slow_down(nemesis: Nemesis, rng: random.Random) -> bool:
    """Let a link carry no more than some hundred kilobytes a second, for a while."""
    proxy = rng.choice(nemesis.ground.proxies)
    proxy.bytes_per_second = rng.uniform(300_000, 1_500_000)
    await asyncio.sleep(rng.uniform(5, 25))
    proxy.bytes_per_second = None
    return True


# --- the database -----------------------------------------------------------------------------


def to_the_database(deed: Deed) -> Deed:
    """Return a deed that is done only while no other is under way on the database."""

    async def do(nemesis: Nemesis, rng: random.Random) -> bool:
        if nemesis.database.locked():
            return False
        async with nemesis.database:
            return await deed(nemesis, rng)

    return do


def _server(nemesis: Nemesis) -> PostgresServer:
    assert nemesis.ground.server is not None
    return nemesis.ground.server


@to_the_database
async def kill_backend(nemesis: Nemesis, rng: random.Random) -> bool:
    """kill -9 of one session's process: the server ends all sessions, and recovers by itself."""
    server = _server(nemesis)
    backends = [each for each in psutil.Process(server.pid).children() if _is_session(each)]
    if not backends:
        return False
    send(rng.choice(backends), signal.SIGKILL)
    await asyncio.to_thread(server.wait_for_answers)
    return True


def _is_session(process: psutil.Process) -> bool:
    """Return whether it is a client's backend: its title names the database and the client."""
    try:
        return " chaos " in " ".join(process.cmdline())
    except psutil.Error:
        return False


def restart(mode: str) -> Deed:
    @to_the_database
    async def do(nemesis: Nemesis, rng: random.Random) -> bool:
        server = _server(nemesis)
        stop = server.kill if mode == "kill" else lambda: server.stop(mode)  # type: ignore[arg-type]
        await asyncio.to_thread(stop)
        await asyncio.sleep(rng.choice([0, 0, rng.uniform(0, 5)]))
        await asyncio.to_thread(server.start)
        return True

    return do


@to_the_database
async def terminate(nemesis: Nemesis, rng: random.Random) -> bool:
    """End a part of the sessions, as an operator or a failing pooler does."""
    try:
        await asyncio.to_thread(
            _server(nemesis).sql,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE"
            f" pid <> pg_backend_pid() AND datname <> '' AND random() < {rng.random():.2f}",
        )
    except RuntimeError:  # the disk is full: no session can begin
        return False
    return True


async def hold_write_lock(nemesis: Nemesis, rng: random.Random) -> bool:
    """Hold SQLite's one write lock, as a user's own long transaction does."""
    path = nemesis.ground.scene.url.removeprefix("sqlite:///")
    seconds = how_long(rng) * 0.6

    def begin() -> sqlite3.Connection | None:
        file = sqlite3.connect(path, isolation_level=None, timeout=5, check_same_thread=False)
        try:
            file.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            file.close()
            return None
        return file

    file = await asyncio.to_thread(begin)
    if file is None:
        return False
    await asyncio.sleep(seconds)
    file.execute("ROLLBACK")
    file.close()
    return True


@to_the_database
async def fill_disk(nemesis: Nemesis, rng: random.Random) -> bool:
    """Fill the database's disk for a while. PostgreSQL may go down by that."""
    disk, server = nemesis.ground.disk, nemesis.ground.server
    assert disk is not None
    disk.fill()
    await asyncio.sleep(rng.uniform(0.5, 6))
    disk.free()
    if server is not None and not server.running:
        nemesis.done["database down for want of disk"] += 1
        await asyncio.to_thread(server.start)
    return True


async def step_clock(nemesis: Nemesis, rng: random.Random) -> bool:
    """Let the database's clock jump: it is right, or an hour fast or slow."""
    clock = nemesis.ground.clock
    assert clock is not None
    offset = rng.choice([-HOUR, 0, HOUR])
    write_offset(clock, offset)
    nemesis.tell("clock stepped", offset=offset)
    return True


def kill_messenger(*, wipe: bool) -> Deed:
    """Return the deed that kills the NATS server for a while; with ``wipe`` it forgets all."""

    async def do(nemesis: Nemesis, rng: random.Random) -> bool:
        server = nemesis.ground.messenger
        assert server is not None
        if nemesis.messenger.locked():
            return False
        async with nemesis.messenger:
            await asyncio.to_thread(server.kill, wipe=wipe)
            await asyncio.sleep(rng.uniform(0.1, 8))
            await asyncio.to_thread(server.start)
        return True

    return do


PROCESSES: dict[str, Deed] = {
    "worker killed": killing("worker killed", tree=False),
    "tree killed": killing("tree killed", tree=True),
    "runner killed": kill_runner,
    "tether killed": kill_tether,
    "worker drained": drain,
    "worker paused": pausing("worker paused", lambda worker, *_: [worker.pid]),
    "tree paused": pausing("tree paused", lambda worker, *_: [each.pid for each in worker.tree()]),
    "runner paused": pausing(
        "runner paused",
        lambda _, runners, rng: [rng.choice(runners).pid] if runners else [],
    ),
    "tether killed and worker paused": pausing(
        "tether killed and worker paused", lambda worker, *_: [worker.pid], tether_dies=True
    ),
    "worker paused past a deadline": pause_past_a_deadline,
    "lock file unlinked": unlink_lock,
}
POSTGRES: dict[str, Deed] = {
    "connections cut": cut,
    "bytes held": swallow,
    "replies not read": stop_reading,
    "link slow": slow_down,
    "backend killed": kill_backend,
    "sessions terminated": terminate,
    "database restarted": restart("fast"),
    "database stopped at once": restart("immediate"),
    "database killed": restart("kill"),
}
MESSENGER: dict[str, Deed] = {
    "messenger killed": kill_messenger(wipe=False),
    "messenger wiped": kill_messenger(wipe=True),
}
CLOCK: dict[str, Deed] = {"clock stepped": step_clock}
SQLITE: dict[str, Deed] = {"write lock held": hold_write_lock}


def deeds_on(ground: Ground, only: str | None = None) -> dict[str, Deed]:
    """Return what can be done here; ``only`` what has this in its name."""
    store = SQLITE if ground.server is None else POSTGRES
    disk: dict[str, Deed] = {} if ground.disk is None else {"disk filled": fill_disk}
    messenger = {} if ground.messenger is None else MESSENGER
    clock = {} if ground.clock is None else CLOCK
    there = PROCESSES | store | disk | messenger | clock
    return {name: deed for name, deed in there.items() if (only or "") in name}
