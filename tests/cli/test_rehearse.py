"""``outlast rehearse``: what it says of a release, its exit codes, and what it leaves alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.cli.conftest import Outlast
from tests.cli.rows import opened
from tests.conformance.kit import enqueued, job


async def fill(url: str) -> None:
    async with opened(url) as store:
        await enqueued(store, job(task="mail", args='{"to":"ada@example.org"}'))
        await enqueued(store, job(task="nap", args='{"seconds":"secret"}'), job(task="old.name"))
        await enqueued(store, job(task="outlast.shell", args='{"command":["true"]}'))


def test_findings_are_shown_with_what_to_do_and_end_with_1(
    outlast: Outlast, store_url: str, folder: Path
) -> None:
    asyncio.run(fill(store_url))
    said = outlast("rehearse", "shop:app", "--url", store_url)
    assert said.code == 1, said.err
    assert "task old.name: 1 job, such as job 3" in said.out
    assert "arguments nap: 1 job, such as job 2\n" in said.out
    assert "    argument 'seconds' of task nap does not fit float" in said.out
    assert "    -> let the task accept them until they have ended" in said.out
    assert "2 findings; read 4 of 4 unfinished jobs and 0 schedules\n" in said.out
    assert "secret" not in said.out + said.err  # no value of an argument is shown
    machine = outlast("rehearse", "shop:app", "--url", store_url, "--json", "--ignore", "task:old*")
    assert machine.code == 1
    machine.code = 0
    document = machine.json()
    (one,) = document.pop("findings")
    assert "does not fit float" in one.pop("sentence")
    assert "a default for a new parameter" in one.pop("fix")
    assert one == {"kind": "arguments", "name": "nap", "count": 1, "job": 2}
    del document["store"]
    assert document == {
        "schema": 1, "unfinished": 4, "read": 4, "schedules": 0, "ignored": 1, "more": 0,
    }  # fmt: skip
    accepted = ("--ignore", "arguments", "--ignore", "task:old.name")
    said = outlast("rehearse", "shop:app", "--url", store_url, *accepted)
    assert said.code == 0
    assert "0 findings, 2 ignored; read 4 of 4" in said.out


def test_what_cannot_be_read_is_no_finding(outlast: Outlast, folder: Path) -> None:
    (folder / "broken.py").write_text("import outlast\nraise RuntimeError('half deployed')\n")
    said = outlast("rehearse", "broken:app")
    assert said.code == 2
    assert "half deployed" in said.err
    outlast("rehearse", "shop:app", "--url", "sqlite:///nowhere.db").refused(3, "nowhere.db")
    assert not (folder / "nowhere.db").exists()
    outlast("rehearse", "shop:app", "--ignore", "colour").refused(2, "--ignore", "arguments")
