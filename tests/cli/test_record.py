"""Flight records: what is written of a job, what is hidden, and its attempt tried elsewhere."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from outlast.insight.hiding import HIDDEN
from tests.cli.conftest import Filled, Outlast
from tests.cli.test_worker import worker

APPLICATION = """
import asyncio, os, signal, socket, time
import psycopg
import outlast

app = outlast.App("sqlite:///shop.db")


@app.task(retries=0, logs=True)
def raises(card: str, pages: int) -> None:
    attempt = outlast.current()
    page = (attempt.checkpoint or {"page": 0})["page"]
    print(f"card {card} begins at page {page}")
    attempt.save_sync({"page": page + 1, "card": card})
    raise ValueError(f"card {card}, page {page} of {pages}")


@app.task(retries=0)
def signalled() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@app.task(retries=0)
def out_of_memory() -> None:
    kept = [bytearray(b"x") * (10 * 1024 * 1024) for _ in range(40)]
    time.sleep(60 + len(kept))


@app.task(retries=0, timeout=0.3)
async def timeout() -> None:
    await asyncio.sleep(60)


@app.task(retries=0, stall_timeout=0.3)
async def stalled() -> None:
    await asyncio.sleep(60)


@app.task(max_losses=0)
async def lost_worker() -> str:
    if os.path.exists("here"):
        return "home"
    await asyncio.sleep(60)
    return "never"


@app.task(retries=0)
def reaches_out(how: str) -> str:
    if how == "write":
        with open("kept.txt", "w") as file:
            file.write("inside")
        with open(os.path.join(os.environ["OUT"], "there.txt"), "w") as file:
            file.write("outside")
    elif how == "start":
        os.system("touch there.txt")
    elif how == "database":
        psycopg.connect("postgresql://127.0.0.1:1/shop")
    else:
        socket.create_connection(("127.0.0.1", int(how)))
    return "out"


@app.task
async def twice() -> int:
    return (await twice.enqueue()).id
"""
DEATHS = ("error", "signalled", "out_of_memory", "timeout", "stalled", "lost_worker")
CARD = "4111-1111"
WORK_SECONDS = 150  # for the jobs of one worker to end, on a busy machine


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APPLICATION)
    return tmp_path


@pytest.mark.slow
def test_each_death_is_recorded_shown_and_tried_again_elsewhere(
    outlast: Outlast, folder: Path
) -> None:
    for task in ("raises", *DEATHS[1:-1]):
        outlast("enqueue", "shop:app", task, *([f'"{CARD}"', "9"] if task == "raises" else []))
    memory = ("--max-rss", "100M", "--until-empty")
    with worker(folder, "shop:app", "--runners", "1", *memory, OUTLAST_RELEASE="7.1") as running:
        assert running.process.wait(WORK_SECONDS) == 0, running.log.read_text()
    outlast("enqueue", "shop:app", "lost_worker")
    with worker(folder, "shop:app", "--runners", "1") as running:
        running.until("attempt_started")
        running.end(signal.SIGKILL)
    with worker(folder, "shop:app", "--runners", "1") as running:
        running.until("job_dead")
        running.end()
    for number, kind in enumerate(DEATHS, 1):
        said = outlast("job", number, "--url", "sqlite:///shop.db", "--record", f"{kind}.json")
        assert said.code == 0, said.err
    for path in folder.glob("shop.db*"):
        path.rename(folder / f"away-{path.name}")
    (folder / "here").touch()
    for kind in DEATHS:
        shown = outlast("record", "show", f"{kind}.json")
        assert f": {kind}\n" in shown.out, (shown.out, shown.err)
        assert "rules hold" in shown.out
        again = outlast("replay", f"{kind}.json", "--app", "shop:app", "--copy", "here")
        if kind == "lost_worker":  # it was the worker's end, not the task's
            assert (again.code, 'here:     completed: "home"' in again.out) == (0, True), again
            continue
        assert again.code == 1, again.err
        assert f"\nhere:     dead, {kind}: " in again.out, (again.out, again.err)
    assert "worker" in shown.out
    assert "release 7.1" in outlast("record", "show", "error.json").out
    assert f"card {CARD} begins at page 0" in outlast("record", "show", "error.json").out
    again = outlast("replay", "error.json", "--app", "shop:app", OUTLAST_RELEASE="7.2")
    assert "ValueError: card 4111-1111, page 1 of 9" in again.out  # from the checkpoint
    assert "it ran in release 7.1; this is 7.2" in again.err
    assert not [*folder.glob("shop.db*")]


def test_what_is_hidden_is_in_no_part_of_the_file_and_is_asked_for(
    outlast: Outlast, folder: Path
) -> None:
    outlast("enqueue", "shop:app", "raises", f'"{CARD}"', "9")
    with worker(folder, "shop:app", "--runners", "1", "--until-empty") as running:
        assert running.process.wait(WORK_SECONDS) == 0, running.log.read_text()
    hide = ("--hide", r"4111-\d+")
    said = outlast("job", 1, "--url", "sqlite:///shop.db", "--record", "one.json", *hide)
    assert said.out == "job 1 is recorded in one.json; hidden in part: card, the checkpoint\n"
    text = (folder / "one.json").read_text()
    assert (folder / "one.json").stat().st_mode & 0o77 == 0
    assert CARD not in text
    assert text.count(HIDDEN) >= 5  # argument, checkpoint, message, traceback, printed lines
    assert CARD in json.dumps(outlast("job", 1, "--url", "sqlite:///shop.db", "--json").json())
    replay = ("replay", "one.json", "--app", "shop:app")
    outlast(*replay).refused(2, "the record hides card", "--arg card=JSON")
    outlast(*replay, "--arg", 'card="5"').refused(2, "--checkpoint JSON")
    given = ("--arg", 'card="5"', "--checkpoint", '{"page": 3}')
    again = outlast(*replay, *given)
    assert "here:     dead, error: ValueError: card 5, page 3 of 9" in again.out, again.err
    debugged = outlast(*replay, *given, "--pdb")
    assert debugged.code == 1
    assert "card 5 begins at page 3" in debugged.out
    keys = outlast(
        "job", 1, "--url", "sqlite:///shop.db", "--record", "k.json", "--hide-key", "card"
    )
    assert "hidden in part: card, the checkpoint" in keys.out


def test_a_replay_enqueues_nothing_in_the_store_of_the_application(
    outlast: Outlast, folder: Path
) -> None:
    outlast("enqueue", "shop:app", "twice")
    outlast("job", 1, "--url", "sqlite:///shop.db", "--record", "twice.json")
    again = outlast("replay", "twice.json", "--app", "shop:app")
    assert (again.code, again.out.splitlines()[-1]) == (0, "here:     completed: 2"), again.err
    again = outlast("replay", "twice.json", "--app", "shop:app", "--pdb")
    assert (again.code, again.out) == (0, "1\n"), again.err  # the first job of its own store
    listed = outlast("jobs", "--json", "--url", "sqlite:///shop.db").json()
    assert [(one["id"], one["state"]) for one in listed["jobs"]] == [(1, "queued")]


def test_a_replay_stays_in_the_sandbox_unless_its_effects_may_be_real(
    outlast: Outlast, folder: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        ways = {"write": "writes to", "start": "starts touch", port: "connects to 127.0.0.1"}
        ways["database"] = "connects to a database on a server: --real-effects"
        for number, (how, refused) in enumerate(ways.items(), 1):
            outlast("enqueue", "shop:app", "reaches_out", json.dumps(how))
            outlast("job", number, "--url", "sqlite:///shop.db", "--record", f"{number}.json")
            before = sorted(folder.iterdir())
            again = outlast("replay", f"{number}.json", "--app", "shop:app", OUT=str(folder))
            assert again.code == 1
            assert f"PermissionError: [Errno 1] the task {refused}" in again.out, again
            assert sorted(folder.iterdir()) == before
    write = ("replay", "1.json", "--app", "shop:app")
    assert "the task writes to" in outlast(*write, "--pdb", OUT=str(folder)).err
    assert sorted(folder.iterdir()) == before
    assert outlast(*write, "--real-effects", OUT=str(folder)).code == 0
    assert (folder / "kept.txt").read_text() == "inside"
    assert (folder / "there.txt").read_text() == "outside"
    allowed = outlast("replay", "2.json", "--app", "shop:app", "--allow-command", "touch")
    assert allowed.code == 0, allowed.out


@pytest.mark.slow_on("postgres")
def test_a_job_of_each_kind_is_shown_as_its_store_shows_it(
    filled: Filled, outlast: Outlast, folder: Path
) -> None:
    for kind, number in filled.ids.items():
        filled("job", number, "--record", f"{kind}.json")
        shown = outlast("record", "show", f"{kind}.json")
        assert shown.code == 0, shown.err
        own = filled("job", number).out.splitlines()
        lines = shown.out.splitlines()
        assert lines[1] == own[0]
        assert [line for line in own if line.startswith(("  args", "  budgets"))] == [
            line for line in lines if line.startswith(("  args", "  budgets"))
        ]


def test_files_that_cannot_serve_are_refused(outlast: Outlast, folder: Path) -> None:
    outlast("enqueue", "shop:app", "twice")
    there = ("job", 1, "--url", "sqlite:///shop.db")
    outlast(*there, "--record", "one.json")
    outlast(*there, "--record", "one.json").refused(2, "one.json already")
    outlast(*there, "--record", "no/where.json").refused(2, "No such file")
    outlast(*there, "--hide", "x").refused(2, "--record FILE")
    outlast(*there, "--record", "x.json", "--hide", "(").refused(2, "--hide")
    outlast("job", 7, "--url", "sqlite:///shop.db", "--record", "x.json").refused(1, "no job 7")
    (folder / "other.json").write_text("{}")
    outlast("record", "show", "other.json").refused(2, "other.json is no flight record")
    later = json.loads((folder / "one.json").read_text()) | {"flight_record": 9}
    (folder / "later.json").write_text(json.dumps(later))
    outlast("record", "show", "later.json").refused(2, "later release")
    outlast("record", "show", "shop.db").refused(2, "shop.db")
    outlast("replay", "one.json").refused(2, "--app MODULE:APP")
    away = ("--copy", "no.csv")
    outlast("replay", "one.json", "--app", "shop:app", *away).refused(2, "--copy no.csv: there is")
