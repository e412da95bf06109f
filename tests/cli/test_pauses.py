"""``outlast pause``, ``resume`` and ``pauses``: what is said, the exit codes, and a real worker."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Filled, Outlast


def test_what_is_paused_is_listed_and_explained_until_it_is_resumed(
    outlast: Outlast, rows: Filled
) -> None:
    url, ids = rows
    said = outlast("pause", "queue", "default", "--reason", "it burns", "--by", "ada",
                   "--wait", "0", "--url", url)  # fmt: skip
    said.refused(1, "the queue 'default' is paused, but 1 worker did not acknowledge it yet: ")
    document = outlast("pauses", "--url", url, "--json").json()
    (one,) = document["pauses"]
    shown = {name: one[name] for name in ("kind", "name", "paused_by", "reason", "stop")}
    assert shown == {
        "kind": "queue",
        "name": "default",
        "paused_by": "ada",
        "reason": "it burns",
        "stop": False,
    }
    assert len(one["unacknowledged"]) == 1
    listed = outlast("pauses", "--url", url).out
    assert "The queue 'default' has been paused for" in listed
    assert "by ada: it burns. But 1 worker did not acknowledge it yet" in listed
    assert "-> outlast resume queue default" in listed
    assert outlast("job", ids["queued"], "--url", url, "--json").json()["phase"] == "paused"
    assert "The queue 'default' has been paused" in outlast("job", ids["queued"], "--url", url).out
    why = outlast("why", ids["queued"], "--url", url).out
    assert "-> `outlast resume queue default` lets it start again." in why
    found = outlast("jobs", "--state", "paused", "--url", url, "--json").json()["jobs"]
    assert ids["queued"] in {each["id"] for each in found}
    assert {each["phase"] for each in found} == {"paused"}
    assert "paused     queue default" in outlast("stats", "--url", url).out
    assert outlast("resume", "queue", "default", "--url", url).code == 0
    again = outlast("resume", "queue", "default", "--url", url)
    again.refused(1, "the queue 'default' is not paused: see `outlast pauses`")
    assert outlast("pauses", "--url", url).out == "nothing is paused\n"


def test_a_name_that_nothing_has_is_paused_with_a_warning(outlast: Outlast, filled: Filled) -> None:
    for kind in ("queue", "task", "tenant"):
        said = outlast("pause", kind, "typo", "--wait", "0", "--url", filled[0])
        assert f"no job and no worker has the {kind} 'typo': it is paused all the same" in said.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["everything"], "everything: write queue, task, tenant or all, then its name"),
        (["queue"], "which queue? Give its name"),
        (["all", "mail"], "all has no name: it is every queue"),
        (["queue", ""], "is not a text with at least one character"),
        (["all", "--wait", "soon"], "soon"),
    ],
)
def test_wrong_usage_is_refused(
    outlast: Outlast, rows: Filled, arguments: list[str], told: str
) -> None:
    outlast("pause", *arguments, "--url", rows[0]).refused(2, told)
