"""The drills: what is done to a cluster under load. Each leaves it healthy."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from harness import namespaces
from harness.front import Front
from harness.patroni import NODES, Cluster
from tests.ha.check import Facts
from tests.ha.stage import DEADLINE, Stage

SETTLE_SECONDS = 3.0


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
        "enqueue": stage.command("enqueue", "tests.ha.app:app", "work", "0"),
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


class Drill(NamedTuple):
    """One drill. ``is_first``: the leader stands first in the URL, or last; None: either."""

    play: Callable[[Stage], None]
    is_first: bool | None = None
    synchronous: bool = True
    needs_hosts: bool = False
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
    rng = random.Random(seed)
    leader, *others = cluster.roles()
    rng.shuffle(others)
    is_first = rng.random() < 0.5 if drill.is_first is None else drill.is_first
    order = (leader, *others) if is_first else (*others, leader)
    stage = Stage(cluster, folder, order, front)
    stage.make_database()
    drill.prepare(stage)
    with stage.under_load():
        drill.play(stage)
    return stage.facts()
