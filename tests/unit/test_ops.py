"""The files in ``ops/`` for systemd, Docker and Kubernetes: what they say is in the code."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main
import yaml

from outlast.base.config import parse_seconds, parse_size
from outlast.cli.program import build
from outlast.probe import PORT_VARIABLE, PROBES
from outlast.worker.runners.supervisor import START_SECONDS_MAX
from tests.cases import each_case

ROOT = Path(__file__).parents[2]
OPS = ROOT / "ops"
UNIT = OPS / "outlast-worker.service"
DOCKERFILE = OPS / "Dockerfile"
MANIFESTS = sorted((OPS / "kubernetes").glob("*.yaml"))
FUNCTIONS = ROOT / "src" / "outlast" / "store" / "postgres" / "sql" / "functions"
AFTER_DRAIN_SECONDS = 15.0  # to stop what goes on, to hand in its ends and to leave


class Container(NamedTuple):
    """A container of ours, and the pod that it is in."""

    manifest: str
    pod: dict[str, Any]
    spec: dict[str, Any]

    @property
    def args(self) -> list[str]:
        """What ``outlast`` gets."""
        return list(self.spec["args"])

    def option(self, name: str) -> str | None:
        """Return the value of an option."""
        return option(self.args, name)


def option(args: list[str], name: str) -> str | None:
    joined = [each.partition("=") for each in args]
    for at, (flag, equals, value) in enumerate(joined):
        if flag == name:
            return value if equals else args[at + 1]
    return None


@cache
def documents(manifest: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(manifest.read_text()))


def containers() -> Iterator[Container]:
    for manifest in MANIFESTS:
        for document in documents(manifest):
            pod = document["spec"].get("template", {}).get("spec", {})
            for spec in [*pod.get("initContainers", []), *pod.get("containers", [])]:
                if "shop" in spec["image"]:
                    yield Container(manifest.name, pod, spec)


@cache
def commands() -> dict[str, Any]:
    root: Any = typer.main.get_command(build([]))
    return dict(root.commands)


def unknown(args: list[str]) -> set[str]:
    """Return what no command has of this command line, and of the values what cannot be read."""
    command = commands().get(args[0])
    if command is None:
        return {args[0]}
    flags = {name for parameter in command.params for name in parameter.opts}
    given = {each.partition("=")[0] for each in args if each.startswith("--")}
    return given - flags


def unit() -> dict[str, str]:
    lines = [line.partition("=") for line in UNIT.read_text().splitlines()]
    return {name: value for name, equals, value in lines if equals and not name.startswith("#")}


def instructions() -> dict[str, str]:
    """Return the last instruction of each kind in the Dockerfile."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return dict(line.split(" ", 1) for line in text.splitlines() if line)


def of_image() -> list[str]:
    args: list[str] = json.loads(instructions()["CMD"])
    return args


def of_unit() -> list[str]:
    program, *args = shlex.split(unit()["ExecStart"])
    assert Path(program).name == "outlast"
    return args


LINES = {
    **{f"{each.manifest} {each.spec['name']}": each.args for each in containers()},
    "Dockerfile": of_image(),
    "systemd": of_unit(),
}


@each_case("args", LINES.values())
def test_each_command_and_flag_exists_and_each_value_can_be_read(args: list[str]) -> None:
    assert unknown(args) == set()
    drain, rss = option(args, "--drain-timeout"), option(args, "--max-rss")
    if args[0] == "worker":
        assert drain is not None
        assert parse_seconds(drain) > 0
    assert rss is None or parse_size("--max-rss", rss) > 0


def test_a_flag_that_does_not_exist_is_found() -> None:
    assert unknown(["worker", "--drain-time=5"]) == {"--drain-time"}
    assert unknown(["work"]) == {"work"}


@each_case("each", list(containers()))
def test_no_container_may_more_than_it_needs(each: Container) -> None:
    pod, own = each.pod["securityContext"], each.spec["securityContext"]
    assert pod["runAsNonRoot"]
    assert not each.pod["automountServiceAccountToken"]
    assert own["readOnlyRootFilesystem"]
    assert not own["allowPrivilegeEscalation"]
    assert own["capabilities"] == {"drop": ["ALL"]}
    secret = {one["name"]: one for one in each.spec["env"]}["OUTLAST_URL"]
    assert "secretKeyRef" in secret["valueFrom"], "the URL has a password"


def test_what_only_reads_has_a_role_that_only_reads() -> None:
    """It listens: who gets into it gets its role."""
    asked = {
        each.args[0]: {one["name"]: one for one in each.spec["env"]}["OUTLAST_URL"]
        for each in containers()
        if each.args[0] in {"exporter", "web"}
    }
    keys = {name: one["valueFrom"]["secretKeyRef"]["key"] for name, one in asked.items()}
    assert keys == {"exporter": "view-url", "web": "view-url"}
    (web,) = [each for each in containers() if each.args[0] == "web"]
    assert "--read-only" in web.args
    (_, login) = documents(OPS / "kubernetes" / "keda.yaml")
    assert [one["key"] for one in login["spec"]["secretTargetRef"]] == ["view-url"]
    granted = [each.args for each in containers() if each.args[0] == "migrate"]
    assert [option(args, "--only") for args in granted] == [None, "view"]


def test_the_unit_shows_a_worker_s_files_to_no_other_and_takes_what_it_does_not_need() -> None:
    found = unit()
    assert (found["UMask"], found["StateDirectoryMode"]) == ("0077", "0700")
    assert found["RuntimeDirectoryMode"] == "0700"
    assert found["CapabilityBoundingSet"] == ""
    assert found["SystemCallFilter"] == "@system-service"
    for name in ("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "RestrictSUIDSGID"):
        assert found[name] == "yes", name


def worker() -> Container:
    (found,) = [each for each in containers() if each.args[0] == "worker"]
    return found


def test_a_pod_has_the_time_that_a_drain_takes() -> None:
    drain = parse_seconds(worker().option("--drain-timeout") or "")
    assert worker().pod["terminationGracePeriodSeconds"] >= drain + AFTER_DRAIN_SECONDS
    drain = parse_seconds(option(of_unit(), "--drain-timeout") or "")
    assert parse_seconds(unit()["TimeoutStopSec"]) >= drain + AFTER_DRAIN_SECONDS


def test_the_probes_of_a_worker_are_those_that_it_answers() -> None:
    spec = worker().spec
    ports = {port["name"]: port["containerPort"] for port in spec["ports"]}
    probes = {kind: spec[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")}
    asked = {kind: probe["httpGet"]["path"] for kind, probe in probes.items()}
    assert asked == {"startup": "/startupz", "readiness": "/readyz", "liveness": "/livez"}
    assert {path.strip("/") for path in asked.values()} == set(PROBES)
    told = {each["name"]: each.get("value") for each in spec["env"]}[PORT_VARIABLE]
    assert {str(ports[each["httpGet"]["port"]]) for each in probes.values()} == {told}
    startup = probes["startup"]
    assert startup["periodSeconds"] * startup["failureThreshold"] > START_SECONDS_MAX


def test_runners_fit_into_the_memory_of_their_pod() -> None:
    """Else the kernel may end the worker with them: all three at the size at which one is killed
    (docs/workers.md), the spare among them, and the worker."""
    rss = parse_size("--max-rss", worker().option("--max-rss") or "")
    runners = int(worker().option("--runners") or 0) + 1
    limit = parse_size("memory", worker().spec["resources"]["limits"]["memory"])
    assert runners * 1.5 * rss < limit


HELM = OPS / "helm"
_VALUE = re.compile(r"\{\{ \.Values\.([\w.]+) \| toJson \}\}")


def rendered(template: Path) -> dict[str, Any]:
    """Return what helm makes of a template with the chart's own values: each value is written as
    JSON, which is YAML, and templates use nothing else but the release's name."""
    values = yaml.safe_load((HELM / "values.yaml").read_text())

    def value(found: re.Match[str]) -> str:
        one: Any = values
        for key in found[1].split("."):
            one = one[key]
        return json.dumps(one)

    text = _VALUE.sub(value, template.read_text()).replace("{{ .Release.Name }}", "outlast")
    assert "{{" not in text
    document: dict[str, Any] = yaml.safe_load(text)
    return document


def test_the_chart_makes_the_same_objects_as_the_files_without_it() -> None:
    chart = yaml.safe_load((HELM / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]
    templates = sorted((HELM / "templates").iterdir())
    assert [each.name for each in templates] == ["exporter.yaml", "migrate.yaml", "worker.yaml"]
    for template in templates:
        assert not re.search(r"\b80\d\d\b", template.read_text()), "a port is a value"
        made = rendered(template)
        hooks = made["metadata"].pop("annotations", {})
        assert [made] == documents(OPS / "kubernetes" / template.name)
        assert bool(hooks) == (template.name == "migrate.yaml"), "before workers of a new release"


def test_the_page_is_reached_through_its_proxy_alone() -> None:
    (web,) = [each for each in containers() if each.args[0] == "web"]
    assert web.option("--host") == "127.0.0.1"
    assert web.option("--user-header") is not None
    (proxy,) = [each for each in web.pod["containers"] if each is not web.spec]
    upstream = option(proxy["args"], "--upstream")
    assert upstream == f"http://127.0.0.1:{web.option('--port')}"
    assert "ports" not in web.spec


def test_the_autoscaler_calls_a_function_that_there_is() -> None:
    (scaled, login) = documents(OPS / "kubernetes" / "keda.yaml")
    (trigger,) = scaled["spec"]["triggers"]
    (name,) = re.findall(r"SELECT (outlast_\w+)\('default'\)", trigger["metadata"]["query"])
    assert (FUNCTIONS / f"{name}.sql").exists()
    assert trigger["authenticationRef"]["name"] == login["metadata"]["name"]
    names = [each["metadata"]["name"] for each in documents(OPS / "kubernetes" / "worker.yaml")]
    assert scaled["spec"]["scaleTargetRef"]["name"] in names
    assert scaled["spec"]["minReplicaCount"] >= 1, "schedules and rescues need a worker"


def test_the_image_is_asked_by_the_exec_probe_and_runs_as_no_root() -> None:
    found = instructions()
    assert '["python", "-m", "outlast.probe", "livez"]' in found["HEALTHCHECK"]
    assert f"{PORT_VARIABLE}=" in DOCKERFILE.read_text()
    assert found["USER"] == "10001"
    assert found["ENTRYPOINT"] == '["outlast"]'
    assert found["STOPSIGNAL"] == "SIGTERM"


def test_the_unit_lets_the_worker_end_its_own_processes() -> None:
    found = unit()
    assert found["KillMode"] == "mixed", "a runner must not get the SIGTERM of its worker"
    assert found["OOMPolicy"] == "continue"
    assert found["RuntimeDirectoryPreserve"] == "yes", "other workers have their lock files there"
    assert f"OUTLAST_RUN_DIR=/run/{found['RuntimeDirectory']}" in UNIT.read_text()


def complaints(folder: Path, text: str) -> list[str]:
    """Return what systemd says of a unit with this text."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("needs systemd-analyze")
    here = folder / UNIT.name
    here.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(here)],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return [line for line in done.stderr.splitlines() if UNIT.name in line]


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    text = UNIT.read_text()
    assert complaints(tmp_path, text) == []
    assert complaints(tmp_path, text.replace("=mixed", "=gently")) != []


RECORDED = """#!/bin/sh
echo "$(basename $0) $*" >> "$RECORD"
"""
MAKES_VENV = f"""{RECORDED}
mkdir -p "$3/bin" && cp "$0" "$3/bin/pip" && touch "$3/bin/outlast"
"""


def test_the_steps_for_systemd_make_all_that_the_unit_needs(tmp_path: Path) -> None:
    """On a host that has but its own directories; what would change this one only takes notes."""
    page = (ROOT / "docs" / "deploy.md").read_text()
    steps = re.findall(r"^## systemd\n.*?^```\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0]
    host, tools, here = (tmp_path / each for each in ("host", "tools", "here"))
    for directory in (host / "etc/systemd/system", host / "srv", tools, here / "shop"):
        directory.mkdir(parents=True)
    for name in ("useradd", "systemctl", "python3"):
        (tools / name).write_text(MAKES_VENV if name == "python3" else RECORDED)
        (tools / name).chmod(0o755)
    shutil.copy(UNIT, here)
    (here / "shop" / "jobs.py").touch()
    moved = re.sub(r"(?:(?<= )|^)/(?=etc|srv)", f"{host}/", steps, flags=re.MULTILINE)
    done = subprocess.run(
        ["bash", "-eu", "-c", moved],
        env={"PATH": f"{tools}:{os.environ['PATH']}", "RECORD": str(tmp_path / "record")},
        check=False, cwd=here, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = unit()
    program, module = shlex.split(found["ExecStart"])[0], of_unit()[1].partition(":")[0]
    assert (host / program[1:]).exists()
    assert (host / found["WorkingDirectory"][1:] / f"{module.replace('.', '/')}.py").exists()
    settings = host / found["EnvironmentFile"][1:]
    assert "OUTLAST_URL=" in settings.read_text()
    assert settings.stat().st_mode & 0o777 == 0o600
    assert (host / "etc/systemd/system" / UNIT.name).exists()
    noted = (tmp_path / "record").read_text().splitlines()
    assert noted[0].startswith("useradd ")
    assert noted[0].endswith(f" {found['User']}")
    assert noted[-1] == f"systemctl enable --now {UNIT.stem}"
