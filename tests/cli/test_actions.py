"""``outlast actions``: what the commands of people leave in the record, and how it is listed."""

from __future__ import annotations

import asyncio
import getpass
import socket

from outlast.insight.acting import By, Verb
from outlast.insight.bulk import BulkFilter, begin, preview
from tests.cli.conftest import Filled
from tests.cli.rows import opened

ME = f"{getpass.getuser()}@{socket.gethostname()}"


def test_each_command_of_a_person_is_recorded_with_who_it_was(filled: Filled) -> None:
    assert filled("actions").out == "no actions yet\n"
    filled("cancel", filled.ids["queued"])
    filled("requeue", filled.ids["dead"])
    filled("pause", "queue", "mail", "--reason", "it burns", "--wait", "0")
    filled("resume", "queue", "mail")
    filled("resume", "queue", "mail")
    filled("workers", "drain", "--all")
    document = filled("actions", "--json").json()
    told = [(one["verb"], one["counts"]) for one in document["actions"]]
    assert told == [
        ("drain", {"asked": 1}),
        ("resume", {"resumed": 1}),
        ("pause", {"paused": 1}),
        ("requeue", {"requeued": 1}),
        ("cancel", {"cancelled": 1}),
    ]
    assert {one["user"] for one in document["actions"]} == {ME}
    assert {one["state"] for one in document["actions"]} == {"done"}
    assert document["actions"][2]["reason"] == "it burns"
    assert document["actions"][2]["target"] == "the queue 'mail'"
    assert document["actions"][3]["job"] == filled.ids["dead"]
    shown = filled("actions", "--job", filled.ids["queued"]).out
    assert f"job {filled.ids['queued']}" in shown
    assert "1 cancelled" in shown
    assert "requeue" not in shown


def test_an_act_on_many_jobs_is_stopped_by_its_number(rows: Filled) -> None:

    async def begun() -> int:
        async with opened(rows.url) as store:
            seen = await preview(store, Verb.REQUEUE, BulkFilter())
            return await begin(store, seen, By("ada"))

    action_id = asyncio.run(begun())
    assert "running: nothing yet" in rows("actions").out
    assert rows("actions", "stop", action_id).code == 0
    said = rows("actions", "stop", action_id)
    said.refused(1, f"action {action_id} has already ended: see `outlast actions`")
    assert "stopped: nothing yet" in rows("actions").out
