"""Commands that act on jobs: what was done, what was not and why, and the exit code."""

from __future__ import annotations

from tests.cli.conftest import Filled


def test_cancel_ends_queued_jobs_and_asks_running_ones(filled: Filled) -> None:
    said = filled("cancel", filled.ids["queued"], filled.ids["running"])
    assert said.code == 0, said.err
    assert (
        said.out
        == f"job {filled.ids['queued']} cancelled\njob {filled.ids['running']} asked to stop\n"
    )
    assert filled.job(filled.ids["queued"])["state"] == "cancelled"
    assert filled.job(filled.ids["running"])["cancel_requested"]
    assert "asked to stop" in filled("job", filled.ids["running"]).out


def test_cancel_does_what_it_can_and_names_the_jobs_that_it_cannot_cancel(rows: Filled) -> None:
    said = rows("cancel", rows.ids["queued"], rows.ids["completed"], 999)
    said.refused(1, f"job {rows.ids['completed']} has already ended", "there is no job 999 in ")
    assert said.out == f"job {rows.ids['queued']} cancelled\n"


def test_stack_says_why_there_is_none(filled: Filled) -> None:
    filled("stack", filled.ids["queued"]).refused(1, "is queued, not running")
    filled("stack", 999).refused(1, "there is no job 999 in ")
    said = filled("stack", filled.ids["running"], "--wait", "0")
    said.refused(1, "has not answered within 0 s", "its last heartbeat, due every")
    acted = filled("actions", "--json").json()["actions"]
    assert [each["target"] for each in acted if each["verb"] == "stack"] == [
        f"job {filled.ids['running']}"
    ]


def test_requeue_revives_from_the_checkpoint(filled: Filled) -> None:
    said = filled("requeue", filled.ids["dead"], filled.ids["cancelled"])
    assert said.code == 0, said.err
    revived = filled.job(filled.ids["dead"])
    assert (revived["state"], revived["failures"]) == ("queued", 0)
    assert revived["checkpoint"] == {"sent": [1, 2, 3]}
    assert len(revived["attempts"]) == 2


def test_requeue_from_scratch_forgets_the_checkpoint(rows: Filled) -> None:
    assert rows("requeue", rows.ids["dead"], "--from-scratch").code == 0
    assert rows.job(rows.ids["dead"])["checkpoint"] is None


def test_requeue_refuses_jobs_that_have_not_ended(rows: Filled) -> None:
    said = rows("requeue", rows.ids["running"], rows.ids["completed"], 999)
    said.refused(1, "has not ended", "is completed", "there is no job 999 in ")


def test_dead_requeue_takes_only_dead_jobs(filled: Filled) -> None:
    said = filled("dead", "requeue", filled.ids["dead"], filled.ids["cancelled"], 999)
    mend = f"not dead: `outlast requeue {filled.ids['cancelled']}` revives it"
    said.refused(1, f"job {filled.ids['cancelled']} is cancelled, {mend}", "there is no job 999")
    assert said.out == f"job {filled.ids['dead']} requeued\n"
    assert filled.job(filled.ids["cancelled"])["state"] == "cancelled"


def test_dead_jobs_are_grouped_and_a_group_is_requeued(rows: Filled) -> None:
    found = rows("dead", "groups", "--json").json()
    (group,) = found["groups"]
    assert (group["number"], group["job_id"], group["task"]) == (1, rows.ids["dead"], "mail")
    assert (group["kind"], group["exception"]) == ("error", "shop.smtp.Refused")
    assert group["place"] == "shop/smtp.py in send"
    assert (found["looked_at"], found["full"], found["more"]) == (1, False, False)
    said = rows("dead", "groups")
    assert "shop.smtp.Refused" in said.out
    assert group["group"] in said.out
    name = ["--group", group["group"]]
    assert rows("dead", "list", *name, "--json").json()["jobs"]
    assert rows("dead", "requeue", "--group", "no").out == "0 jobs requeued\n"
    assert rows("dead", "requeue", *name).out == "1 job requeued\n"
    assert rows("dead", "groups", "--task", "mail").out == "no dead jobs\n"


def test_dead_discard_deletes_for_good(filled: Filled) -> None:
    said = filled("dead", "discard", filled.ids["dead"])
    assert (said.code, said.out) == (0, f"job {filled.ids['dead']} discarded\n")
    filled("job", filled.ids["dead"]).refused(1, f"there is no job {filled.ids['dead']}")
    filled("dead", "discard", filled.ids["dead"]).refused(1, "there is no job", " in ")


def test_dead_discard_leaves_other_jobs_alone(rows: Filled) -> None:
    rows("dead", "discard", rows.ids["running"]).refused(1, "is running, not dead")
    assert rows("dead", "discard", "--all").out == "1 job discarded\n"
    left = rows("jobs", "--json").json()["jobs"]
    assert {each["id"] for each in left} == set(rows.ids.values()) - {rows.ids["dead"]}
