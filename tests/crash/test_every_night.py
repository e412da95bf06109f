"""The tutorial on schedules, followed with a real worker: its program and its commands."""

from __future__ import annotations

import json
import re
from typing import Any

from harness.scene import ROOT, Scene
from outlast.model.job import State
from tests.crash.test_getting_started import run

PAGE = ROOT / "docs" / "every-night.md"
EACH_SECOND = """
app.schedule("each-second", report.call("often"), every=1)
"""
SIGN_UP = "import reports; reports.sign_up('globex', 7)"


def program() -> str:
    """Return reports.py of a reader who pasted all blocks, and a schedule that need not wait."""
    text = PAGE.read_text()
    blocks = re.findall(
        r"^<!-- reports\.py -->\n```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE
    )
    assert len(blocks) == 2
    return "\n\n".join([*blocks, EACH_SECOND])


def dry_run() -> tuple[list[str], list[str]]:
    """Return the arguments of the backfill on the page, and what the page says that it prints."""
    text = PAGE.read_text()
    found = re.search(
        r"^\$ outlast (schedules backfill .*--dry-run)\n((?:[^$\n].*\n)+)", text, re.MULTILINE
    )
    assert found is not None
    return found[1].split(), found[2].splitlines()


def outlast(stage: Scene, *arguments: str) -> str:
    return run(stage.folder, stage.url, "-m", "outlast", *arguments)


def schedules(stage: Scene) -> dict[str, dict[str, Any]]:
    listed = json.loads(outlast(stage, "schedules", "--json"))["schedules"]
    return {each["name"]: each for each in listed}


async def test_a_reader_of_the_tutorial_sees_schedules_fire(stage: Scene) -> None:
    (stage.folder / "reports.py").write_text(program())
    env = {"OUTLAST_TEST_APP": "reports:app", "PYTHONPATH": str(stage.folder)}
    one = await stage.worker(env=env)

    async def has_fired() -> bool:
        found = schedules(stage).get("each-second")
        return found is not None and found["fired"] >= 2

    run(stage.folder, stage.url, "-c", SIGN_UP)
    await stage.until(has_fired, "two ticks")
    found = schedules(stage)
    assert {name: (each["origin"], each["state"]) for name, each in found.items()} == {
        "nightly": ("code", "active"),
        "each-second": ("code", "active"),
        "daily:globex": ("run_time", "active"),
    }
    fired = await stage.ended(int(found["each-second"]["last_job"]))
    assert fired.state is State.COMPLETED
    assert fired.policy.tick is not None
    assert "report for often" in one.log.read_text()
    await acts_by_hand(stage)


async def acts_by_hand(stage: Scene) -> None:
    """Do what the page does on the command line."""
    assert "nightly" in outlast(stage, "schedules", "show", "nightly", "--next", "3")
    answer = outlast(stage, "schedules", "trigger", "nightly")
    triggered = await stage.ended(int(re.findall(r"\d+", answer)[0]))
    assert re.fullmatch(r'"acme-\d{4}-\d\d-\d\d\.pdf"', str(triggered.result))
    assert "The schedule 'nightly'" in outlast(stage, "why", str(triggered.id))
    arguments, printed = dry_run()
    assert outlast(stage, *arguments).splitlines() == printed
    assert outlast(stage, *arguments[:-1]) == "4 jobs enqueued\n"
    assert "is paused" in outlast(stage, "schedules", "pause", "nightly")
    assert "is resumed" in outlast(stage, "schedules", "resume", "nightly")
