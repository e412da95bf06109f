"""``outlast doctor``: what a store, its workers and this machine stand on, and how to mend it.

finding.py    what is found, and the facts it is found in
store.py      any store: reachable, schema; then SQLite's own; postgres.py: PostgreSQL's own
crew.py       the workers, and jobs that wait for one
exposure.py   what strangers could read, on the way to the servers and on this machine
place.py      this machine: lock files, Kubernetes; the application, if one is named

A check is a pure function of the facts that yields findings. None of them changes anything.
"""

from __future__ import annotations

from outlast.doctor.crew import CREW
from outlast.doctor.exposure import EXPOSURE, look_at
from outlast.doctor.finding import (
    Application,
    Exposure,
    Facts,
    Finding,
    Level,
    Locks,
    Messenger,
    doctor_document,
)
from outlast.doctor.place import HERE, in_kubernetes, locks_of
from outlast.doctor.postgres import POSTGRES
from outlast.doctor.store import SQLITE, STORE
from outlast.store.surroundings import PostgresFacts, SqliteFacts

__all__ = [
    "Application",
    "Exposure",
    "Facts",
    "Finding",
    "Level",
    "Locks",
    "Messenger",
    "doctor_document",
    "examine",
    "in_kubernetes",
    "locks_of",
    "look_at",
]


def examine(facts: Facts) -> list[Finding]:
    """Return what all checks find, in a fixed order."""
    found = [one for check in STORE for one in check(facts)]
    if isinstance(facts.surroundings, PostgresFacts):
        found += [one for pg in POSTGRES for one in pg(facts.surroundings, facts)]
    if isinstance(facts.surroundings, SqliteFacts):
        found += [one for lite in SQLITE for one in lite(facts.surroundings)]
    return found + [one for check in (*CREW, *EXPOSURE, *HERE) for one in check(facts)]
