"""What commands, the API, the metrics and ``job.refresh()`` say of one store, byte for byte.

OUTLAST_RECORD=1 rewrites the records: their difference is what users will notice.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import os
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import outlast
from harness.stores import opened
from outlast.cli import main
from outlast.insight.row import row_of
from outlast.web.api import ROUTES
from outlast.web.problem import API
from tests.contract.scene import StandingClock, fill
from tests.web.kit import page_on

RECORDS = Path(__file__).parent / "recorded"
WIDTH, FOLDED = 100, 250  # characters of a line: of a list, of a document
FEW = ("done", "runs", "retrying", "flow")
LISTS = """\
jobs --limit 3; jobs --limit 2 --before 9; workers; schedules; pauses; limits; flows;
actions; stats; dead list; dead groups; doctor; limits show tenants; limits show smtp;
flow show {flow}; actions --job {cancelled}; logs {done};
why {done}; why {runs}; why {limited}; why {blocked}"""
TEXTS = """\
verify --json; jobs;
schedules show nightly; schedules show often; schedules show paused; jobs --state dead;
jobs --state retrying; jobs --state running; jobs --task mail; jobs --queue post; jobs --label eu;
jobs --tenant acme; jobs --args ada@example.org; jobs --error mailbox; jobs --since 1m"""
QUERIES = {
    "jobs": [
        "?limit=2",
        "?state=dead&limit=1",
        "?label=eu",
        "?tenant=acme&task=app.work&before=13",
    ],
    "deaths": ["", "?cause=error&limit=1"],
    "dead/groups": ["", "?queue=post&task=mail"],
    "flows": ["", "?limit=1"],
    "history": ["", "?by=outcome&seconds=600"],
    "scale": ["", "?queue=default"],
    "schedules": ["", "?limit=1"],
}


def folded(value: Any, indent: str = "") -> str:
    """Return JSON with as much in a line as fits."""
    flat, inner = json.dumps(value), f"{indent} "
    if not value or not isinstance(value, dict | list) or len(indent + flat) <= FOLDED:
        return flat
    names = [f"{json.dumps(name)}: " for name in value] if isinstance(value, dict) else [""] * 999
    lines = [inner]
    for name, one in zip(names, value.values() if isinstance(value, dict) else value, strict=False):
        part = name + folded(one, inner)
        if lines[-1] != inner and ("\n" in part or len(lines[-1] + part) > FOLDED):
            lines.append(inner)
        lines[-1] += f"{part}, "
    return "\n".join([flat[0], *map(str.rstrip, lines), indent + flat[-1]])


class Records:
    """What was said to what: ``files`` has it by the names of the records."""

    def __init__(self, folder: Path) -> None:
        self.files: dict[str, str] = {}
        self._first: dict[str, str] = {}
        self._passing = {str(folder): "FOLDER", outlast.__version__: "VERSION"}

    def add(self, name: str, asked: str, said: str, **layout: Any) -> None:
        """Add an answer. A document comes once, in a layout of few lines."""
        for one, word in self._passing.items():
            said = said.replace(one, word)
        if said.startswith("{\n"):
            document, first = json.loads(said), self._first.setdefault(said, asked)
            assert said == json.dumps(document, indent=2, **layout) + "\n", f"{asked}: its layout"
            said = folded(document) if first == asked else f"as {first}"
        self.files[name] = self.files.get(name, "") + f"{asked}\n{said.rstrip()}\n\n"


def commands(records: Records, url: str, ids: dict[str, int], capsys: Any) -> None:
    lists, texts = (each.format(**ids).split(";") for each in (LISTS, TEXTS))
    texts += [*lists, *(f"job {job_id}" for job_id in ids.values())]
    lists += [f"{verb} {job_id}" for job_id in ids.values() for verb in ("job", "why")]
    for words in dict.fromkeys((*texts, *(f"{each} --json" for each in lists))):
        main([*words.split(), "--url", url])
        name = "commands.json" if "--json" in words else "commands"
        records.add(name, f"outlast {' '.join(words.split())}", capsys.readouterr().out)


async def api(records: Records, url: str, ids: dict[str, int]) -> None:
    async with page_on(url) as page:
        for route in ROUTES:
            if route.method != "GET":
                continue
            short = route.path.removeprefix(f"{API}/")
            filled = [
                route.path.replace("{job_id:int}", str(ids[each]))
                .replace("{action_id:int}", "1")
                .replace("{name:path}", "tenants")
                .replace("{name:str}", "args")
                for each in FEW
            ]
            for path, query in product(dict.fromkeys(filled), QUERIES.get(short, [""])):
                asked = path + query
                answer = await page.get(asked)
                name = "openapi.json" if "openapi" in short else "api.json"
                records.add(name, f"GET {asked}", answer.text, ensure_ascii=False)
        records.add("metrics", "GET /metrics", (await page.get("/metrics")).text)


async def rows(records: Records, url: str, ids: dict[str, int]) -> None:
    async with opened(url) as store:
        for each in FEW:
            found = await store.inspector.job(ids[each])
            assert found is not None
            text = json.dumps(row_of(found).to_dict(), indent=2) + "\n"
            records.add("rows.json", f"app.job({ids[each]})", text)


def test_all_say_what_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("TZ", "UTC")
    url, clock, records = (
        f"sqlite:///{tmp_path}/store.db",
        StandingClock(monkeypatch),
        Records(tmp_path),
    )

    async def make() -> dict[str, int]:
        async with opened(url) as store:
            return await fill(store, clock)

    ids = asyncio.run(make())
    commands(records, url, ids, capsys)
    asyncio.run(api(records, url, ids))
    asyncio.run(rows(records, url, ids))
    if os.environ.get("OUTLAST_RECORD"):
        for name, text in records.files.items():
            (RECORDS / f"{name}.txt").write_text(text)
    kept = {path.stem: path.read_text() for path in RECORDS.iterdir()}
    assert kept.keys() == records.files.keys()
    pairs = [(kept[name].splitlines(), text.splitlines()) for name, text in records.files.items()]
    changes = [line for pair in pairs for line in difflib.unified_diff(*pair, n=1, lineterm="")]
    assert not changes, "\n".join([*changes, "if this is wanted: OUTLAST_RECORD=1 records it"])
