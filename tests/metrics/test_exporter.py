"""The page as it is served: kept for a while, and there when the store is not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from outlast.cli import main
from outlast.cli.exporter import open_source
from outlast.errors import StoreUnavailable
from outlast.metrics.collector import Look, read_look
from outlast.metrics.exporter import KEEP_SECONDS, Exporter, serving
from outlast.store.protocol import Store
from tests.cases import each_case
from tests.conformance.kit import TASK, Hands, ended, enqueued, job
from tests.conformance.limits_kit import declare, limited, need
from tests.manual_clock import ManualClock
from tests.metrics.kit import counted, full_look, samples, value

SECONDS = 60.0


class Looking:
    """Looks that are counted, and fail when told to."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.looks = 0
        self.error: Exception | None = None
        self.exporter = Exporter(self.look, self.clock)

    async def look(self) -> Look:
        self.looks += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return full_look()

    async def page(self) -> str:
        return (await self.exporter.page()).decode()


async def test_a_page_is_kept_and_made_once_for_all_who_wait() -> None:
    looking = Looking()
    pages = await asyncio.gather(*[looking.page() for _ in range(20)])
    assert (looking.looks, len(set(pages))) == (1, 1)
    looking.clock.advance(KEEP_SECONDS - 1)
    await looking.page()
    assert looking.looks == 1
    looking.clock.advance(2)
    await looking.page()
    assert looking.looks == 2


@each_case("error", [StoreUnavailable("gone"), TimeoutError(), ValueError("a fault of ours")])
async def test_a_store_that_is_away_is_a_page_and_is_asked_no_more_often(error: Exception) -> None:
    looking = Looking()
    assert value(await looking.page(), "outlast_store_up") == 1
    good = value(await looking.page(), "outlast_last_look_timestamp_seconds")
    looking.error = error
    looking.clock.advance(KEEP_SECONDS + 1)
    for _ in range(3):
        page = await looking.page()
    assert looking.looks == 2
    assert value(page, "outlast_store_up") == 0
    assert value(page, "outlast_last_look_timestamp_seconds") == good
    assert "outlast_jobs" not in samples(page)
    looking.error = None
    looking.clock.advance(KEEP_SECONDS + 1)
    assert value(await looking.page(), "outlast_store_up") == 1


async def test_a_reader_that_leaves_ends_no_look() -> None:
    looking = Looking()
    for _ in range(3):
        leaving = asyncio.create_task(looking.page())
        await asyncio.sleep(0)
        leaving.cancel()
    assert value(await looking.page(), "outlast_store_up") == 1
    assert looking.looks == 1


@pytest.mark.on_both_stores
async def test_a_look_at_a_real_store_shows_what_is_in_it(store: Store) -> None:
    hands = await Hands.on(store)
    await declare(store, "api", running=1)
    await enqueued(store, *[job(queue="mail")] * 5, job(delay=600.0))
    await enqueued(store, *[limited(need("api"), queue="calls")] * 3)
    assert len(await hands.claim(3, queues=["calls"])) == 1
    await hands.claim(3, queues=["calls"])
    claimed = await hands.claim(2, queues=["mail"])
    await hands.hand_in(ended(claimed[0]))
    await store.note_minute(hands.me.worker_id, 1, [counted(1, queue="mail", task=TASK)])

    async def look() -> Look:
        return await read_look(store)

    page = (await Exporter(look).page()).decode()
    assert value(page, "outlast_jobs", queue="mail", state="due") == 3
    assert value(page, "outlast_jobs", queue="mail", state="running") == 1
    assert value(page, "outlast_jobs", queue="default", state="scheduled") == 1
    assert value(page, "outlast_limit_cap", limit="api") == 1
    assert value(page, "outlast_limit_running", limit="api") == 1
    assert value(page, "outlast_limit_waiting", limit="api") == 2
    assert value(page, "outlast_workers", status="active") == 1
    assert value(page, "outlast_jobs_enqueued_total", queue="mail", task=TASK) == 1


async def test_the_server_answers_with_the_page_alone() -> None:
    looking = Looking()
    async with (
        serving(looking.exporter.page, "127.0.0.1", 0) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS) as reader,
    ):
        answer = await reader.get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert value(answer.text, "outlast_store_up") == 1
        assert (await reader.head("/metrics")).text == ""
        assert (await reader.get("/")).status_code == 200
        assert (await reader.get("/../etc/passwd")).status_code == 404
        foreign = {"Host": "evil.example"}
        assert (await reader.get("/metrics", headers=foreign)).status_code == 421
        assert (await reader.post("/metrics")).status_code == 405


async def test_a_source_opens_the_store_when_it_comes(tmp_path: Path) -> None:
    from outlast.store import open_store

    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    source = open_source(url)
    with pytest.raises(StoreUnavailable):
        await source.ask(read_look)
    made = open_store(url)
    await made.open()
    await made.close()
    assert (await source.ask(read_look)).workers == []
    await source.close()


async def test_after_an_error_the_store_is_read_again_and_not_opened_again(
    store: Store, store_url: str
) -> None:
    """The store heals its own connections; the page of `outlast web` relies on that, too."""
    read: list[Store] = []

    async def fail(opened: Store) -> Look:
        read.append(opened)
        raise StoreUnavailable("too slow")

    source = open_source(store_url)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await source.ask(fail)
    await source.close()
    assert read[0] is read[1]


def test_a_missing_library_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert main(["exporter"]) == 2
    assert "pip install 'outlast[metrics]'" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_an_error_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["exporter", "--url", f"sqlite:///{tmp_path / 'none.db'}"]) == 3
    assert "there is no database file" in capsys.readouterr().err


def test_the_command_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    command = [sys.executable, "-m", "outlast"]
    environment = {**os.environ, "COLUMNS": "100"}
    subprocess.run([*command, "migrate", "--url", url], check=True, timeout=SECONDS)
    with subprocess.Popen(
        [*command, "exporter", "--url", url, "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as exporter:
        assert exporter.stderr is not None
        try:
            place = exporter.stderr.readline().strip().rpartition(" ")[2]
            page = httpx.get(place, timeout=SECONDS).text
            assert value(page, "outlast_store_up") == 1
            exporter.send_signal(signal.SIGTERM)
            assert exporter.wait(SECONDS) == 0
        finally:
            exporter.kill()
