"""``outlast crash-test``: its table, its JSON, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Outlast

APPLICATION = """
import json
import outlast
from pathlib import Path

app = outlast.App("sqlite:///own.db")


@app.task
def gather(source: str, whole: bool = False) -> None:
    text = Path(source).read_text()
    with open("all.txt", "w" if whole else "a") as file:
        file.write(text)


account = app.limit("account", running=2, per="tenant")
host = app.limit("host", running=1, per="limit_key")


@app.task(limits=[account, host])
def pay(number: int) -> None:
    approved = outlast.current().wait_event_sync(f"approve:{number}", timeout=60)
    Path("paid.json").write_text(json.dumps([outlast.current().tenant, approved]))
    assert approved == {"by": "ada=1"}, approved
"""


@pytest.fixture(autouse=True)
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "gatherer.py").write_text(APPLICATION)
    (tmp_path / "a.txt").write_text("1\n")


def test_what_a_crash_breaks_is_told_with_exit_code_1(outlast: Outlast) -> None:
    call = ["crash-test", "gatherer:app", "gather", '"a.txt"', "--copy", "a.txt"]
    said = outlast(*call)
    assert said.code == 1
    assert "all.txt  2 bytes more  lease lost at 1, 2; delivered twice  gatherer.py:12" in said.out
    assert "repeat one: --point 1 --seed 0" in said.out
    found = outlast(*call, "--point", "2", "--seed", "7", "--json")
    assert found.code == 1
    document = json.loads(found.out)
    assert (document["schema"], document["clean"], document["seed"]) == (1, False, 7)
    assert [point["line"] for point in document["points"]] == ["gatherer.py:12"] * 2
    assert document["findings"][0]["cases"] == [{"fate": "lease lost", "point": 2}]
    assert not Path("all.txt").exists()


def test_a_clean_task_exits_with_0_and_one_that_cannot_run_says_why(outlast: Outlast) -> None:
    clean = outlast("crash-test", "gatherer:app", "gather", '"a.txt"', "true", "--copy", "a.txt")
    assert clean.code == 0
    assert "each run ended like the one without a crash" in clean.out
    outlast("crash-test", "gatherer:app", "gather", '"a.txt"').refused(2, "--copy names a file")
    outlast("crash-test", "gatherer:app", "gather", '"b"', "--copy", "b").refused(2, "--copy b")


@pytest.mark.slow
def test_a_call_under_limits_that_waits_for_an_event_is_tried(outlast: Outlast) -> None:
    pay = ("crash-test", "gatherer:app", "pay", "17")
    outlast(*pay).refused(2, "--tenant")
    placed = (*pay, "--tenant", "acme", "--limit-key", "host=example.org")
    sent = ("--event", 'approve:17={"by": "ada=1"}')
    assert outlast(*placed, *sent).code == 0
    outlast(*placed, "--event", "approve:17").refused(2, "--event takes NAME=JSON")
    outlast(*placed).refused(2, "TimeoutError")
