"""``outlast jobs`` page after page, and how far a search has looked."""

from __future__ import annotations

import json

from outlast.cli.jobs import describe_rest
from tests.cli.conftest import Outlast

Filled = tuple[str, dict[str, int]]


def test_jobs_are_listed_page_after_page(outlast: Outlast, rows: Filled) -> None:
    url, ids = rows
    listed: list[int] = []
    before: list[str] = []
    while True:
        said = outlast("jobs", "--limit", "3", *before, "--url", url, "--json")
        document = said.json()
        assert said.out == json.dumps(document, indent=2) + "\n"
        listed += [job["id"] for job in document["jobs"]]
        if document["next_before"] is None:
            break
        before = ["--before", str(document["next_before"])]
        assert (
            f"--before {listed[2]} what follows"
            in outlast("jobs", "--limit", "3", "--url", url).out
        )
    assert listed == sorted(ids.values(), reverse=True)
    shown = outlast("jobs", "--limit", "3", "--url", url).out
    assert f"--before {listed[2]} what follows" in shown
    nothing = outlast("jobs", "--task", "nothing", "--url", url, "--json")
    assert nothing.json() == {"schema": 1, "jobs": [], "next_before": None}
    assert nothing.out == json.dumps(nothing.json(), indent=2) + "\n"
    outlast("jobs", "--before", "0", "--url", url).refused(2, "0 is not")


def test_a_search_that_ends_early_says_how_far_back_it_has_looked() -> None:
    assert describe_rest(0, 50, None) is None
    assert describe_rest(0, 50, 99) == (
        "jobs before 99 were not looked at; --before 99 goes on with them"
    )
