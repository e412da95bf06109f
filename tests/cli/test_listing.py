"""``outlast jobs`` page after page, and how far a search has looked."""

from __future__ import annotations

import json

from outlast.cli.listing import describe_rest
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


def test_jobs_are_found_by_what_is_written_in_them(outlast: Outlast, filled: Filled) -> None:
    url, ids = filled

    def found(*options: str) -> set[int]:
        said = outlast("jobs", *options, "--url", url, "--json")
        return {job["id"] for job in said.json()["jobs"]}

    everything = found()
    assert everything == set(ids.values())
    assert found("--since", "2h") == everything
    failed = found("--error", "MAILBOX unknown")
    assert failed
    assert failed < everything
    assert failed == found("--error", "mailbox unknown", "--since", "1d")
    args = outlast("job", min(failed), "--url", url, "--json").json()["args"]
    text = json.dumps(args, separators=(",", ":"))[1:-1]
    assert min(failed) in found("--args", text)
    assert found("--args", "no such text anywhere") == set()
    assert "no such jobs" in outlast("jobs", "--args", "nothing", "--url", url).out


def test_a_search_for_nothing_is_refused(outlast: Outlast, rows: Filled) -> None:
    url, _ = rows
    outlast("jobs", "--args", "", "--url", url).refused(2, "--args takes a text")
    outlast("jobs", "--error", "x" * 1_001, "--url", url).refused(2, "--error takes a text")
    outlast("jobs", "--since", "soon", "--url", url).refused(2, "soon")


def test_a_search_says_how_far_back_it_has_read() -> None:
    said = describe_rest(0, 50, 99, 1_893_455_999.0)
    assert said == "searched back to 2029-12-31 23:59:59 UTC; --before 99 goes on"
