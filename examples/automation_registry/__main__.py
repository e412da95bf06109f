"""Five workers with capabilities; three of them end, each in another way, and a monitor hears."""

import os
import signal
import sys
import time
from tempfile import TemporaryDirectory
from typing import Any

from examples.automation_registry.app import app, describe, print_out, screenshot
from examples.automation_registry.monitor import Monitor
from examples.live import PATIENCE, Workers, outlast, until
from harness.rabbit_server import RabbitServer, missing
from harness.servers import PostgresServer

TAGS = {"web-1": "browser", "web-2": "browser", "web-3": "browser", "art-1": "gpu", "art-2": "gpu"}
NEEDS = {"screenshot": "browser", "describe": "gpu"}
LEASE = 8.0  # seconds


def main() -> int:
    if why := missing():
        print(f"This example starts a RabbitMQ server of its own: {why}.")
        return 2
    with PostgresServer() as server, RabbitServer() as broker, TemporaryDirectory() as folder:
        os.environ |= {"OUTLAST_RUN_DIR": folder, "OUTLAST_WAKEUP": broker.url}
        app.url = os.environ["OUTLAST_URL"] = server.create_database("platform")
        outlast("migrate")
        store_id = server.sql("SELECT store_id FROM outlast_schema WHERE number = 1", "platform")
        monitor = Monitor(broker.url, store_id)
        workers = Workers("examples.automation_registry.app:app", watched="")
        try:
            for name, tags in TAGS.items():
                workers.start(name, "--tags", tags, "--heartbeat", "2", "--lease", str(LEASE))
            for name in TAGS:
                workers.wait("worker_ready", by=name)
                workers.wait("wakeup_ready", by=name, kind="amqp")
            return scenario(workers, monitor)
        finally:
            workers.end()
            monitor.end()
            app.close_sync()


def scenario(workers: Workers, monitor: Monitor) -> int:
    unserved = print_out.enqueue_sync("a label")
    jobs = [screenshot.enqueue_sync(f"page-{number}") for number in range(20)]
    jobs += [describe.enqueue_sync(f"page-{number}.png") for number in range(20)]
    for job in jobs:
        job.result_sync(timeout=PATIENCE)
    rows = [job.refresh_sync() for job in jobs]
    able = all(TAGS[row.worker or ""] == NEEDS[row.task] for row in rows)
    waits = [row.started_at - row.enqueued_at for row in rows if row.started_at is not None]
    pickup = min(waits).total_seconds()

    until(lambda: all(monitor.told("heartbeat", worker=name) for name in TAGS))
    asked = time.time()
    outlast("workers", "drain", "art-1")
    left = heard(monitor, "stopped", "art-1") - asked
    last = [screenshot.enqueue_sync("long", hangs=True) for _ in range(2)]
    until(lambda: all(job.refresh_sync().state == "running" for job in last))
    lost = [job.refresh_sync().worker or "" for job in last]
    began = time.time()
    workers.processes[lost[0]].kill()
    workers.processes[lost[1]].send_signal(signal.SIGSTOP)
    found = [heard(monitor, "deactivated", name) - began for name in lost]
    for job in last:
        job.result_sync(timeout=PATIENCE)
    by = {job.refresh_sync().worker for job in last} - set(lost)
    once = [len(monitor.told("deactivated", worker=name)) for name in lost]
    stats, why = outlast("stats", "--json"), outlast("why", unserved.id, "--json")
    seconds = (pickup, left, *found)
    return tell(able, seconds, once, by, stats, why["sentences"][0])


def heard(monitor: Monitor, event: str, worker: str) -> float:
    """Return when it was heard, in seconds since 1970."""
    until(lambda: bool(monitor.told(event, worker=worker)))
    at: float = monitor.told(event, worker=worker)[0]["at"]
    return at


def tell(
    able: bool,
    seconds: tuple[float, ...],
    once: list[int],
    by: set[str | None],
    stats: Any,
    why: str,
) -> int:
    """Print what was measured beside the figures asked for; 0 if all is as promised."""
    workers, lost = stats["workers"], stats["deactivations"]["hour"]
    pickup, left, killed, frozen = seconds
    print(f"""
| what (tests/mission.md) | the system that asked for it | ours | measured now |
|---|---|---|---|
| B1: registration | name, role, capabilities; a beat in 30 s | name, tags, tasks; a beat in 2 s | \
{len(TAGS)} workers, each with a tag |
| B2: a worker is missing | after 90 s, looked for every 60 s | by proof 1-4 s, else its lease | \
killed: {killed:.1f} s; frozen, lease {LEASE:g} s: {frozen:.1f} s |
| B3: who gets work | fresh heartbeat | claims are fenced, by capability | \
all by the able: {able}; the lost ones' jobs went to {", ".join(map(str, by))}; "{why}" |
| B4: several monitors | side by side | every worker is one | each loss was told {max(once)} time |
| B5: asked to leave | inactive at once | the same, jobs finished first | gone in {left:.1f} s |
| B6: lists, counts, alarm | screens, a metric | `outlast workers`, `stats`, events | \
{workers["active"]} active, {workers["stopped"]} stopped, {workers["lost"]} lost ({lost} in 1 h) |
| B7: RabbitMQ | dispatch, and heartbeats to watch | the same; leases are the store's alone | \
picked up in {1000 * pickup:.0f} ms at best; all of B2, B4, B5 was heard there |""")
    counted = (workers["active"], workers["stopped"], workers["lost"], lost)
    right = able and once == [1, 1] and len(by) == 1 and "printer" in why
    return 0 if right and counted == (2, 1, 2, 2) else 1


if __name__ == "__main__":
    sys.exit(main())
