"""``outlast doctor``: check a store, its workers and this machine, and say how to fix them.

A check is a pure function that yields findings from the facts. No check changes anything.

facts.py        the facts that checks read, and the document of their findings
gather.py       reads these facts from a store, as far as it can be read
store.py        any store: reachable, its schema, its own facts, its schedules
workers.py      the workers, and jobs that wait for one
limits.py       limits under which nothing starts while jobs wait
exposure.py     data that strangers could read, on the way to the servers and on this machine
host.py         this machine: lock files, Kubernetes
application.py  the application, if one is named: its import, tasks and encryption
"""

from __future__ import annotations

from outlast.insight.doctor.application import APPLICATION
from outlast.insight.doctor.exposure import EXPOSURE, look_at
from outlast.insight.doctor.facts import (
    Application,
    Exposure,
    Facts,
    Locks,
    MessengerUrl,
    doctor_document,
)
from outlast.insight.doctor.gather import gather
from outlast.insight.doctor.host import HERE, in_kubernetes, locks_of
from outlast.insight.doctor.limits import LIMITS
from outlast.insight.doctor.store import SCHEDULES, STORE
from outlast.insight.doctor.workers import CHECKS
from outlast.store.finding import Finding, Level

__all__ = [
    "Application",
    "Exposure",
    "Facts",
    "Finding",
    "Level",
    "Locks",
    "MessengerUrl",
    "doctor_document",
    "examine",
    "gather",
    "in_kubernetes",
    "locks_of",
    "look_at",
]


def examine(facts: Facts) -> list[Finding]:
    """Return the findings of all checks, in a fixed order."""
    checks = (*STORE, *CHECKS, *LIMITS, *SCHEDULES, *EXPOSURE, *HERE, *APPLICATION)
    return [one for check in checks for one in check(facts)]
