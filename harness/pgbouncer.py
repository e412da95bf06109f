"""A PgBouncer for the tests, in front of a PostgreSQL server of theirs."""

from __future__ import annotations

import contextlib
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

import psycopg

from harness.front import Front

PoolMode = Literal["session", "transaction", "statement"]

_SETTINGS = {
    "listen_addr": "127.0.0.1",
    "unix_socket_dir": "",
    "auth_type": "any",  # all clients are let in, and log into the server as its configured user
    "default_pool_size": "20",
    "max_client_conn": "200",
    "server_lifetime": "3600",
    "ignore_startup_parameters": "extra_float_digits",  # sent by psycopg and JDBC; a common setting
    "admin_users": "postgres",
}


class PgBouncerServer(Front):
    """One PgBouncer in front of every database of one server.

    ``settings`` are lines of its ``[pgbouncer]`` section.
    """

    package = "pgbouncer"

    def __init__(
        self,
        upstream_url: str,
        pool_mode: PoolMode = "transaction",
        settings: dict[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._upstream = urlsplit(upstream_url)
        self._settings = {**_SETTINGS, "pool_mode": pool_mode, **(settings or {})}

    def url(self, database: str = "postgres") -> str:
        user = self._upstream.username or "postgres"
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def tell(self, command: str) -> None:
        """Give it a command of its console: RECONNECT closes its sessions with the server, each
        once no client uses it."""
        with psycopg.connect(self.url("pgbouncer"), autocommit=True) as console:
            console.pgconn.exec_(command.encode())

    def arguments(self) -> list[str]:
        return ["pgbouncer.ini"]

    def configure(self, port: int) -> None:
        named = dict(parse_qsl(self._upstream.query))  # a Unix socket's folder, and its port
        host, port_ = self._upstream.hostname, self._upstream.port
        target = f"host={named.get('host', host)} port={named.get('port', port_)}"
        user = self._upstream.username or "postgres"
        lines = [f"{name} = {value}" for name, value in self._settings.items()]
        own = [f"listen_port = {port}", f"pidfile = {self.pid_file}"]
        databases = ["[databases]", f"* = {target} user={user}"]
        text = "\n".join([*databases, "[pgbouncer]", *lines, *own, ""])
        (self.folder / "pgbouncer.ini").write_text(text)

    def is_up(self) -> bool:
        """It writes its pid file after it has bound its port."""
        with contextlib.suppress(OSError, ValueError):
            return int(self.pid_file.read_text()) == self.pid
        return False
