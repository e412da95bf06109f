"""Five workers with capabilities; three of them end, each in another way, and the others notice."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from tempfile import TemporaryDirectory
from typing import Any

from examples.automation_registry.app import app, describe, print_out, screenshot
from tests.servers import PostgresServer

OUTLAST = [sys.executable, "-m", "outlast"]
CREW = {"web-1": "browser", "web-2": "browser", "web-3": "browser", "art-1": "gpu", "art-2": "gpu"}
LEASE, PATIENCE = 8.0, 300.0  # seconds; a machine may be busy
WATCHED = {"worker_registered", "worker_draining", "worker_stopped", "worker_reaped"}
WATCHED |= {"workers_deactivated", "job_reenqueued"}


class Monitor:
    """Shows live what workers say of each other; keeps it."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.workers: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str) -> None:
        options = ["--name", name, "--tags", CREW[name], "--runners", "1", "--log-format", "json"]
        options += ["--heartbeat", "2", "--lease", str(LEASE)]
        command = [*OUTLAST, "worker", "examples.automation_registry.app:app", *options]
        worker = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.workers[name] = worker
        threading.Thread(target=self._read, args=(name, worker), daemon=True).start()

    def _read(self, name: str, worker: subprocess.Popen[str]) -> None:
        for line in worker.stderr or ():
            entry = json.loads(line) if line.startswith("{") else {"event": line}
            self.heard.append({"by": name, **entry})
            if entry["event"] in WATCHED:
                skipped = {"event", "timestamp", "level", "worker_id", "token", "replaced"}
                fields = {key: value for key, value in entry.items() if key not in skipped}
                print(f"{entry['timestamp'][11:21]}  {name}  {entry['event']}  {fields}")

    def told(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        wanted = {"event": event, **fields}.items()
        return [entry for entry in list(self.heard) if wanted <= entry.items()]

    def wait(self, event: str, **fields: Any) -> float:
        """Return when it was said, in seconds since 1970."""
        until(lambda: bool(self.told(event, **fields)))
        return datetime.fromisoformat(self.told(event, **fields)[0]["timestamp"]).timestamp()

    def end(self) -> None:
        for worker in self.workers.values():
            worker.send_signal(signal.SIGCONT)
            worker.kill()
            worker.wait()


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def main() -> int:
    with PostgresServer() as server, TemporaryDirectory() as folder:
        os.environ["OUTLAST_RUN_DIR"] = folder
        app.url = os.environ["OUTLAST_URL"] = server.create_database("platform")
        outlast_says("migrate")
        monitor = Monitor()
        try:
            for name in CREW:
                monitor.start(name)
            for name in CREW:
                monitor.wait("worker_ready", by=name)
            return scenario(monitor)
        finally:
            monitor.end()
            app.close_sync()


def scenario(monitor: Monitor) -> int:
    nobody = print_out.enqueue_sync("a label")
    jobs = [screenshot.enqueue_sync(f"page-{number}") for number in range(20)]
    jobs += [describe.enqueue_sync(f"page-{number}.png") for number in range(20)]
    for job in jobs:
        job.result_sync(timeout=PATIENCE)
    rows = [job.refresh_sync() for job in jobs]
    able = all(CREW[row.worker or ""] == capability(row.task) for row in rows)
    pickup = min((row.started_at or 0) - row.enqueued_at for row in rows)

    asked = time.time()
    outlast_says("workers", "drain", "art-1")
    left = monitor.wait("worker_stopped", by="art-1") - asked
    last = [screenshot.enqueue_sync("long", hangs=True) for _ in range(2)]
    until(lambda: all(job.refresh_sync().state == "running" for job in last))
    lost = [job.refresh_sync().worker or "" for job in last]
    began = time.time()
    monitor.workers[lost[0]].kill()
    monitor.workers[lost[1]].send_signal(signal.SIGSTOP)
    found = [monitor.wait("worker_reaped", worker=name) - began for name in lost]
    for job in last:
        job.result_sync(timeout=PATIENCE)
    by = {job.refresh_sync().worker for job in last} - set(lost)
    once = [len(monitor.told("worker_reaped", worker=name)) for name in lost]
    stats, why = outlast_says("stats", "--json"), outlast_says("why", nobody.id, "--json")
    return tell(able, pickup, left, found, once, by, stats, why["sentences"][0])


def capability(task: str) -> str:
    return {"screenshot": "browser", "describe": "gpu"}[task]


def outlast_says(*arguments: object) -> Any:
    command = [*OUTLAST, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout) if "--json" in arguments else None


def tell(
    able: bool,
    pickup: float,
    left: float,
    found: list[float],
    once: list[int],
    by: set[str | None],
    stats: Any,
    why: str,
) -> int:
    """Print what was measured beside the original's figures; 0 if all is as promised."""
    workers, lost = stats["workers"], stats["deactivations"]["hour"]
    print(f"""
| what | the original | ours | measured now |
|---|---|---|---|
| B1: registration | name, role, capabilities; a beat in 30 s | name, tags, tasks; a beat in 2 s | \
{len(CREW)} workers, each with a tag |
| B2: a worker is missing | after 90 s, looked for every 60 s | by proof 1-4 s, else its lease | \
killed: {found[0]:.1f} s; frozen, lease {LEASE:g} s: {found[1]:.1f} s |
| B3: who gets work | fresh heartbeat | claims are fenced, by capability | \
all by the able: {able}; the lost ones' jobs went to {", ".join(map(str, by))}; "{why}" |
| B4: several monitors | side by side | every worker is one | each loss was told {max(once)} time |
| B5: asked to leave | inactive at once | the same, jobs finished first | gone in {left:.1f} s |
| B6: lists, counts, alarm | screens, a metric | `outlast workers`, `stats`, events | \
{workers["active"]} active, {workers["stopped"]} stopped, {workers["lost"]} lost ({lost} in 1 h) |
| B7: dispatch | RabbitMQ | NOTIFY here; the store alone decides on leases | \
picked up in {1000 * pickup:.0f} ms at best |""")
    counted = (workers["active"], workers["stopped"], workers["lost"], lost)
    right = able and once == [1, 1] and len(by) == 1 and "printer" in why
    return 0 if right and counted == (2, 1, 2, 2) else 1


if __name__ == "__main__":
    sys.exit(main())
