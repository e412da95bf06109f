"""The drills: what is done to a cluster under load. Each leaves it healthy."""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from harness import namespaces
from harness.front import Front
from harness.patroni import NODES, TTL_SECONDS, Cluster
from tests.chaos.disk import Disk
from tests.ha.check import Facts
from tests.ha.stage import DEADLINE, LEASE_SECONDS, Stage

SETTLE_SECONDS = 3.0
HEARD_SECONDS = 10.0  # a worker tells of what lasts longer than five
ROOM_MEGABYTES = 96
NEXT_LOG_FILE = "SELECT pg_logical_emit_message(false, 'a', 'b'), pg_switch_wal()"
WAITS = "ommits? waits? for a synchronous standby"
READ_ONLY = "database is read-only"
NO_PRIMARY = "it is a standby"
ENQUEUE = ("enqueue", "tests.ha.app:app", "work", "0")


def kill_leader(stage: Stage, *, is_fast: bool = False) -> None:
    """kill -9 of the leader's Patroni and server; it comes back when another one leads."""
    leader, _, _ = stage.cluster.roles()
    stage.fault()
    stage.cluster.kill_node(leader)
    if is_fast:
        stage.cluster.forget_leader()
    stage.goes_on()
    stage.pause(SETTLE_SECONDS)
    stage.cluster.start_node(leader)


def freeze_leader(stage: Stage, seconds: float, *, is_fast: bool = False) -> None:
    """SIGSTOP of the leader's Patroni and server for so long, until another one leads."""
    leader, _, _ = stage.cluster.roles()
    stage.fault()
    stage.cluster.freeze_node(leader)
    if is_fast:
        stage.cluster.forget_leader()
        stage.goes_on()
    stage.pause(seconds)
    stage.cluster.thaw_node(leader)
    stage.goes_on()


def kill_standby(stage: Stage) -> None:
    """kill -9 of the synchronous standby, for which commits wait."""
    _, standby, _ = stage.cluster.roles()
    stage.fault()
    stage.cluster.kill_node(standby)
    stage.goes_on()
    stage.pause(SETTLE_SECONDS)
    stage.cluster.start_node(standby)


def freeze_standby(stage: Stage, seconds: float) -> None:
    """SIGSTOP of the synchronous standby."""
    _, standby, _ = stage.cluster.roles()
    stage.fault()
    stage.cluster.freeze_node(standby)
    stage.pause(seconds)
    stage.cluster.thaw_node(standby)
    stage.goes_on()


def lag_and_kill(stage: Stage, seconds: float = 2.0) -> None:
    """Both standbys stand still for so long; then the leader is killed, and they go on."""
    leader, standby, other = stage.cluster.roles()
    stage.fault()
    for node in (standby, other):
        stage.cluster.freeze_node(node)
    stage.pause(seconds)
    stage.cluster.kill_node(leader)
    for node in (standby, other):
        stage.cluster.thaw_node(node)
    stage.cluster.forget_leader()
    stage.goes_on()
    stage.cluster.start_node(leader)


def throw_away(stage: Stage, seconds: float = 2.0) -> None:
    """Both standbys are killed; the leader goes on for so long, and is killed; they come back
    without it. (One that only stands still gets what its kernel has received.)"""
    leader, standby, other = stage.cluster.roles()
    for node in (standby, other):
        stage.cluster.kill_node(node)
    stage.pause(seconds)
    stage.fault()
    stage.cluster.kill_node(leader)
    for node in (standby, other):
        stage.cluster.start_node(node)
    stage.cluster.forget_leader()
    stage.goes_on()
    stage.cluster.start_node(leader)


def kill_standby_and_leader(stage: Stage) -> None:
    """kill -9 of the synchronous standby, and of the leader once Patroni names the third node
    (until then none may be promoted)."""
    leader, standby, other = stage.cluster.roles()
    stage.fault()
    stage.cluster.kill_node(standby)
    stage.until(lambda: stage.cluster.standby(leader) == other, "another synchronous standby")
    stage.goes_on()
    stage.cluster.kill_node(leader)
    stage.goes_on()
    stage.pause(SETTLE_SECONDS)
    for node in (standby, leader):
        stage.cluster.start_node(node)


def switch_over(stage: Stage) -> None:
    """Let the synchronous standby lead, as before maintenance."""
    leader, standby, _ = stage.cluster.roles()
    stage.fault()
    stage.cluster.switch_over(leader, standby)
    stage.goes_on()


def lose_etcd(stage: Stage, seconds: float) -> None:
    """Two of three etcds stand still: the leader gives up, and all is read-only."""
    stage.fault()
    for node in NODES[:2]:
        stage.cluster.freeze_etcd(node)
    stage.pause(seconds)
    for node in NODES[:2]:
        stage.cluster.thaw_etcd(node)
    stage.goes_on()


def wait_for_standby(stage: Stage, seconds: float = 60.0) -> None:
    """SIGSTOP of the synchronous standby, which Patroni does not replace for so long."""
    _, standby, _ = stage.cluster.roles()
    before = stage.findings()
    stage.cluster.configure({"ttl": seconds})
    stage.pause(SETTLE_SECONDS)  # until each Patroni has read that
    stage.fault()
    stage.cluster.freeze_node(standby)
    stage.pause(HEARD_SECONDS)
    stage.hear(WAITS, "jobs", "stats", "job 1")
    stage.cluster.thaw_node(standby)
    stage.goes_on()
    stage.cluster.configure({"ttl": TTL_SECONDS})
    stage.is_calm(before)


def be_read_only(stage: Stage, seconds: float) -> None:
    """The standby leads from now on, and takes no writes for so long: beyond the lease, so that
    workers stop their attempts."""
    leader, standby, _ = stage.cluster.roles()
    before = stage.findings()
    stage.fault()
    stage.cluster.configure(read_only("on"))
    stage.cluster.switch_over(leader, standby)
    end = time.monotonic() + seconds
    stage.pause(HEARD_SECONDS)
    stage.hear(READ_ONLY, "jobs", "stats", "job 1")
    stage.pause(max(0.0, end - time.monotonic()))
    stage.cluster.configure(read_only(None))
    stage.goes_on()
    stage.is_calm(before)


def hold_promotion(stage: Stage, seconds: float) -> None:
    """kill -9 of the leader; the standby that Patroni promotes stays one for so long."""
    leader, standby, _ = stage.cluster.roles()
    before = stage.findings()
    stage.fault()
    stage.cluster.freeze_recovery(standby)
    stage.cluster.kill_node(leader)
    end = time.monotonic() + seconds
    stage.pause(HEARD_SECONDS)
    said = "" if stage.front else NO_PRIMARY  # a proxy does not tell of the hosts
    stage.wait_for_workers(said)
    for command in (("why", "1"), ("workers",), ENQUEUE):
        if not stage.is_refused(said, *command):
            stage.odd.append(f"{command} found a primary")
    stage.pause(max(0.0, end - time.monotonic()))
    stage.cluster.thaw_node(standby)
    stage.goes_on()
    stage.cluster.start_node(leader)
    stage.is_calm(before)


def read_only(value: str | None) -> dict[str, Any]:
    """Return the settings by which the servers take no writes, or do again."""
    return {"postgresql": {"parameters": {"default_transaction_read_only": value}}}


def fill_log(stage: Stage) -> None:
    """The disk of the leader's write-ahead log is full, until another one leads."""
    leader, _, _ = stage.cluster.roles()
    stage.fault()
    stage.disk.fill()
    with contextlib.suppress(RuntimeError):  # it ends once it needs one more file
        while True:
            stage.cluster.sql(leader, NEXT_LOG_FILE)
    stage.goes_on()
    stage.pause(SETTLE_SECONDS)
    stage.disk.free()


def fill_tables(stage: Stage) -> None:
    """The disk of the leader's tables is full: it refuses what needs room, and goes on to lead.
    Rows that still fit on their pages are stored, so that workers fail only now and then."""
    before = stage.findings()
    stage.fault()
    stage.disk.fill()
    stage.wait_for_workers("disk is full")
    stage.until(lambda: stage.is_refused("disk is full", *ENQUEUE), "an enqueue without room")
    stage.disk.free()
    stage.goes_on()
    stage.is_calm(before)


def restart_all(stage: Stage) -> None:
    """Restart node after node, the leader last, as for a minor release of PostgreSQL."""
    leader, standby, other = stage.cluster.roles()
    stage.fault()
    for node in (other, standby, leader):
        stage.cluster.stop_node(node)
        stage.pause(1.0)
        stage.cluster.start_node(node)
        stage.cluster.wait_healthy()
    stage.goes_on()


def isolate_leader(stage: Stage, seconds: float) -> None:
    """The leader's host reaches no other node, nor their etcds; workers reach all of them."""
    leader, standby, other = stage.cluster.roles()
    here = stage.cluster.address(leader)[0]
    there = [stage.cluster.address(node)[0] for node in (standby, other)]
    ways = [way for each in there for way in ((here, each), (each, here))]
    stage.fault()
    with namespaces.swallowed(*ways):
        stage.pause(seconds)
    stage.goes_on()


def start_meanwhile(stage: Stage) -> None:
    """The leader is killed; then a worker, an enqueue, a migration and a page are started."""
    leader, _, _ = stage.cluster.roles()
    stage.fault()
    stage.cluster.kill_node(leader)
    worker = stage.start_worker(may_end=True)
    started = {
        "enqueue": stage.command(*ENQUEUE),
        "migrate": stage.command("migrate"),
        "why": stage.command("why", "1"),
        "web": stage.command("web", "--port", "0"),
    }
    stage.goes_on()
    stage.until(
        lambda: worker.told("worker_started") or worker.process.poll() is not None, "a new worker"
    )
    stage.notes["worker"] = worker.process.poll()
    if worker.process.poll() not in {None, 3}:
        stage.odd.append(f"a new worker ended with code {worker.process.poll()}")
    stage.notes["web"] = started["web"].poll()
    started.pop("web").kill()
    for name, command in started.items():
        said = command.communicate(timeout=DEADLINE)[0].strip()
        stage.notes[name] = [command.returncode, said]
        if command.returncode not in {0, 3}:
            stage.odd.append(f"{name} ended with code {command.returncode}: {said}")
    stage.cluster.start_node(leader)


@contextlib.contextmanager
def small_disk(cluster: Cluster, part: str) -> Iterator[Disk]:
    """Put this part of the leader's data on a small disk of its own; copy its data again in the
    end."""
    node = cluster.roles()[0]
    cluster.stop_node(node)
    place = cluster.data(node) / part
    size = sum(each.stat().st_size for each in place.rglob("*"))
    disk = Disk(place, size // 1024**2 + ROOM_MEGABYTES, cluster.enter(node))
    try:
        cluster.start_node(node)
        cluster.lead_again(node)
        yield disk
    finally:
        cluster.stop_node(node)
        disk.close()
        shutil.rmtree(cluster.data(node))
        cluster.start_node(node)
        cluster.wait_healthy()


class Drill(NamedTuple):
    """One drill. ``is_first``: the leader stands first in the URL, or last; None: either.
    ``disk``: the part of the leader's data that has a small disk of its own."""

    play: Callable[[Stage], None]
    is_first: bool | None = None
    synchronous: bool = True
    needs_hosts: bool = False
    disk: str | None = None
    prepare: Callable[[Stage], None] = lambda stage: None  # the database, before the load


DRILLS: dict[str, Drill] = {
    "leader-killed": Drill(kill_leader),
    "leader-killed-key-deleted": Drill(lambda stage: kill_leader(stage, is_fast=True)),
    "leader-frozen-first": Drill(lambda stage: freeze_leader(stage, 70.0), is_first=True),
    "leader-frozen-last": Drill(lambda stage: freeze_leader(stage, 70.0), is_first=False),
    "leader-frozen-key-deleted": Drill(lambda stage: freeze_leader(stage, 5.0, is_fast=True)),
    "standby-killed": Drill(kill_standby),
    "standby-frozen": Drill(lambda stage: freeze_standby(stage, 40.0)),
    "standby-and-leader-killed": Drill(kill_standby_and_leader),
    "switchover": Drill(switch_over),
    "leader-isolated": Drill(lambda stage: isolate_leader(stage, 40.0), needs_hosts=True),
    "started-meanwhile": Drill(start_meanwhile),
    "etcd-lost": Drill(lambda stage: lose_etcd(stage, 30.0)),
    "commits-wait": Drill(wait_for_standby),
    "read-only": Drill(lambda stage: be_read_only(stage, LEASE_SECONDS + 15.0)),
    "promotion-held": Drill(lambda stage: hold_promotion(stage, LEASE_SECONDS + 15.0)),
    "log-disk-full": Drill(fill_log, disk="pg_wal"),
    "table-disk-full": Drill(fill_tables, disk="base"),
    "restarted-one-by-one": Drill(restart_all),
    "standbys-behind-leader-killed": Drill(lag_and_kill),
    "leader-killed-asynchronous": Drill(kill_leader, synchronous=False),
    "standbys-behind-asynchronous": Drill(throw_away, synchronous=False),
}


def play(
    cluster: Cluster, drill: Drill, folder: Path, seed: int = 1, front: Front | None = None
) -> Facts:
    """Play a drill on a database of its own, named as the folder; return what is known of it."""
    if cluster.synchronous is not drill.synchronous:
        cluster.be_synchronous(drill.synchronous)
    small = small_disk(cluster, drill.disk) if drill.disk else contextlib.nullcontext()
    with small as disk:
        rng = random.Random(seed)
        leader, *others = cluster.roles()
        rng.shuffle(others)
        is_first = rng.random() < 0.5 if drill.is_first is None else drill.is_first
        order = (leader, *others) if is_first else (*others, leader)
        stage = Stage(cluster, folder, order, front, disk=disk)
        stage.make_database()
        drill.prepare(stage)
        with stage.under_load():
            drill.play(stage)
        return stage.facts()
