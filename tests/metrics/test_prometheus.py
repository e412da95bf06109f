"""Prometheus itself reads the page, the rules and their tests."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from harness.servers import free_port
from outlast.metrics.collector import Look, read_look
from outlast.metrics.exporter import Exporter, serving
from outlast.store.protocol import Store
from tests.conformance.kit import TASK, Hands, enqueued, job
from tests.metrics.kit import counted, full_look, page_of

pytestmark = pytest.mark.prometheus
OPS = Path(__file__).resolve().parents[2] / "ops"
SECONDS = 120.0

CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [alerts.yaml]
scrape_configs:
  - job_name: outlast
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


def run(command: list[str], given: str | None = None) -> tuple[int, str]:
    """Return the exit code, and what was printed."""
    done = subprocess.run(
        command,
        check=False,
        cwd=OPS,
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )
    return done.returncode, done.stdout


def test_the_rules_are_valid_and_fire_when_they_should(promtool: str) -> None:
    for what in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]):
        code, said = run([promtool, *what])
        assert code == 0, said


@pytest.mark.parametrize("look", [full_look(), None], ids=["full", "away"])
def test_the_page_has_no_fault_that_promtool_finds(promtool: str, look: Look | None) -> None:
    assert run([promtool, "check", "metrics"], page_of(look)) == (0, "")


async def test_a_server_scrapes_a_store_and_an_alert_fires(
    prometheus: str, store: Store, tmp_path: Path
) -> None:
    hands = await Hands.on(store, lease=3_600.0)
    await enqueued(store, *[job(queue="mail")] * 3, job(queue="late", run_at=1_000.0))
    await store.note_minute(hands.me.worker_id, 1, [counted(4, queue="mail", task=TASK)])

    async def look() -> Look:
        return await read_look(store)

    async with serving(Exporter(look).page, "127.0.0.1", 0) as port:
        (tmp_path / "prometheus.yml").write_text(CONFIG.format(port=port))
        shutil.copy(OPS / "alerts.yaml", tmp_path)
        await _follow(prometheus, tmp_path)


async def _follow(prometheus: str, folder: Path) -> None:
    port = free_port()
    server = await asyncio.create_subprocess_exec(
        prometheus,
        "--config.file=prometheus.yml",
        f"--web.listen-address=127.0.0.1:{port}",
        "--storage.tsdb.path=data",
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(SECONDS), httpx.AsyncClient(timeout=SECONDS) as reader:
            api = f"http://127.0.0.1:{port}/api/v1"
            due = 'outlast_jobs{queue="mail",state="due"}'
            assert await _value(reader, api, due) == "3"
            total = 'outlast_attempts_total{queue="mail",outcome="completed"}'
            assert await _value(reader, api, total) == "4"
            wait = 'outlast_job_wait_seconds_bucket{queue="mail",le="0.01"}'
            assert await _value(reader, api, wait) == "4"
            assert await _value(reader, api, 'ALERTS{alertname="OutlastQueueLate"}') == "1"
    finally:
        server.kill()
        await server.wait()


async def _value(reader: httpx.AsyncClient, api: str, query: str) -> str:
    """Return the value of a query as soon as there is one."""
    while True:
        try:
            answer = await reader.get(f"{api}/query", params={"query": query})
        except httpx.TransportError:  # it does not listen yet
            answer = httpx.Response(503)
        if answer.status_code == 200 and (found := answer.json()["data"]["result"]):
            return str(found[0]["value"][1])
        await asyncio.sleep(0.1)
