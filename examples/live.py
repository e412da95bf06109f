"""What examples share: workers as processes, and their events, shown live and kept."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

OUTLAST = [sys.executable, "-m", "outlast"]
PATIENCE = 300.0  # seconds; a machine may be busy
DULL = {"event", "timestamp", "level", "worker_id", "replaced", "pid", "by"}


class Workers:
    """Workers of one application; their events of the kinds ``watched`` are printed at once."""

    def __init__(self, application: str, watched: str) -> None:
        self.application = application
        self.watched = set(watched.split())
        self.heard: list[dict[str, Any]] = []
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.began = time.time()

    def scene(self, title: str) -> None:
        """Begin a scene: its times are counted from here."""
        self.began = time.time()
        print(f"\n{title}")

    def start(self, name: str, *options: str, **env: str) -> None:
        command = [*OUTLAST, "worker", self.application, "--name", name, "--runners", "1"]
        command += ["--log-format", "json", *options]
        pipe, full = subprocess.PIPE, {**os.environ, **env}
        worker = subprocess.Popen(command, stderr=pipe, text=True, env=full)
        self.processes[name] = worker
        threading.Thread(target=self._read, args=(name, worker), daemon=True).start()

    def _read(self, name: str, worker: subprocess.Popen[str]) -> None:
        for line in worker.stderr or ():
            entry = json.loads(line) if line.startswith("{") else {"event": line}
            self.heard.append({"by": name, **entry})
            if entry["event"] in self.watched:
                fields = {key: value for key, value in entry.items() if key not in DULL}
                print(f"  {at(entry) - self.began:5.1f} s  {name}  {entry['event']}  {fields}")

    def told(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        wanted = {"event": event, **fields}.items()
        return [entry for entry in list(self.heard) if wanted <= entry.items()]

    def wait(self, event: str, **fields: Any) -> float:
        """Return when it was logged first, in seconds since 1970."""
        until(lambda: bool(self.told(event, **fields)))
        return at(self.told(event, **fields)[0])

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def end(self) -> None:
        for name, worker in self.processes.items():
            worker.send_signal(signal.SIGCONT)
            self.kill(name)


def at(entry: dict[str, Any]) -> float:
    return datetime.fromisoformat(entry["timestamp"]).timestamp()


def until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def outlast(*arguments: object) -> Any:
    """Run the command line; return its document with ``--json``."""
    command = [*OUTLAST, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout) if "--json" in arguments else None
