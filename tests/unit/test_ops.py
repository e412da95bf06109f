"""The files in ``ops/`` for systemd, Docker, Kubernetes and Helm: what they say is in the code."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import typer.main
import yaml

import outlast
from outlast.base.config import parse_seconds, parse_size
from outlast.cli.tree import build
from outlast.probe import PORT_VARIABLE, PROBES
from outlast.worker.runners.supervisor import START_SECONDS_MAX
from tests.cases import each_case
from tests.chart import Chart
from tests.web.kit import page_on

ROOT = Path(__file__).parents[2]
OPS = ROOT / "ops"
UNIT = OPS / "outlast-worker.service"
DOCKERFILE = OPS / "Dockerfile"
MANIFESTS = sorted((OPS / "kubernetes").glob("*.yaml"))
FUNCTIONS = ROOT / "src" / "outlast" / "store" / "postgres" / "sql" / "functions"
COMPOSE = yaml.safe_load((OPS / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
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
    root: Any = typer.main.get_command(build())
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
    **{f"compose {name}": one["command"] for name, one in SERVICES.items() if "command" in one},
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
    names = {name: one["valueFrom"]["secretKeyRef"]["name"] for name, one in asked.items()}
    assert names == {"exporter": "outlast-view", "web": "outlast-view"}
    (web,) = [each for each in containers() if each.args[0] == "web"]
    assert "--read-only" in web.args
    (_, login) = documents(OPS / "kubernetes" / "keda.yaml")
    assert [one["name"] for one in login["spec"]["secretTargetRef"]] == ["outlast-view"]
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


CHART = Chart(OPS / "helm")
SCALED = {"queue": "default", "jobsPerWorker": "20", "min": 1, "max": 20}
BATCH = {
    **CHART.values["workers"]["worker"],
    "args": ["worker", "shop.jobs:app", "--until-empty", "--drain-timeout=50s"],
    "untilEmpty": True,
    "autoscale": {"queue": "batch", "jobsPerWorker": "1", "min": 0, "max": 4},
}


def chart_with(part: str | None = None, /, **values: Any) -> list[dict[str, Any]]:
    """Return the chart's objects with values of its own, of its pool or of another part."""
    if part == "worker":
        return CHART.render(workers={"worker": values})
    return CHART.render(**({part: values} if part else values))


def named(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any] | None:
    found = [one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    assert len(found) <= 1
    return found[0] if found else None


def files(*names: str) -> list[dict[str, Any]]:
    return [one for name in names for one in documents(OPS / "kubernetes" / f"{name}.yaml")]


def plain(objects: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(one, sort_keys=True) for one in objects)


def test_the_chart_makes_the_same_objects_as_the_files_without_it() -> None:
    chart = yaml.safe_load((OPS / "helm" / "Chart.yaml").read_text())
    semantic = outlast.__version__.replace("rc", "-rc")  # Helm takes no other form
    assert chart["version"] == chart["appVersion"] == semantic
    for template in (OPS / "helm" / "templates").iterdir():
        assert not re.search(r"\b80\d\d\b", template.read_text()), "a port is a value"
    made = chart_with()
    hooks = [one["metadata"].pop("annotations", {}) for one in made]
    assert plain(made) == plain(files("worker", "exporter", "migrate"))
    assert [bool(each) for each in hooks] == [one["kind"] == "Job" for one in made]
    network = [one for one in files("network") if one["metadata"]["name"] != "outlast-web"]
    policies = [one for one in chart_with("network", enabled=True) if "Policy" in one["kind"]]
    assert plain(policies) == plain(network)
    scaled = [one for one in chart_with("worker", autoscale=SCALED) if "keda" in one["apiVersion"]]
    assert plain(scaled) == plain(files("keda"))


POD: dict[str, Any] = {
    "nodeSelector": {"pool": "jobs"},
    "tolerations": [{"key": "jobs", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}, "nodeAffinity": {"x": 1}},
    "topologySpreadConstraints": [{"maxSkew": 1}],
    "priorityClassName": "high",
}
LISTS: dict[str, list[Any]] = {
    "env": [{"name": "SHOP_DEBUG", "value": "1"}],
    "volumes": [{"name": "ca", "secret": {"secretName": "ca"}}],
    "volumeMounts": [{"name": "ca", "mountPath": "/ca"}],
}
PARTS = [("worker", "Deployment"), ("exporter", "Deployment"), ("migrate", "Job")]


@each_case("part, kind", PARTS)
def test_each_part_takes_what_a_pod_may_need_and_shows_nothing_of_it_unasked(
    part: str, kind: str
) -> None:
    """Lists come after what the chart itself has."""

    def pod_of(**values: Any) -> dict[str, Any]:
        found = named(chart_with(part, **values), kind, f"outlast-{part}")
        assert found is not None
        template: dict[str, Any] = found["spec"]["template"]
        return template

    def all_in(template: dict[str, Any], name: str) -> list[list[Any]]:
        spec = template["spec"]
        inner = [*spec.get("initContainers", []), *spec["containers"]]
        return [spec[name]] if name == "volumes" else [each.get(name, []) for each in inner]

    usual = pod_of()
    for name, value in POD.items():
        assert name not in usual["spec"]
        assert pod_of(**{name: value})["spec"][name] == value
    for name, value in LISTS.items():
        wanted = [before + value for before in all_in(usual, name)]
        assert all_in(pod_of(**{name: value}), name) == wanted
    source = [{"secretRef": {"name": "shop"}}]
    assert "envFrom" not in json.dumps(usual)
    assert all(each == source for each in all_in(pod_of(envFrom=source), "envFrom"))
    told = pod_of(annotations={"a.example/b": "1"})["metadata"]["annotations"]
    assert told == {**(usual["metadata"].get("annotations") or {}), "a.example/b": "1"}


def test_what_all_pods_have_is_said_once() -> None:
    given = {"imagePullSecrets": [{"name": "registry"}], "serviceAccountName": "shop"}
    for values in ({}, given):
        pods = [
            one["spec"]["template"]["spec"]
            for one in chart_with(**values)
            if "template" in one["spec"]
        ]
        assert len(pods) == len(PARTS)
        for pod in pods:
            assert {name: pod[name] for name in given if name in pod} == values


def test_each_pool_is_a_deployment_and_one_can_be_taken_away() -> None:
    usual = CHART.values["workers"]["worker"]
    objects = CHART.render(workers={"mail": {**usual, "replicas": 5}, "worker": None})
    names = {one["metadata"]["name"] for one in objects if one["kind"] == "Deployment"}
    assert names == {"outlast-mail", "outlast-exporter"}
    mail = named(objects, "Deployment", "outlast-mail")
    assert mail is not None
    assert mail["spec"]["replicas"] == 5
    assert mail["spec"]["selector"]["matchLabels"] == {"app": "outlast-mail"}


def test_a_pool_with_an_autoscaler_has_no_replicas_of_its_own() -> None:
    """Each upgrade would set them back."""
    alone, scaled = chart_with(), chart_with("worker", autoscale=SCALED)
    for objects, is_scaled in ((alone, False), (scaled, True)):
        pool = named(objects, "Deployment", "outlast-worker")
        assert pool is not None
        assert ("replicas" in pool["spec"]) is not is_scaled
        for kind in ("ScaledObject", "TriggerAuthentication"):
            assert (named(objects, kind, "outlast-worker") is not None) is is_scaled


def test_a_pool_that_ends_when_its_queue_is_empty_is_jobs_of_the_autoscaler() -> None:
    objects = CHART.render(workers={"batch": BATCH})
    job = named(objects, "ScaledJob", "outlast-batch")
    assert job is not None
    pod = job["spec"]["jobTargetRef"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["containers"][0]["args"] == BATCH["args"]
    assert unknown(BATCH["args"]) == set()
    assert (job["spec"]["minReplicaCount"], job["spec"]["maxReplicaCount"]) == (0, 4)
    for kind in ("Deployment", "ScaledObject", "PodDisruptionBudget"):
        assert named(objects, kind, "outlast-batch") is None
        assert named(chart_with(), "ScaledJob", "outlast-worker") is None


def test_a_disruption_budget_can_be_changed_and_left_out() -> None:
    two = named(
        chart_with("worker", disruptionBudget={"maxUnavailable": 2}),
        "PodDisruptionBudget",
        "outlast-worker",
    )
    assert two is not None
    assert two["spec"]["maxUnavailable"] == 2
    without = chart_with("worker", disruptionBudget=None)
    assert named(without, "PodDisruptionBudget", "outlast-worker") is None


def test_the_prometheus_operator_is_served_when_asked() -> None:
    """Then no annotation makes another Prometheus scrape the exporter a second time."""
    usual = chart_with()
    for kind in ("Service", "ServiceMonitor", "PrometheusRule", "NetworkPolicy"):
        assert not [one for one in usual if one["kind"] == kind]
    objects = chart_with("monitor", enabled=True, labels={"release": "prometheus"})
    monitor = named(objects, "ServiceMonitor", "outlast-exporter")
    service = named(objects, "Service", "outlast-exporter")
    exporter = named(objects, "Deployment", "outlast-exporter")
    assert monitor is not None
    assert service is not None
    assert exporter is not None
    assert monitor["metadata"]["labels"] == {"release": "prometheus"}
    chosen = monitor["spec"]["selector"]["matchLabels"].items()
    assert chosen <= service["metadata"]["labels"].items()
    (port,) = service["spec"]["ports"]
    assert monitor["spec"]["endpoints"][0]["port"] == port["name"]
    labels = exporter["spec"]["template"]["metadata"]
    assert service["spec"]["selector"].items() <= labels["labels"].items()
    assert not labels["annotations"]


def test_the_rules_of_the_chart_are_the_alerts() -> None:
    labels = {"release": "prometheus"}
    rules = named(chart_with("rules", enabled=True, labels=labels), "PrometheusRule", "outlast")
    assert rules is not None
    assert rules["spec"] == yaml.safe_load((OPS / "alerts.yaml").read_text())
    assert rules["metadata"]["labels"] == labels


def test_without_an_exporter_there_is_none_to_monitor() -> None:
    objects = CHART.render(exporter={"replicas": 0}, monitor={"enabled": True})
    assert not [one for one in objects if "exporter" in one["metadata"]["name"]]


def leaves(values: Any, path: str = "") -> Iterator[str]:
    if isinstance(values, dict) and values:
        for key, one in values.items():
            yield from leaves(one, f"{path}.{key}" if path else key)
    else:
        yield path


def test_each_value_of_the_chart_is_used() -> None:
    text = "".join(each.read_text() for each in (OPS / "helm" / "templates").iterdir())
    used = {each.rpartition(".")[2] for each in re.findall(r"\.[\w.]+", text)}
    inner = {"cpu", "memory", "limits", "requests", "monitoring", "namespaceSelector"}
    for path in leaves(CHART.values):
        assert used & set(path.split(".")) - inner, path


def render_by_helm(values: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Return what Helm itself makes of the chart; a skip where there is none."""
    if (helm := shutil.which("helm")) is not None:
        (folder / "values.yaml").write_text(json.dumps(values))
        command = [helm, "template", "outlast", str(CHART.folder), "-f", f"{folder}/values.yaml"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    else:
        library = pytest.importorskip("helm_python", reason="needs helm, or pip's helm-python-sdk")
        with library.Chart.load(str(CHART.folder)) as chart:
            made = chart.render(values, name="outlast", namespace="default")
        text = "\n---\n".join(made.values())
    return [one for one in yaml.safe_load_all(text) if one]


@each_case(
    "values",
    [
        {},
        {"workers": {"worker": {"autoscale": SCALED, **POD, **LISTS}, "batch": BATCH}},
        {"workers": {"worker": None}, "exporter": {"replicas": 0}},
        {part: {"enabled": True, "labels": {"a": "b"}} for part in ("monitor", "rules")},
        {"network": {"enabled": True}, "imagePullSecrets": [{"name": "x"}]},
    ],
)
def test_helm_makes_of_the_chart_what_these_tests_make(
    values: dict[str, Any], tmp_path: Path
) -> None:
    assert plain(render_by_helm(values, tmp_path)) == plain(CHART.render(**values))


def test_one_command_starts_it_all_in_order_and_reaches_no_further_than_this_machine() -> None:
    for name, one in SERVICES.items():
        for before, how in one.get("depends_on", {}).items():
            needed = "service_healthy" if before == "database" else "service_completed_successfully"
            assert how == {"condition": needed}, name
            assert before in SERVICES
        for port in one.get("ports", []):
            assert port.startswith("127.0.0.1:"), name
    ours = {name: one for name, one in SERVICES.items() if name != "database"}
    assert all(one["read_only"] and one["cap_drop"] == ["ALL"] for one in ours.values())
    drain = parse_seconds(option(SERVICES["worker"]["command"], "--drain-timeout") or "")
    assert parse_seconds(SERVICES["worker"]["stop_grace_period"]) >= drain + AFTER_DRAIN_SECONDS
    assert "--read-only" in SERVICES["page"]["command"]


def test_each_service_has_a_role_that_is_made_and_granted() -> None:
    made = dict(
        re.findall(
            r"CREATE ROLE (\w+) LOGIN PASSWORD '(\w+)'", COMPOSE["configs"]["roles"]["content"]
        )
    )
    owner = SERVICES["database"]["environment"]
    known = made | {owner["POSTGRES_USER"]: owner["POSTGRES_PASSWORD"]}
    granted = {option(one["command"], "--grant") for one in SERVICES.values() if "command" in one}
    assert granted - {None} == set(made)
    for name, one in SERVICES.items():
        if name != "database":
            url = urlsplit(one["environment"]["OUTLAST_URL"])
            assert known[url.username or ""] == url.password
            assert (url.hostname, url.path) == ("database", f"/{owner['POSTGRES_DB']}")
            reads = name in {"page", "exporter"}
            assert (url.username == "shop_viewer") is reads


def test_docker_compose_understands_the_file() -> None:
    docker = shutil.which("docker")
    if (
        docker is None
        or subprocess.run(
            [docker, "compose", "version"], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("needs docker compose")
    subprocess.run([docker, "compose", "-f", OPS / "compose.yaml", "config", "-q"], check=True)


async def test_what_the_probes_of_the_page_ask_for_needs_no_user(sqlite_url: str) -> None:
    (web,) = [each for each in containers() if each.args[0] == "web"]
    probes = [web.spec[f"{kind}Probe"]["exec"]["command"] for kind in ("readiness", "liveness")]
    asked = [*probes, SERVICES["page"]["healthcheck"]["test"][1:]]
    async with page_on(sqlite_url, lambda _: None) as page:
        for _, _, script in asked:
            (address,) = re.findall(r"urlopen\('(\S+)'", script)
            assert (await page.get(address)).status_code == 200
            assert (await page.get("/jobs")).status_code == 401


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
