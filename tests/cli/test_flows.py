"""``outlast flows`` and ``outlast flow``, on jobs that ``--after`` has linked."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Outlast, Said


@pytest.fixture
def flow(outlast: Outlast) -> Outlast:
    """A flow of a command that fails and what waits for it, and a job by itself."""

    def run(*words: object) -> Said:
        return outlast(*words, OUTLAST_URL="sqlite:///shop.db")

    assert run("run", "--retries", "0", "--", "false").code == 0
    assert run("enqueue", "shop:app", "nap", "0", "--after", "1").code == 0
    assert run("run", "--after", "1,2", "--after-ended", "1", "--", "true").code == 0
    assert run("run", "--after-ended", "1", "--", "true").code == 0
    assert run("enqueue", "shop:app", "nap", "0").code == 0
    return run


def test_a_flow_is_listed_shown_retried_and_cancelled(flow: Outlast) -> None:
    (listed,) = flow("flows", "--json").json()["flows"]
    assert (listed["id"], listed["states"]) == (1, {"queued": 1, "blocked": 3})
    worker = ["worker", "shop:app", "--shell", "--until-empty"]
    assert flow(*worker).code == 0
    said = flow("flow", "show", "3").out
    assert "flow 1: 4 jobs: 1 completed, 1 dead, 2 cancelled" in said
    assert "A retry runs 1 job again (1); 2 of the cancelled wait again (2, 3)." in said
    members = {one["id"]: one for one in flow("flow", "show", "4", "--json").json()["members"]}
    assert members[4]["after"] == [{"id": 1, "wants": "ended"}]
    assert [members[n]["retry"] for n in (1, 2, 3, 4)] == ["runs", "waits", "waits", None]
    assert flow("flow", "retry", "2", "--dry-run").out.startswith("A retry runs 1 job again")
    assert flow("flow", "retry", "2").out == "1 job requeued\n"
    assert flow("flow", "cancel", "1", "--dry-run").out.startswith("3 jobs would be cancelled")
    assert flow("flow", "cancel", "1").out == "3 jobs cancelled\n"
    assert "has already ended" in flow("flow", "cancel", "1").out
    assert "a retry would change nothing" in flow("flow", "retry", "1").out
    assert [one["verb"] for one in flow("actions", "--json").json()["actions"]] == [
        "cancel",
        "requeue",
    ]
    flow("flow", "show", "99").refused(1, "there is no job 99 in ")
    assert "1 job: 1 completed" in flow("flow", "show", "5").out


def test_a_retry_names_a_job_whose_key_another_one_has(flow: Outlast) -> None:
    failing = ["run", "--retries", "0", "--key", "k", "--", "false"]
    assert flow(*failing).code == 0
    assert flow("run", "--after", "6", "--", "true").code == 0
    assert flow("worker", "shop:app", "--shell", "--until-empty").code == 0
    assert flow(*failing).code == 0
    flow("flow", "retry", "7").refused(
        1, "job 6 cannot be requeued: an unfinished job has its key; 0 jobs requeued"
    )


def test_a_flow_goes_on_without_a_job_that_is_skipped(flow: Outlast) -> None:
    worker = ["worker", "shop:app", "--shell", "--until-empty"]
    assert flow(*worker).code == 0
    flow("flow", "skip", "2").refused(1, "job 2 is cancelled: only dead and blocked jobs")
    flow("flow", "skip", "99").refused(1, "there is no job 99 in ")
    assert flow("flow", "skip", "1").out == "job 1 skipped\n"
    assert flow(*worker).code == 0
    assert "flow 1: 4 jobs: 4 completed" in flow("flow", "show", "3").out
    (act,) = flow("actions", "--json").json()["actions"]
    assert (act["verb"], act["target"], act["counts"]) == ("skip", "job 1", {"skipped": 1})
    assert flow("verify").code == 0
    assert [one["worker"] is None for one in flow("job", "1", "--json").json()["attempts"]] == [
        False,
        True,
    ]


def test_what_a_job_waits_for_is_checked(flow: Outlast) -> None:
    flow("enqueue", "shop:app", "nap", "0", "--after", "99").refused(1, "no job 99 to wait for")
    flow("run", "--after", "1,x", "--", "true").refused(2, "--after 17,18, not 'x'")
    flow("run", "--after-ended", "0", "--", "true").refused(2, "0 is not a job's number")
