"""What `ops/` deploys, started: each service of compose.yaml and each container of the manifests
with its own command, environment, role and probes, in their order, on a server with only the roles.

They are processes here, which write nowhere but in the folder for temporary files: the image, its
user and its network need a container engine.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

import pytest

from harness.servers import PostgresServer, free_port
from tests.unit import test_ops as ops
from tests.waiting import SECONDS, until
from tests.worlds.test_read_only_root import Enclosed, enclosed

__all__ = ["enclosed"]

ROLES = {
    "outlast-owner": "shop_owner",
    "outlast-worker": "shop_worker",
    "outlast-view": "shop_viewer",
}
DATABASE = "postgresql://{}@database/shop"
PORTS = ("8010", "8012", "8081")  # of the page, the exporter and the worker's probes
PROBE = ["python", "-m", "outlast.probe", "livez"]  # HEALTHCHECK of the Dockerfile
GRACE = 75.0  # seconds, as compose.yaml and worker.yaml say
APPLICATION = """
import outlast

app = outlast.App()

@app.task
def greet(name: str) -> str:
    return "hello " + name
"""


class Service(NamedTuple):
    """A command. ``checks``: commands, and ports with a path, which succeed once it is up."""

    args: list[str]
    env: dict[str, str]
    checks: list[list[str] | str]


def of_compose() -> Iterator[Service]:
    for one in ops.SERVICES.values():
        if "command" in one:
            health = one.get("healthcheck", {"test": ["CMD", *PROBE]}).get("test", [])
            env = {"OUTLAST_PROBE_PORT": "8081"} | one["environment"]
            yield Service(one["command"], env, [health[1:]] if health else [])


def of_kubernetes() -> Iterator[Service]:
    found = list(ops.containers())
    for each in sorted(found, key=lambda each: each.args[0] != "migrate"):
        env = {one["name"]: one.get("value", "") for one in each.spec["env"]}
        (url,) = (
            one["valueFrom"]["secretKeyRef"] for one in each.spec["env"] if "valueFrom" in one
        )
        env["OUTLAST_URL"] = DATABASE.format(ROLES[url["name"]])
        ports = {port["name"]: str(port["containerPort"]) for port in each.spec.get("ports", [])}
        checks: list[list[str] | str] = []
        for probe in (spec for name, spec in each.spec.items() if name.endswith("Probe")):
            if asked := probe.get("httpGet"):
                checks.append(f"{ports[asked['port']]}{asked['path']}")
            else:
                checks.append(probe["exec"]["command"])
        yield Service(each.args, env, checks)


class Host:
    """Where the services run. A port of a service is another one here, which is free."""

    def __init__(self, folder: Path, server: PostgresServer, world: Enclosed, log: TextIO) -> None:
        self._world, self._log = world, log
        self._names = {port: str(free_port()) for port in PORTS}
        self._names["@database/"] = f"@{server.url().rpartition('@')[2].partition('/')[0]}/"
        self._env = {**os.environ, "PYTHONPATH": str(folder), "TMPDIR": str(folder / "tmp")}

    def here(self, text: str) -> str:
        """Return a text of a deployment with the names that it has here."""
        for theirs, ours in self._names.items():
            text = text.replace(theirs, ours)
        return text.replace(":owner@", "@").replace(":worker@", "@").replace(":viewer@", "@")

    def run(self, args: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
        """Start a program; ``python`` is this one."""
        own = {name: self.here(value) for name, value in env.items()}
        return subprocess.Popen(
            [*self._world.enter, sys.executable, *map(self.here, args)],
            env=self._env | own, stdin=subprocess.DEVNULL, stdout=self._log,
            stderr=self._log, text=True,
        )  # fmt: skip

    def succeeds(self, check: list[str] | str, env: dict[str, str]) -> bool:
        if isinstance(check, str):
            return bool(self.get(check))
        return self.run(check[1:], env).wait(SECONDS) == 0

    def get(self, address: str, **headers: str) -> str:
        """Return what a port and path answer; nothing, while they do not."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"http://127.0.0.1:{self.here(address)}", headers=named)
        with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=10) as answer:
            return str(answer.read().decode())
        return ""


@pytest.fixture
def host(tmp_path: Path, pg_server: PostgresServer, enclosed: Enclosed) -> Iterator[Host]:
    """A host with the application, and a server with the roles and their empty database."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "jobs.py").write_text(APPLICATION)
    for role in ROLES.values():
        pg_server.sql(f"CREATE ROLE {role} LOGIN")
    pg_server.create_database("shop")
    pg_server.sql("ALTER DATABASE shop OWNER TO shop_owner")
    with (tmp_path / "log").open("w") as log:
        yield Host(tmp_path, pg_server, enclosed, log)
    pg_server.drop_database("shop")
    pg_server.sql(f"DROP ROLE {', '.join(ROLES.values())}")


@pytest.mark.parametrize("services", [of_compose, of_kubernetes])
def test_all_of_it_starts_works_and_ends_when_asked(services, host, tmp_path):
    running: list[subprocess.Popen[str]] = []
    try:
        for one in services():
            process = host.run(["-m", "outlast", *one.args], one.env)
            running.append(process)
            if one.args[0] == "migrate":
                assert process.wait(SECONDS) == 0
            for check in one.checks:
                until(functools.partial(host.succeeds, check, one.env), str(check))
        url = {"OUTLAST_URL": DATABASE.format("shop_worker")}
        enqueue = (
            f"from shop.jobs import *; print(greet.enqueue_sync('Ada').result_sync({SECONDS}))"
        )
        assert host.run(["-c", enqueue], url).wait(2 * SECONDS) == 0
        signed_in = {"Host": "jobs.example.org", "X_Forwarded_User": "ada"}
        assert "greet" in (host.get("8010/jobs") or host.get("8010/jobs", **signed_in))
        assert "outlast_jobs{" in host.get("8012/metrics")
        for process in running:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(GRACE) for process in running] == [0] * 5
        assert "hello Ada\n" in (tmp_path / "log").read_text()
    finally:
        for process in running:
            process.kill()
            process.wait()
