"""What the pages say of other queues after a kill is what was measured."""

from __future__ import annotations

import re
import statistics
from typing import Any

from bench.deaths import COMPARISON, HEADINGS, rows_of, show
from bench.kit import ROOT, load, markdown
from tests.cases import each_case

KEPT = (load("deaths") or {}).get("values", [])
README = (ROOT / "README.md").read_text()


def seconds_of(name: str) -> list[float]:
    """Return the rounds of a line; none where the job did not run again."""
    (line,) = [each for each in KEPT if each["name"] == name]
    return [each for each in line["seconds"] if each is not None]


def test_the_table_has_each_line_that_was_measured() -> None:
    assert markdown(HEADINGS, rows_of(KEPT)) in COMPARISON.read_text()


def test_the_first_sentence_of_the_readme_was_measured() -> None:
    (ours,) = re.findall(r"runs again (\d\.\d) s later", README)
    rounds = [seconds_of(f"Outlast {store}, default settings") for store in ("postgres", "sqlite")]
    assert float(ours) == max(round(statistics.median(each), 1) for each in rounds)
    assert "Celery on Redis: an hour later with `acks_late`, never without" in " ".join(
        README.split()
    )
    (late,) = seconds_of("Celery, acks_late")
    assert 3600 <= late < 4000
    assert seconds_of("Celery") == []


@each_case(
    ("seconds", "shown"),
    [
        ([None], "not in 75 minutes"),
        ([3671.2], "3,671 s"),
        ([0.2, 0.9, 0.44], "0.4 s (at most 0.9 s in 3 kills)"),
        ([0.2, None], "not in 75 minutes"),
    ],
)
def test_a_job_that_did_not_run_again_is_shown_so(seconds: list[Any], shown: str) -> None:
    assert show(seconds, 75) == shown
