"""``outlast doctor``: check a store, its workers and this machine, and say how to fix them.

A check is a pure function that yields findings from the facts. No check changes anything.

facts.py        the facts that checks read, as far as a store shows them; their findings
store.py        any store: reachable, its schema, its own facts, its schedules
workers.py      the workers, and jobs that wait for one, or for a limit
host.py         this machine: lock files, Kubernetes, and data that strangers could read
application.py  the application, if one is named: its import, tasks and encryption
"""

from __future__ import annotations

from outlast.insight.doctor.application import APPLICATION
from outlast.insight.doctor.facts import Facts
from outlast.insight.doctor.host import EXPOSURE, HERE
from outlast.insight.doctor.store import SCHEDULES, STORE
from outlast.insight.doctor.workers import CHECKS, LIMITS
from outlast.store.finding import Finding


def examine(facts: Facts) -> list[Finding]:
    """Return the findings of all checks, in a fixed order."""
    checks = (*STORE, *CHECKS, *LIMITS, *SCHEDULES, *EXPOSURE, *HERE, *APPLICATION)
    return [one for check in checks for one in check(facts)]
