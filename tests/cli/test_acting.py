"""Commands that act on jobs: what was done, what was not and why, and the exit code."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Filled, Outlast


def job(outlast: Outlast, url: str, number: int) -> dict[str, Any]:
    document: dict[str, Any] = outlast("job", number, "--url", url, "--json").json()
    return document


def test_cancel_ends_queued_jobs_and_asks_running_ones(outlast: Outlast, filled: Filled) -> None:
    url, ids = filled
    said = outlast("cancel", ids["queued"], ids["running"], "--url", url)
    assert said.code == 0, said.err
    assert said.out == f"job {ids['queued']} cancelled\njob {ids['running']} asked to stop\n"
    assert job(outlast, url, ids["queued"])["state"] == "cancelled"
    assert job(outlast, url, ids["running"])["cancel_requested"]
    assert "asked to stop" in outlast("job", ids["running"], "--url", url).out


def test_cancel_does_what_it_can_and_names_the_jobs_that_it_cannot_cancel(
    outlast: Outlast, rows: Filled
) -> None:
    url, ids = rows
    said = outlast("cancel", ids["queued"], ids["completed"], 999, "--url", url)
    said.refused(1, f"job {ids['completed']} has ended already", "there is no job 999 in ")
    assert said.out == f"job {ids['queued']} cancelled\n"


def test_stack_says_why_there_is_none(outlast: Outlast, filled: Filled) -> None:
    url, ids = filled
    outlast("stack", ids["queued"], "--url", url).refused(1, "is queued, not running")
    outlast("stack", 999, "--url", url).refused(1, "there is no job 999 in ")
    said = outlast("stack", ids["running"], "--wait", "0", "--url", url)
    said.refused(1, "has not answered within 0 s", "its last heartbeat was")
    acted = outlast("actions", "--json", "--url", url).json()["actions"]
    assert [each["target"] for each in acted if each["verb"] == "stack"] == [
        f"job {ids['running']}"
    ]


def test_requeue_revives_from_the_checkpoint(outlast: Outlast, filled: Filled) -> None:
    url, ids = filled
    said = outlast("requeue", ids["dead"], ids["cancelled"], "--url", url)
    assert said.code == 0, said.err
    revived = job(outlast, url, ids["dead"])
    assert (revived["state"], revived["failures"]) == ("queued", 0)
    assert revived["checkpoint"] == {"sent": [1, 2, 3]}
    assert len(revived["attempts"]) == 2


def test_requeue_from_scratch_forgets_the_checkpoint(outlast: Outlast, rows: Filled) -> None:
    url, ids = rows
    assert outlast("requeue", ids["dead"], "--from-scratch", "--url", url).code == 0
    assert job(outlast, url, ids["dead"])["checkpoint"] is None


def test_requeue_refuses_jobs_that_have_not_ended(outlast: Outlast, rows: Filled) -> None:
    url, ids = rows
    said = outlast("requeue", ids["running"], ids["completed"], 999, "--url", url)
    said.refused(1, "has not ended", "is completed", "there is no job 999 in ")


def test_dead_requeue_takes_only_dead_jobs(outlast: Outlast, filled: Filled) -> None:
    url, ids = filled
    said = outlast("dead", "requeue", ids["dead"], ids["cancelled"], 999, "--url", url)
    mend = f"not dead: `outlast requeue {ids['cancelled']}` revives it"
    said.refused(1, f"job {ids['cancelled']} is cancelled, {mend}", "there is no job 999")
    assert said.out == f"job {ids['dead']} requeued\n"
    assert job(outlast, url, ids["cancelled"])["state"] == "cancelled"


@pytest.mark.parametrize(
    ("choice", "count"),
    [
        (["--task", "mail"], 1),
        (["--queue", "none"], 0),
        (["--tenant", "acme"], 1),
        (["--task", "mail", "--tenant", "other"], 0),
        (["--all"], 1),
    ],
    ids=["task", "queue", "tenant", "task of another tenant", "all"],
)
def test_dead_requeue_by_filter(
    outlast: Outlast, rows: Filled, choice: list[str], count: int
) -> None:
    url, _ = rows
    said = outlast("dead", "requeue", *choice, "--url", url)
    assert (said.code, said.out) == (0, f"{count} job{'s' * (count != 1)} requeued\n")


def test_dead_jobs_are_grouped_and_a_group_is_requeued(outlast: Outlast, rows: Filled) -> None:
    url, ids = rows
    found = outlast("dead", "groups", "--json", "--url", url).json()
    (group,) = found["groups"]
    assert (group["number"], group["job_id"], group["task"]) == (1, ids["dead"], "mail")
    assert (group["kind"], group["exception"]) == ("error", "shop.smtp.Refused")
    assert group["place"] == "shop/smtp.py in send"
    assert (found["looked_at"], found["full"], found["more"]) == (1, False, False)
    said = outlast("dead", "groups", "--url", url)
    assert "shop.smtp.Refused" in said.out
    assert group["group"] in said.out
    name = ["--group", group["group"]]
    assert outlast("dead", "list", *name, "--json", "--url", url).json()["jobs"]
    assert outlast("dead", "requeue", "--group", "no", "--url", url).out == "0 jobs requeued\n"
    assert outlast("dead", "requeue", *name, "--url", url).out == "1 job requeued\n"
    assert outlast("dead", "groups", "--task", "mail", "--url", url).out == "no dead jobs\n"


def test_dead_discard_deletes_for_good(outlast: Outlast, filled: Filled) -> None:
    url, ids = filled
    said = outlast("dead", "discard", ids["dead"], "--url", url)
    assert (said.code, said.out) == (0, "1 job discarded\n")
    outlast("job", ids["dead"], "--url", url).refused(1, f"there is no job {ids['dead']}")
    outlast("dead", "discard", ids["dead"], "--url", url).refused(1, "there is no job", " in ")


def test_dead_discard_leaves_other_jobs_alone(outlast: Outlast, rows: Filled) -> None:
    url, ids = rows
    outlast("dead", "discard", ids["running"], "--url", url).refused(1, "is running, not dead")
    assert outlast("dead", "discard", "--all", "--url", url).out == "1 job discarded\n"
    left = outlast("jobs", "--json", "--url", url).json()["jobs"]
    assert {each["id"] for each in left} == set(ids.values()) - {ids["dead"]}


@pytest.mark.parametrize(
    "command",
    [["requeue"], ["discard"], ["discard", "1", "--all"], ["discard", "--all", "--task", "mail"]],
    ids=" ".join,
)
def test_dead_requeue_and_discard_of_all_jobs_need_a_flag(
    outlast: Outlast, rows: Filled, command: list[str]
) -> None:
    url, _ = rows
    outlast("dead", *command, "--url", url).refused(2, "--all")
    assert len(outlast("dead", "list", "--json", "--url", url).json()["jobs"]) == 1
