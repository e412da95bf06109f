"""A HAProxy for the tests, in front of a cluster under Patroni.

It asks the Patroni of each node whether that leads, and ends the sessions with one that no longer
says so.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from harness.front import Front

Address = tuple[str, int]
_READY_SECONDS = 30.0

# As Patroni's documentation has it, but checked each second: the cluster's times are short, too.
_CONFIGURATION = """\
global
    stats socket {socket}
defaults
    mode tcp
    retries 2
    timeout client 30m
    timeout connect 4s
    timeout server 30m
    timeout check 2s
listen primary
    bind 127.0.0.1:{port}
    option httpchk GET /primary
    http-check expect status 200
    default-server inter 1s fall 3 rise 2 on-marked-down shutdown-sessions
"""


class HaProxyServer(Front):
    """One HAProxy that leads to the primary: ``nodes``: of each, where its server and its Patroni
    listen."""

    package = "haproxy"

    def __init__(self, nodes: Sequence[tuple[Address, Address]]) -> None:
        super().__init__()
        self._nodes = nodes
        self._socket = self.folder / "admin"

    def arguments(self) -> list[str]:
        return ["-db", "-f", "haproxy.cfg"]

    def configure(self, port: int) -> None:
        servers = [
            f"    server n{number} {host}:{at} check addr {rest[0]} port {rest[1]}"
            for number, ((host, at), rest) in enumerate(self._nodes, 1)
        ]
        text = _CONFIGURATION.format(socket=self._socket, port=port) + "\n".join([*servers, ""])
        (self.folder / "haproxy.cfg").write_text(text)

    def is_up(self) -> bool:
        """It answers once it has bound all that it listens on."""
        self.pid_file.write_text(str(self.pid))  # for the janitor: it writes one as a daemon only
        try:
            return f"Pid: {self.pid}" in self._ask("show info")
        except OSError:
            return False

    def wait(self) -> None:
        """Wait until it leads to one node only: before its first checks it leads to all of them,
        and to one that goes down ("UP 1/3") until three have failed."""
        deadline = time.monotonic() + _READY_SECONDS
        while sum(line.split(",")[17].startswith("UP") for line in self._servers()) != 1:
            if time.monotonic() > deadline:
                raise RuntimeError(f"haproxy finds no primary:\n{self.log_tail()}")
            time.sleep(0.05)

    def _servers(self) -> list[str]:
        return [line for line in self._ask("show stat") if line.startswith("primary,n")]

    def _ask(self, command: str) -> list[str]:
        with socket.socket(socket.AF_UNIX) as asked, asked.makefile() as said:
            asked.settimeout(1.0)
            asked.connect(str(self._socket))
            asked.sendall(f"{command}\n".encode())
            return said.read().splitlines()
