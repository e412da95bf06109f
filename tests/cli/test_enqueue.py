"""``outlast enqueue``: JSON in, a job out; what does not fit is refused before it is stored."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from tests.cases import each_case
from tests.cli.conftest import Outlast


def test_a_call_is_enqueued_and_a_new_file_is_named(outlast: Outlast, folder: Path) -> None:
    said = outlast("enqueue", "shop:app", "mail", '"ada@example.org"')
    assert said.code == 0, said.err
    assert said.out == f"job 1 enqueued in the new file {folder / 'shop.db'}\n"
    again = outlast("enqueue", "shop:app", "mail", 'to="ada@example.org"', "copies=3")
    assert again.out == "job 2 enqueued\n"
    document = outlast("job", 2, "--json", "--url", "sqlite:///shop.db").json()
    assert document["args"] == {"to": "ada@example.org", "copies": 3}


def test_a_job_is_found_by_its_labels_and_says_how_long_it_is_kept(
    outlast: Outlast, store_url: str
) -> None:
    options = ["--label", "import", "--label", "acme", "--keep", "1h", "--url", store_url]
    said = outlast("enqueue", "shop:app", "nap", "1.5", *options)
    assert said.code == 0, said.err
    outlast("enqueue", "shop:app", "nap", "1.5", "--url", store_url)
    (listed,) = outlast("jobs", "--label", "acme", "--url", store_url, "--json").json()["jobs"]
    assert (listed["labels"], listed["keep"]) == (["import", "acme"], 3_600.0)
    shown = outlast("job", listed["id"], "--url", store_url).out
    assert "label       import\n  label       acme\n" in shown
    assert "no such jobs" in outlast("jobs", "--label", "none", "--url", store_url).out
    said = outlast("enqueue", "shop:app", "nap", "1", "--label", "a b", "--url", store_url)
    said.refused(2, "a label must be a text")


def test_enqueue_uses_the_given_queue_priority_and_delay(outlast: Outlast, store_url: str) -> None:
    options = ["--delay", "0.5h", "--expires", "1d", "--queue", "slow"]
    options += ["--priority", "7", "--tenant", "acme"]
    said = outlast("enqueue", "shop:app", "nap", "1.5", *options, "--url", store_url, "--json")
    document = said.json()
    stored = {"id": document["id"], "task": "nap", "created": True, "same_args": True}
    assert document == {"schema": 1} | stored
    job = outlast("job", document["id"], "--json", "--url", store_url).json()
    assert (job["queue"], job["priority"], job["tenant"]) == ("slow", 7, "acme")
    assert job["phase"] == "scheduled"
    waits = datetime.fromisoformat(job["run_at"]) - datetime.fromisoformat(job["enqueued_at"])
    assert waits.total_seconds() == pytest.approx(1_800)
    lasts = datetime.fromisoformat(job["expires_at"]) - datetime.fromisoformat(job["enqueued_at"])
    assert lasts.total_seconds() == pytest.approx(86_400)
    assert job["reason"] is None
    assert "It expires in " in outlast("why", document["id"], "--url", store_url).out
    assert "expires" in outlast("job", document["id"], "--url", store_url).out


LIMITED = """
import outlast

app = outlast.App("sqlite:///shop.db")
host = app.limit("host", running=1, rate="60/min", burst=5, per="limit_key")


@app.task(limits=[host])
async def crawl(url: str) -> None:
    pass
"""


def test_a_job_brings_its_keys_and_costs_for_limits(outlast: Outlast, folder: Path) -> None:
    (folder / "shop.py").write_text(LIMITED)
    enqueue = ("enqueue", "shop:app", "crawl", '"https://example.org/"')
    said = outlast(*enqueue, "--limit-key", "host=example.org", "--cost", "host=3")
    assert said.code == 0, said.err
    with closing(sqlite3.connect(folder / "shop.db")) as file:
        ((needs,),) = file.execute("SELECT needs FROM outlast_jobs")
    ((_, name, key, cost),) = json.loads(needs)
    assert (name, key, cost) == ("host", "example.org", 3.0)
    outlast(*enqueue).refused(2, "host")
    for wrong in (["--limit-key", "host"], ["--limit-key", "=k"], ["--limit-key", "host=a"] * 2):
        outlast(*enqueue, *wrong).refused(2, "--limit-key takes LIMIT=VALUE, once")
    right = ("--limit-key", "host=example.org")
    outlast(*enqueue, *right, "--cost", "host=x").refused(2, "--cost takes numbers")
    outlast(*enqueue, *right, "--cost", "host=9").refused(2, "above the burst")


def test_a_key_is_enqueued_once(outlast: Outlast) -> None:
    first = outlast("enqueue", "shop:app", "nap", "1", "--key", "k", "--json").json()
    second = outlast("enqueue", "shop:app", "nap", "1", "--key", "k", "--json").json()
    assert (first["created"], second["created"]) == (True, False)
    assert first["id"] == second["id"]
    assert "nothing was enqueued" in outlast("enqueue", "shop:app", "nap", "1", "--key", "k").out
    other = outlast("enqueue", "shop:app", "nap", "2", "--key", "k")
    assert "'k', with other arguments, and is unfinished" in other.out


def test_a_key_is_enqueued_once_in_each_window(outlast: Outlast, store_url: str) -> None:
    url = ("--url", store_url)
    enqueue = ("enqueue", "shop:app", "nap", "1", "--once-per", "1h", *url)
    outlast(*enqueue).refused(2, "once_per, debounce, until and on_conflict need a key")
    first = outlast(*enqueue, "--key", "k", "--json").json()["id"]
    assert outlast("cancel", str(first), *url).code == 0
    again = outlast(*enqueue, "--key", "k").out
    assert "is unfinished, or was enqueued in this window: nothing was enqueued" in again
    command = ("run", "--key", "c", "--once-per", "1h", "--json", *url, "true")
    assert [outlast(*command).json()["created"] for _ in range(2)] == [True, False]


def test_a_key_of_another_task_is_refused(outlast: Outlast, store_url: str) -> None:
    url = ("--url", store_url)
    command = outlast("run", "--key", "k", "--json", *url, "true").json()
    refused = outlast("enqueue", "shop:app", "nap", "1", "--key", "k", *url)
    assert refused.code == 1
    assert f"the key 'k' belongs to job {command['id']} of the task 'outlast.shell'" in refused.err
    assert outlast("enqueue", "shop:app", "nap", "1", "--key", "n", *url).code == 0
    refused = outlast("run", "--key", "n", *url, "true")
    assert refused.code == 1
    assert "of the task 'nap'" in refused.err


def test_a_negative_number_goes_behind_two_dashes(outlast: Outlast) -> None:
    assert outlast("enqueue", "shop:app", "nap", "--", "-1").code == 0


@each_case(
    ("arguments", "words"),
    [
        (
            ["mail", "ada@example.org"],
            ["is not JSON", "a text needs JSON quotes as well: '\"ada@example.org\"'"],
        ),
        (["mail", "to=it's"], ["is not JSON", "well: '\"it'\"'\"'s\"'"]),
        (["mail", "to=" + "a" * 61], ["well: '\"a text\"'"]),
        (["mail", "3"], ["'to'", "does not fit str"]),
        (["mail"], ["mail(to: str, copies: int = 1)"]),
        (["mail", '"a"', "colour=1"], ["colour"]),
        (["mail", 'to="a"', 'to="b"'], ["given twice"]),
        (["mail", 'to="a"', "3"], ["comes after"]),
        (["male", '"a"'], ["no task is called 'male'", "did you mean mail"]),
        (["nap", "1", "--priority", "101"], ["--priority must be"]),
        (["nap", "1", "--delay", "-1"], ["--delay must be"]),
        (["nap", "1", "--delay", "5x"], ["--delay", "'5x' is not a span of time", "15m"]),
        (["nap", "1", "--delay", "nan"], ["--delay", "'nan' is not a span of time"]),
        (["nap", "1", "--delay", "2h", "--expires", "1h"], ["--expires must be later"]),
        (["nap", "1", "--queue", "a b"], ["--queue must be"]),
        (["nap", "1", "--url", "mysql://db"], ["is not the URL of a store"]),
    ],
)
def test_what_cannot_work_is_refused(
    outlast: Outlast, folder: Path, arguments: list[str], words: list[str]
) -> None:
    outlast("enqueue", "shop:app", *arguments).refused(2, *words)
    assert not list(folder.glob("*.db"))


@pytest.mark.parametrize(
    ("named", "advice"),
    [
        ("shop.py", "name its module: shop:app"),
        ("./shop", "name its module: shop:app"),
        ("deep/shop.py", "name its module: deep.shop:app"),
        ("../beyond/shop.py", "start in its folder, and name its module: shop:app"),
    ],
)
def test_a_file_path_as_application_is_refused_with_the_module_name(
    outlast: Outlast, named: str, advice: str
) -> None:
    outlast("enqueue", f"{named}:app", "mail").refused(2, f"{named!r} is a file; {advice}")


BROKEN = "import outlast\n\ndef connect():\n    raise OSError('no route to db')\n\nconnect()\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BROKEN, ["in connect", "OSError: no route to db", "cannot import 'broken'"]),
        ("x = (\n", ["broken.py", "SyntaxError"]),
        ("import not_there\n", ["import not_there", "No module named 'not_there'"]),
        ("raise SystemExit(0)\n", ["exits the program while it is imported"]),
        ("app = 3\n", ["broken:app is of class int, not an outlast.App"]),
        ("import outlast\nother = outlast.App()\n", ["there is broken:other"]),
        ("import outlast\napp = outlast.App('nonsense')\n", ["is not the URL of a store"]),
    ],
    ids=["raises", "syntax", "dependency", "exits", "no app", "other name", "bad url"],
)
def test_an_application_that_does_not_import_shows_its_own_traceback(
    outlast: Outlast, folder: Path, text: str, words: list[str]
) -> None:
    (folder / "broken.py").write_text(text)
    said = outlast("enqueue", "broken:app", "mail")
    assert said.code == 2, said.err
    for word in words:
        assert word in said.err
    assert "importlib" not in said.err
    assert "site-packages" not in said.err
    assert "outlast/cli" not in said.err
    assert not list(folder.glob("*.db"))


@pytest.mark.parametrize(
    "command",
    [["enqueue", "shop", "mail"], ["enqueue", "nowhere:app", "mail"], ["worker", ":app"]],
    ids=" ".join,
)
def test_an_application_that_is_not_there_is_refused(outlast: Outlast, command: list[str]) -> None:
    outlast(*command).refused(2)
