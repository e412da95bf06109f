"""A program before a PostgreSQL server of the tests: a proxy or a pooler, from a Debian package.

Like the servers in harness/servers.py it has a free port, a temporary folder with its own
configuration, and leaves nothing behind.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from harness.servers import Disposable, free_port, start_janitor, unprivileged_user

_START_SECONDS = 60.0
_STOP_SECONDS = 10.0


class FrontMissing(RuntimeError):
    """The program is not on this machine."""


class Front(Disposable):
    """One such program on a free port of 127.0.0.1.

    It runs as an unprivileged user when the tests run as root. Not started until `start()` is
    called or it is used as a context manager. Raises FrontMissing.
    """

    package: str  # Debian's, and the program's name

    def __init__(self) -> None:
        path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin"  # which a user's own PATH may lack
        program = shutil.which(self.package, path=path)
        if program is None:
            raise FrontMissing(f"{self.package} is not installed: `make debian` installs it")
        self.program = program
        self.port = 0
        self.folder = Path(tempfile.mkdtemp(prefix=f"outlast-{self.package}-"))
        self.log = self.folder / "server.log"
        self.pid_file = self.folder / "pid"
        self._process: subprocess.Popen[bytes] | None = None
        self._as_user = unprivileged_user()
        if self._as_user:
            os.chown(self.folder, self._as_user["user"], self._as_user["group"])
        self._janitor = start_janitor(self.folder, self.pid_file)

    # --- what each kind says of itself -----------------------------------------------------------

    def arguments(self) -> list[str]:
        """Return what starts it in its folder, besides its name."""
        raise NotImplementedError

    def configure(self, port: int) -> None:
        """Write its configuration."""
        raise NotImplementedError

    def is_up(self) -> bool:
        """Whether *this* one listens, and no stranger on a port that was free a moment ago."""
        raise NotImplementedError

    # --- what tests call ---------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.package} is not running"
        return self._process.pid

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def through(self, url: str) -> str:
        """The address of the same database by way of this one."""
        return self.url(urlsplit(url).path.lstrip("/"))

    def start(self) -> None:
        """Start it and return when it answers. The port stays the same for good."""
        assert not self.running, f"{self.package} is running already"
        attempts = 1 if self.port else 5  # a port that was free a moment ago may be taken
        for _ in range(attempts):
            port = self.port or free_port()
            self.configure(port)
            self._process = self._spawn()
            if self._answers(port):
                self.port = port
                return
            self.kill()
        raise RuntimeError(f"{self.package} did not start:\n{self.log_tail()}")

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

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [self.program, *self.arguments()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,  # Ctrl-C is for the tests, which then stop it
                **self._as_user,
            )

    def _answers(self, port: int) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while self.running and time.monotonic() < deadline:
            if self.is_up() and _listens(port):
                return True
            time.sleep(0.02)
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


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True
