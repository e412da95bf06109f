"""Group the doctor's findings for a page: findings of one kind together, with a link."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from outlast.store.finding import Finding, Level

ORDER = [Level.PROBLEM, Level.WARNING, Level.HINT, Level.OK]
SHOWN_MAX = 3  # findings of one kind; the others are shown on demand
PAGES: dict[str, tuple[str, str]] = {
    "dead_jobs": ("/dead", "Dead jobs"),
    "dead_workers": ("/workers", "Workers"),
    "draining": ("/workers", "Workers"),
    "failing": ("/workers", "Workers"),
    "failing_duty": ("/workers", "Workers"),
    "lacks_tags": ("/queues", "Queues"),
    "limit_closed": ("/limits", "Limits"),
    "limit_held": ("/limits", "Limits"),
    "limit_recounted": ("/limits", "Limits"),
    "limit_unknown": ("/limits", "Limits"),
    "long_paused": ("/queues", "Queues"),
    "lost_workers": ("/workers", "Workers"),
    "malformed_jobs": ("/dead", "Dead jobs"),
    "queue_not_served": ("/queues", "Queues"),
    "schedules": ("/schedules", "Schedules"),
    "silent_workers": ("/workers", "Workers"),
    "slots_held": ("/jobs?phase=running", "Running jobs"),
    "undecodable": ("/tasks", "Tasks"),
    "unservable": ("/queues", "Queues"),
}
"""Name of a finding -> the page that shows more of it, and what it is called."""


class FindingKind(msgspec.Struct, frozen=True):
    """Findings of one name with the same remedy; ``path`` and ``title``: their page."""

    name: str
    level: Level
    mend: str
    sentences: list[str]
    path: str = ""
    title: str = ""


def group_findings(findings: Iterable[Finding]) -> list[FindingKind]:
    """Return the findings by kind, the worst first."""
    kinds: dict[tuple[Level, str, str], FindingKind] = {}
    for one in sorted(findings, key=lambda each: ORDER.index(each.level)):
        key = one.level, one.name, one.mend or ""
        if key not in kinds:
            made = FindingKind(one.name, one.level, one.mend or "", [], *PAGES.get(one.name, ()))
            kinds[key] = made
        kinds[key].sentences.append(one.sentence)
    return list(kinds.values())
