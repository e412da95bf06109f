"""A PgBouncer for the tests, in front of a PostgreSQL server of theirs.

PgBouncer is a Debian package (`make test-all` installs it). Like the servers in harness/servers.py
it has a free port, a temporary folder with its own configuration, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

from harness.servers import Disposable, free_port, start_janitor, unprivileged_user

PoolMode = Literal["session", "transaction", "statement"]

_SETTINGS = {
    "listen_addr": "127.0.0.1",
    "unix_socket_dir": "",
    "auth_type": "any",  # all clients are let in, and log into the server as its configured user
    "default_pool_size": "20",
    "max_client_conn": "200",
    "server_lifetime": "3600",
    "ignore_startup_parameters": "extra_float_digits",  # sent by psycopg and JDBC; a common setting
}
_START_SECONDS = 20.0
_STOP_SECONDS = 10.0


class PgBouncerMissing(RuntimeError):
    """There is no PgBouncer on this machine."""


class PgBouncerServer(Disposable):
    """One PgBouncer on a free port of 127.0.0.1, in front of every database of one server.

    ``settings`` are lines of its ``[pgbouncer]`` section. It runs as an unprivileged user when the
    tests run as root, which PgBouncer refuses. Not started until `start()` is called or it is
    used as a context manager. Raises PgBouncerMissing.
    """

    def __init__(
        self,
        upstream_url: str,
        pool_mode: PoolMode = "transaction",
        settings: dict[str, str] | None = None,
    ) -> None:
        self._program = _program()
        self._upstream = urlsplit(upstream_url)
        self._settings = {**_SETTINGS, "pool_mode": pool_mode, **(settings or {})}
        self.port = 0
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-pgbouncer-"))
        self.log = self.folder / "server.log"
        self._pid_file = self.folder / "pid"
        self._process: subprocess.Popen[bytes] | None = None
        self._as_user = unprivileged_user()
        if self._as_user:
            os.chown(self.folder, self._as_user["user"], self._as_user["group"])
        self._janitor = start_janitor(self.folder, self._pid_file)

    # --- what tests call ---------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def url(self, database: str = "postgres") -> str:
        user = self._upstream.username or "postgres"
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def through(self, url: str) -> str:
        """The address of the same database by way of this pooler."""
        return self.url(urlsplit(url).path.lstrip("/"))

    def start(self) -> None:
        """Start it and return when it answers. The port stays the same for good."""
        assert not self.running, "PgBouncer is running already"
        attempts = 1 if self.port else 5  # a port that was free a moment ago may be taken
        for _ in range(attempts):
            port = self.port or free_port()
            self._process = self._spawn(port)
            if self._answers(port):
                self.port = port
                return
            self.kill()
        raise RuntimeError(f"PgBouncer did not start:\n{self.log_tail()}")

    def stop(self) -> None:
        """Ask it to stop at once, which ends its clients' connections; wait until it has."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """`kill -9`: clients see a reset, the server's sessions end by themselves."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    # --- how -----------------------------------------------------------------------------------

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        config = self.folder / "pgbouncer.ini"
        config.write_text(self._configuration(port))
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [self._program, str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C is for the tests, which then stop it
                **self._as_user,
            )

    def _configuration(self, port: int) -> str:
        named = dict(parse_qsl(self._upstream.query))  # a Unix socket's folder, and its port
        host, port_ = self._upstream.hostname, self._upstream.port
        target = f"host={named.get('host', host)} port={named.get('port', port_)}"
        user = self._upstream.username or "postgres"
        lines = [f"{name} = {value}" for name, value in self._settings.items()]
        own = [f"listen_port = {port}", f"pidfile = {self._pid_file}"]
        databases = ["[databases]", f"* = {target} user={user}"]
        return "\n".join([*databases, "[pgbouncer]", *lines, *own, ""])

    def _answers(self, port: int) -> bool:
        """Whether *this* one listens: it writes its pid file after it has bound its port."""
        deadline = time.monotonic() + _START_SECONDS
        while self.running and time.monotonic() < deadline:
            if self._is_ours() and _listens(port):
                return True
            time.sleep(0.02)
        return False

    def _is_ours(self) -> bool:
        assert self._process is not None
        with contextlib.suppress(OSError, ValueError):
            return int(self._pid_file.read_text()) == self._process.pid
        return False

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_SECONDS)


def _program() -> str:
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"  # which a user's own PATH may lack
    program = shutil.which("pgbouncer", path=path)
    if program is None:
        raise PgBouncerMissing("pgbouncer is not installed: `make test-all` installs it")
    return program


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True
