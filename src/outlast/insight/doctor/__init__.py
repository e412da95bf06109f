"""``outlast doctor``: check a store, its workers and this machine, and say how to fix them.

A check is a pure function that yields findings from the facts. No check changes anything.

finding.py     the facts that checks read, and the document of their findings
gather.py      reads these facts from a store, as far as it can be read
store.py       any store: reachable, schema; each kind of store checks its own facts
workers.py     the workers, and jobs that wait for one
schedules.py   schedules whose ticks fall into a change of the clocks, or that cannot be read
exposure.py    data that strangers could read, on the way to the servers and on this machine
host.py        this machine: lock files, Kubernetes; and the application, if one is named
encryption.py  whether that application encrypts payloads, and which are still plain
"""

from __future__ import annotations

from outlast.insight.availability import list_alive
from outlast.insight.doctor.encryption import ENCRYPTION
from outlast.insight.doctor.exposure import EXPOSURE, look_at
from outlast.insight.doctor.finding import (
    Application,
    Exposure,
    Facts,
    Locks,
    MessengerUrl,
    doctor_document,
)
from outlast.insight.doctor.gather import gather
from outlast.insight.doctor.host import HERE, in_kubernetes, locks_of
from outlast.insight.doctor.schedules import SCHEDULES
from outlast.insight.doctor.store import STORE
from outlast.insight.doctor.workers import CHECKS
from outlast.store.finding import CheckContext, Finding, Level

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
    found = [one for check in STORE for one in check(facts)]
    if facts.environment is not None:
        live = len(list_alive(facts.workers, facts.now))
        context = CheckContext(now=facts.now, asked_at=facts.asked_at, workers=live)
        found += facts.environment.check(context)
    checks = (*CHECKS, *SCHEDULES, *EXPOSURE, *HERE, *ENCRYPTION)
    return found + [one for check in checks for one in check(facts)]
